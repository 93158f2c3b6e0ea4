"""The number that somebody typed, in any usual way of writing one."""

from __future__ import annotations

import math
import re
import unicodedata

from tinyrl.course.words import Words

NO_NUMBER = Words(
    en="That is no number. Write 0.25, 1/4, 25%, 2^-7, 1e-3, ln(2), exp(-0.5).",
    zh="这不是数字。可以写 0.25、1/4、25%、2^-7、1e-3、ln(2) 或 exp(-0.5)。",
)
LONGEST = 60  # characters of a number
GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:[,_ ]\d{3})+(?![\d,])")  # 22,026
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
FORMS = {
    "plain": re.compile(rf"({PLAIN})(%?)"),
    "ratio": re.compile(rf"({PLAIN})/({PLAIN})"),
    "power": re.compile(rf"([+-]?)(\d+\.?\d*)(?:\^|\*\*)\(?({PLAIN})\)?"),
    "tens": re.compile(rf"({PLAIN})[*×x]10(?:\^|\*\*)\(?([+-]?\d+)\)?"),
    "log": re.compile(rf"(?:ln|log)\(?({PLAIN})\)?"),
    "root": re.compile(rf"(?:sqrt\(|√\(?)({PLAIN})\)?"),
    "exp": re.compile(rf"(?:exp\(|e\^\(?)({PLAIN})\)?"),
}


def number(said: str) -> float:
    """The number that somebody typed, in any usual way of writing one.

    Raises `ValueError` with what to tell them.
    """
    text = unicodedata.normalize("NFKC", said[: LONGEST + 1]).lower().replace("−", "-")
    text = GROUPED.sub(lambda whole: re.sub("[,_ ]", "", whole[0]), text.strip())
    text = re.sub(r"\s*([/^()%*+-])\s*", r"\1", text)
    try:
        value = _value(text) if len(text) <= LONGEST else math.nan
    except (ArithmeticError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(str(NO_NUMBER))
    return value


def _value(text: str) -> float:
    if m := FORMS["plain"].fullmatch(text):
        return float(m[1]) / (100 if m[2] else 1)
    if m := FORMS["ratio"].fullmatch(text):
        return float(m[1]) / float(m[2])
    if m := FORMS["power"].fullmatch(text):
        return math.pow(float(m[2]), float(m[3])) * (-1 if m[1] == "-" else 1)
    if m := FORMS["tens"].fullmatch(text):
        return float(m[1]) * math.pow(10, int(m[2]))
    if m := FORMS["log"].fullmatch(text):
        return math.log(float(m[1]))
    if m := FORMS["root"].fullmatch(text):
        return math.sqrt(float(m[1]))
    if m := FORMS["exp"].fullmatch(text):
        return math.exp(float(m[1]))
    return math.nan
