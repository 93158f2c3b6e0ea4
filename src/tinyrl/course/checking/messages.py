"""What a check says when no known misconception explains the answer, in both languages."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tinyrl.course.checking.guarded_call import (
    SECONDS,
    UNWATCHED,
    AsksKeyboard,
    Attempt,
    OutOfTime,
)
from tinyrl.course.exercise import Argument, Case, Exercise
from tinyrl.course.words import Words

Array = NDArray[np.float64]
Rows = tuple[tuple[Words, str], ...]

YOURS = Words(en="yours", zh="你的结果")
EXPECTED = Words(en="expected", zh="正确结果")
DIFFERENCE = Words(en="first difference", zh="第一处不同")
PRINTED = Words(en="it printed", zh="函数的输出")
MUCH = 400  # characters of what a function prints
SMALL = 16  # numbers that a reader can take in at once


def not_callable(name: str, answer: object) -> Words:
    kind = type(answer).__name__
    return Words(
        en=f"`{name}` is not a function but a {kind}. Run the cell that defines it first.",
        zh=f"`{name}` 不是函数，而是 {kind}。请先运行定义它的单元格。",
    )


def blank(name: str, attempt: Attempt) -> Words | None:
    """What an answer that is not there yet is told; None for one that is."""
    error, value = attempt.error, attempt.value
    if isinstance(error, NotImplementedError) and not str(error).strip():
        return Words(
            en=f"`{name}` is not written yet: replace `raise NotImplementedError()`.",
            zh=f"`{name}` 还没有写：请把 `raise NotImplementedError()` 换成你的代码。",
        )
    parts = value if isinstance(value, tuple | list) and value else (value,)
    if error is None and all(part is None or part is ... for part in parts):
        if value is not None:
            return Words(
                en=f"`{name}` still returns a placeholder: {value}.",
                zh=f"`{name}` 返回的还是占位符：{value}。",
            )
        return Words(
            en=f"`{name}` returned None. Is its `return` missing?",
            zh=f"`{name}` 返回了 None。是不是漏了 `return`？",
        )
    return None


def solved(name: str, cases: int) -> Words:
    return Words(
        en=f"`{name}` is right: {cases} cases.", zh=f"`{name}` 正确：{cases} 组用例。"
    )


def borrowed(name: str, function: str) -> Words:
    if function == UNWATCHED:
        return Words(
            en=f"`{name}` takes off what watches its calls (`{function}`). An answer has "
            "no need to.",
            zh=f"`{name}` 关掉了对调用的检查（`{function}`）。答案不需要这样做。",
        )
    return Words(
        en=f"`{name}` calls tinyrl's own `{function}`. Using it is fine in your work; here "
        "the point is to write it with torch alone.",
        zh=f"`{name}` 直接调用了 tinyrl 的 `{function}`。平时可以这样用，但这道题要求只用"
        f" torch 自己写。",
    )


def not_boolean(name: str) -> Words:
    return Words(
        en=f"`{name}` has to be boolean, true or false at each place. Numbers, be they 0.0 "
        "and 1.0 or those of rows, mean something else to what uses it.",
        zh=f"`{name}` 必须是布尔值，每个位置为真或假。数（无论是 0.0 和 1.0，还是行号）对使"
        f"用它的代码另有含义。",
    )


def not_whole(name: str) -> Words:
    return Words(
        en=f"The numbers of `{name}` are right, their type is not: ids and places look "
        "something up in a table, so they have to be whole numbers of an integer dtype, "
        "such as int64.",
        zh=f"`{name}` 的数值正确，类型不对：编号和位置要用来查表，必须是整数类型（例如 "
        f"int64）。",
    )


def not_a_tuple(exercise: Exercise, value: object) -> Words:
    names = ", ".join(exercise.returns)
    kind, number = type(value).__name__, len(exercise.returns)
    return Words(
        en=f"`{exercise.name}` returns {number} values, `return {names}`; yours is of type "
        f"`{kind}`.",
        zh=f"`{exercise.name}` 应当返回 {number} 个值：`return {names}`；"
        f"你返回的是 {kind}。",
    )


def not_numbers(name: str, value: object) -> Words:
    kind = type(value).__name__
    return Words(
        en=f"`{name}` has to be a torch tensor or a plain number; yours is of type "
        f"`{kind}`.",
        zh=f"`{name}` 应当是 torch 张量或普通的数；你返回的是 {kind}。",
    )


def raised(exercise: Exercise, case: Case, attempt: Attempt) -> tuple[Words, Words]:
    """The words for an exception, and those that show nothing of hidden inputs."""
    name, error = exercise.name, attempt.error
    if known := _known(name, error):
        return known, known
    kind = type(error).__name__
    message = (str(error).strip().splitlines() or [""])[0][:200]
    if case.stage == "gradient" and isinstance(error, RuntimeError):
        return no_autograd(name, message), no_autograd(name, kind)
    at, at_zh = "", ""
    if attempt.line:
        number, code = attempt.line
        at, at_zh = f" at line {number}, `{code}`", f"（第 {number} 行 `{code}`）"
    return (
        Words(
            en=f"`{name}` raises {kind}{at}. {message}",
            zh=f"`{name}` 抛出了 {kind}{at_zh}。{message}",
        ),
        Words(en=f"`{name}` raises {kind}.", zh=f"`{name}` 抛出了 {kind}。"),
    )


def stopped(attempt: Attempt) -> bool:
    """Whether it was the checks, not the function's own arithmetic, that ended a call."""
    return _known("", attempt.error) is not None


def _known(name: str, error: BaseException | None) -> Words | None:
    """What an answer is told that would end, block or outlast the notebook."""
    match error:
        case OutOfTime():
            return Words(
                en=f"`{name}` still runs after {SECONDS:g} s. Does its loop ever end?",
                zh=f"`{name}` 运行了 {SECONDS:g} 秒还没有结束。循环会停下来吗？",
            )
        case AsksKeyboard():
            return Words(
                en=f"`{name}` calls `input()`. When it is graded, nobody answers.",
                zh=f"`{name}` 调用了 `input()`。评分时没有人在键盘前输入。",
            )
        case RecursionError():
            return Words(
                en=f"`{name}` calls itself without end.", zh=f"`{name}` 无休止地调用自己。"
            )
        case SystemExit():
            return Words(
                en=f"`{name}` ends Python with `exit` instead of returning a value.",
                zh=f"`{name}` 用 `exit` 结束了 Python，而不是返回结果。",
            )
        case KeyboardInterrupt():
            return Words(en=f"`{name}` was interrupted.", zh=f"`{name}` 被中断了。")
        case MemoryError():
            return Words(en=f"`{name}` runs out of memory.", zh=f"`{name}` 耗尽了内存。")
    return None


def no_autograd(name: str, reason: str) -> Words:
    return Words(
        en=f"`{name}` fails as soon as its arguments carry a gradient ({reason}). Stay "
        "with torch operations from the arguments to the result.",
        zh=f"参数带梯度时 `{name}` 就会出错（{reason}）。从参数到结果都请只用 torch 运算。",
    )


def shape(name: str, mine: tuple[int, ...], theirs: tuple[int, ...]) -> Words:
    return Words(
        en=f"`{name}` has shape {list(mine)}; it should have {list(theirs)}.",
        zh=f"`{name}` 的形状是 {list(mine)}，应当是 {list(theirs)}。",
    )


def value(name: str, case: Case, wrote: str | None = None) -> Words:
    """`wrote` is an argument that was written to: perhaps why, perhaps one fault more."""
    en, zh = f"`{name}` is wrong: {case.what.en}.", f"`{name}` 不对：{case.what.zh}。"
    if wrote is None:
        return Words(en=en, zh=zh)
    return Words(
        en=f"{en} And your function writes into `{wrote}`, which belongs to the caller: "
        "what it computes afterwards sees the change.",
        zh=f"{zh}另外，你的函数原地修改了 `{wrote}`，它属于调用方：之后的计算用到的都是改"
        f"过的值。",
    )


def changed(name: str, argument: str) -> Words:
    return Words(
        en=f"`{name}` writes into `{argument}`, which belongs to the caller: its next use "
        "would see your change. Make a new tensor.",
        zh=f"`{name}` 原地修改了 `{argument}`。它属于调用方，之后用到它的代码都会受影响；"
        f"请生成新的张量。",
    )


def plain_number(name: str) -> Words:
    return Words(
        en=f"The value is right, but `{name}` is a plain number here, and training calls "
        "`.backward()` on it. Return a tensor, also where it is 0.",
        zh=f"数值正确，但这里的 `{name}` 是普通的数，训练时却要对它调用 `.backward()`。即使"
        f"等于 0，也要返回张量。",
    )


def no_gradient(name: str) -> Words:
    return Words(
        en=f"The value is right, but no gradient reaches `{name}`: `detach`, `no_grad`, "
        "`.item()` or numpy cuts it. Training would do nothing.",
        zh=f"数值正确，但梯度传不到 `{name}`：被 `detach`、`no_grad`、`.item()` 或 numpy "
        f"切断了，训练不会有任何更新。",
    )


def nan_gradient(name: str) -> Words:
    return Words(
        en=f"The value is right, but the gradient with respect to `{name}` is not finite: "
        "garbage in the padding comes back through `where`. Clean it before you compute.",
        zh=f"数值正确，但对 `{name}` 的梯度不是有限值：padding 里的垃圾值穿过 `where` 传了"
        f"回来。要先清理，再计算。",
    )


def wrong_gradient(name: str) -> Words:
    return Words(
        en=f"The value is right, but the gradient with respect to `{name}` is not: part of "
        "the way is cut, or a gradient flows through what should count as a constant.",
        zh=f"数值正确，但对 `{name}` 的梯度不对：有一部分路径被切断了，或者梯度流过了本应"
        f"当作常数的部分。",
    )


def gradient_into_data(name: str) -> Words:
    return Words(
        en=f"A gradient reaches `{name}`. That is data, recorded before this step: "
        "`detach()` it.",
        zh=f"梯度传到了 `{name}`。它是这一步之前记录下来的数据，要 `detach()`。",
    )


def printed(attempt: Attempt) -> Rows:
    """What the function printed in this call, kept short."""
    text = attempt.printed.rstrip()
    return ((PRINTED, text[:MUCH]),) if text else ()


def inputs(exercise: Exercise, case: Case) -> Rows:
    """The arguments of a case, where they are small enough to look at."""
    named = zip(exercise.arguments, case.args, strict=True)
    if any(isinstance(a, torch.Tensor) and a.numel() > SMALL for a in case.args):
        return ()
    return tuple((Words(en=name, zh=name), shown(argument)) for name, argument in named)


def compared(
    exercise: Exercise,
    case: Case,
    name: str,
    mine: Array,
    theirs: Array,
    tolerance: Array,
) -> Rows:
    """Inputs, the learner's value and the right one; of large ones the first difference."""
    several = len(exercise.returns) > 1
    yours = Words(en=f"your {name}", zh=f"你的 {name}") if several else YOURS
    rows = inputs(exercise, case)
    written = [_typed(exercise, name, x) for x in (mine, theirs)]
    if theirs.size <= SMALL:
        both = [shown(x) for x in written]
        return (*rows, (yours, both[0]), (EXPECTED, both[1]))
    wrong = np.argwhere(~(np.abs(mine - theirs) <= tolerance))
    at = tuple(int(i) for i in wrong[0])
    text = f"[{', '.join(map(str, at))}]  ({len(wrong)} / {theirs.size})"
    one, other = (f"{x[at]:.7g}" if x.dtype.kind == "f" else str(x[at]) for x in written)
    return (*rows, (DIFFERENCE, text), (yours, one), (EXPECTED, other))


def _typed(exercise: Exercise, name: str, x: Array) -> NDArray[Any]:
    """Float64 values as what the exercise returns: booleans, ids; or as they are."""
    if name in exercise.boolean and np.isin(x, (0, 1)).all():
        return x.astype(bool)
    whole = name in exercise.whole and np.isfinite(x).all() and (x == np.round(x)).all()
    return x.astype(np.int64) if whole else x


def shown(value: Argument | NDArray[Any]) -> str:
    """Numbers as a person writes them; large arrays by their shape.

    Where six digits make a whole number of another, float32 is written in full.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    array = np.asarray(value)
    if array.size > SMALL:
        return f"{list(array.shape)}"
    if array.dtype.kind == "f":
        exact = array[np.isfinite(array)]
        off = np.abs(exact - np.round(exact)) / np.maximum(np.abs(exact), 1)
        if array.dtype == np.float32 and ((off > 0) & (off < 5e-7)).any():
            return np.array2string(array, precision=9, separator=", ")
        return np.array2string(array.astype(np.float64), precision=6, separator=", ")
    return np.array2string(array, separator=", ")
