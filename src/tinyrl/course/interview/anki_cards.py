"""How the deck's cards look: note types, styles, and the scripts that mix a card.

A choice shows its options in a new order each time and a numeric card one of its draws.
The question side draws that and leaves it for the answer side: in the window, which stays
on a desktop, and in the session's storage, which stays where a phone loads the page anew.
Where neither does, or scripts are off, the answer side shows everything, each option with
its reason and each draw with its numbers, so it is never wrong.
"""

from __future__ import annotations

import genanki  # type: ignore[import-untyped]

from tinyrl.course.interview.answers import YOURS
from tinyrl.course.words import Language, Words

FIELDS = ("Key", "Question", "Options", "Choice", "Answer")
NUMERIC_FIELDS = ("Key", "Question", "Answer")
# Ids are drawn once and stay: a newer deck replaces the cards of an older one.
MODEL_IDS: dict[Language, int] = {"en": 1734028551, "zh": 1734028552}
NUMERIC_IDS: dict[Language, int] = {"en": 1734028553, "zh": 1734028554}

ALOUD = Words(en="Answer aloud, in two minutes.", zh="两分钟内口头作答。")
WHICH = Words(
    en="Which one is right? A tap marks yours.", zh="哪一项正确？点一下即可标记。"
)
COMPUTE = Words(en="To three digits.", zh="取三位有效数字。")

CSS = """
.card { font: 17px/1.5 -apple-system, "Segoe UI", "Noto Sans CJK SC", sans-serif;
  text-align: left; max-width: 42em; margin: 1em auto; padding: 0 .5em; }
.ask { font-size: 120%; font-weight: 600; } .faint { opacity: .65; font-size: 85%; }
h3 { font-size: 100%; margin: 1.2em 0 .3em; } blockquote { border-left: 3px solid #0072B2;
  margin-left: 0; padding-left: .8em; } code { font-size: 90%; } img { max-width: 100%;
  background: #fff; border-radius: 4px; }
ol.letters { list-style-type: lower-alpha; } ol.letters > li { margin: .6em 0; }
li > p:first-child { margin: 0; } .why { margin: .2em 0; opacity: .8; }
li.right > p:first-child { font-weight: 600; color: #009E73; }
li.mine { outline: 2px solid #D55E00; outline-offset: 3px; border-radius: 3px; }
li.mine .yours { display: inline; } .yours { display: none; color: #D55E00; }
.front .draw { display: none; } .front .draw:first-child { display: block; }
.draw { margin-bottom: 1.5em; }
"""
KEEP = """
var KEY = "{{Key}}";
function keep(drawn) {
  drawn.key = KEY; window.tinyrl = drawn;
  try { sessionStorage.setItem("tinyrl", JSON.stringify(drawn)); } catch (e) {}
}
function kept() {
  var drawn = window.tinyrl;
  try { drawn = drawn || JSON.parse(sessionStorage.getItem("tinyrl")); } catch (e) {}
  return drawn && drawn.key === KEY ? drawn : null;
}
function arrange(order) {
  var list = document.querySelector("ol.letters"), items = [].slice.call(list.children);
  order.forEach(function (i) { list.appendChild(items[i]); });
  return items;
}
function only(draw) {
  [].forEach.call(document.querySelectorAll(".draw"), function (one, i) {
    one.style.display = i === draw ? "block" : "none";
  });
}
"""
MIX = """
var order = [], n = document.querySelectorAll("ol.letters > li").length;
for (var i = 0; i < n; i++) order.splice(Math.floor(Math.random() * (i + 1)), 0, i);
var items = arrange(order), drawn = { order: order };
keep(drawn);
items.forEach(function (item, i) {
  item.onclick = function () {
    items.forEach(function (other) { other.classList.toggle("mine", other === item); });
    drawn.mine = i; keep(drawn);
  };
});
"""
MIX_AGAIN = """
var drawn = kept();
if (drawn && drawn.order) {
  var items = arrange(drawn.order);
  if (drawn.mine !== undefined) items[drawn.mine].classList.add("mine");
}
"""
DRAW = """
var n = document.querySelectorAll(".draw").length, draw = Math.floor(Math.random() * n);
only(draw); keep({ draw: draw });
"""
DRAW_AGAIN = """
var drawn = kept();
if (drawn && drawn.draw !== undefined) only(drawn.draw);
"""
ASK = '<div class="ask">{{Question}}</div>'


def script(does: str) -> str:
    """In a scope of its own: a desktop runs both sides in one page."""
    return f"<script>(function () {{{KEEP}{does}}})();</script>"


def model(to: Language) -> genanki.Model:
    """An interview question: aloud, and as a choice."""
    choice = f'{ASK}<p class="faint">{WHICH}</p>'
    templates = [
        {
            "name": "aloud",
            "qfmt": f'{ASK}<p class="faint">{ALOUD}</p>',
            "afmt": f"{ASK}<hr id=answer>{{{{Answer}}}}",
        },
        {
            "name": "choice",
            "qfmt": f"{choice}{{{{Options}}}}{script(MIX)}",
            "afmt": f"{ASK}<hr id=answer>{{{{Choice}}}}{script(MIX_AGAIN)}",
        },
    ]
    return _model(MODEL_IDS[to], f"tinyrl ({to})", FIELDS, templates)


def numeric_model(to: Language) -> genanki.Model:
    """A numeric drill: one of its draws, another the next time."""
    asked = f'<div class="front">{{{{Question}}}}</div><p class="faint">{COMPUTE}</p>'
    template = {
        "name": "compute",
        "qfmt": asked + script(DRAW),
        "afmt": "{{Answer}}" + script(DRAW_AGAIN),
    }
    return _model(NUMERIC_IDS[to], f"tinyrl numeric ({to})", NUMERIC_FIELDS, [template])


def _model(
    number: int, name: str, fields: tuple[str, ...], templates: list[dict[str, str]]
) -> genanki.Model:
    named = [{"name": field} for field in fields]
    return genanki.Model(number, name, fields=named, templates=templates, css=CSS)


def mine() -> str:
    """The mark of the option that was chosen; hidden until it was."""
    return f'<span class="yours"> · {YOURS}</span>'
