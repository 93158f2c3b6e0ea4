"""Cards of the deck in Chromium, as Anki shows them: mixed anew, both sides of one mind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from lab_server import BROWSER, ROOT
from tinyrl.course.interview import anki, anki_cards, questions
from tinyrl.course.words import Language, set_language

pytestmark = BROWSER
KEY, DRILL = "III-04", "k3_of_two_tokens"
Show = Callable[[Page, str], None]


def sides(to: Language, kind: str) -> tuple[str, str]:
    """Question and answer side of a card, as pages."""
    set_language(to)
    if kind == "compute":
        note = anki._numeric_note(DRILL, to, anki_cards.numeric_model(to))
    else:
        model = anki_cards.model(to)
        note = anki._note(questions.load()[KEY], to, model, None)
    names = [field["name"] for field in note.model.fields]
    values = dict(zip(names, note.fields, strict=True))
    (template,) = [t for t in note.model.templates if t["name"] == kind]
    front, back = (
        re.sub(r"{{(\w+)}}", lambda name: values[name[1]], template[side])
        for side in ("qfmt", "afmt")
    )
    style = f'<meta charset="utf-8"><style>{anki_cards.CSS}</style>'
    return tuple(f'{style}<div class="card" id="qa">{x}</div>' for x in (front, back))  # type: ignore[return-value]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    wrong: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert wrong == []


def desktop(page: Page, side: str) -> None:
    """Both sides in one page: its content is exchanged, its scripts are run."""
    if page.url == "about:blank":
        page.route("http://deck/*", lambda route: route.fulfill(body="<body></body>"))
        page.goto("http://deck/")
    page.evaluate(
        """side => { document.body.innerHTML = side; sessionStorage.clear();
        for (const old of document.querySelectorAll("script")) {
          const script = document.createElement("script");
          script.text = old.text; old.replaceWith(script); } }""",
        side,
    )


def phone(page: Page, side: str) -> None:
    """Each side is a page of its own, of one origin."""
    page.unroute_all()
    body = {"body": side, "content_type": "text/html; charset=utf-8"}
    page.route("http://deck/*", lambda route: route.fulfill(**body))
    page.goto("http://deck/card")


def bare(page: Page, side: str) -> None:
    """Nothing is kept from one side to the other."""
    page.goto("about:blank")
    page.set_content(side)


def options(page: Page) -> list[str]:
    return page.locator("ol.letters > li > p:first-child").evaluate_all(
        "all => all.map(p => [...p.childNodes].filter(n => n.className !== 'yours')"
        ".map(n => n.textContent).join('').replace(' \u2713', '').trim())"
    )


@pytest.mark.parametrize("show", [desktop, phone])
@pytest.mark.parametrize("to", ["en", "zh"])
def test_options_are_mixed_and_the_answer_has_them_in_the_same_order(
    page: Page, to: Language, show: Show
) -> None:
    front, back = sides(to, "choice")
    text = questions.load()[KEY].text(to)
    orders = set()
    for turn in range(8):
        show(page, front)
        asked = options(page)
        orders.add(tuple(asked))
        mine = turn % len(asked)
        page.locator("ol.letters > li").nth((mine + 1) % len(asked)).click()
        page.locator("ol.letters > li").nth(mine).click()
        if turn == 7:
            shoot(page, f"anki-choice-{to}-front")
        show(page, back)
        assert options(page) == asked
        right = page.locator("li.right > p:first-child").all_inner_texts()
        assert [x.split(" \u2713")[0] for x in right] == [plain(text.sentence)]
        chosen = page.locator("li.mine")
        assert chosen.count() == 1
        assert asked[mine] in chosen.inner_text()
        assert page.locator(".yours:visible").count() == 1
    shoot(page, f"anki-choice-{to}-back")
    assert len(orders) > 1
    assert {*next(iter(orders))} == {
        plain(text.sentence),
        *(plain(w.says) for w in text.wrong),
    }


@pytest.mark.parametrize("show", [desktop, phone])
@pytest.mark.parametrize("to", ["en", "zh"])
def test_a_drill_shows_one_draw_and_the_answer_is_to_that(
    page: Page, to: Language, show: Show
) -> None:
    front, back = sides(to, "compute")
    asked = set()
    for _ in range(8):
        show(page, front)
        (question,) = page.locator(".draw:visible .ask").all_inner_texts()
        asked.add(question)
        show(page, back)
        assert page.locator(".draw:visible .ask").all_inner_texts() == [question]
    shoot(page, f"anki-drill-{to}-back")
    assert len(asked) > 1


def test_where_nothing_is_kept_the_answer_shows_everything(page: Page) -> None:
    front, back = sides("en", "choice")
    bare(page, front)
    asked = options(page)
    bare(page, back)
    assert {*options(page)} == {*asked}
    assert page.locator(".why").count() == len(asked) - 1
    front, back = sides("en", "compute")
    bare(page, front)
    assert page.locator(".draw:visible").count() == 1
    bare(page, back)
    assert page.locator(".draw:visible").count() == anki.DRAWS


def test_what_another_card_has_kept_is_not_used(page: Page) -> None:
    front, back = sides("en", "choice")
    phone(page, front.replace(f'"{KEY}"', '"I-01"'))
    page.locator("ol.letters > li").first.click()
    phone(page, back)
    assert page.locator("li.mine").count() == 0


def plain(text: str) -> str:
    return text.replace("`", "").replace("**", "")


def shoot(page: Page, name: str) -> Any:
    page.screenshot(path=ROOT / f"artifacts/screenshots/{name}.png", full_page=True)
