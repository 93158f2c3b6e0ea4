"""The deck for Anki, read back: cards, pictures and ids that stay."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tinyrl.course.html import html
from tinyrl.course.interview import anki, card_pictures, questions
from tinyrl.course.interview.anki_cards import MODEL_IDS
from tinyrl.course.interview.answers import YOURS
from tinyrl.course.interview.captions import CAPTIONS
from tinyrl.course.interview.numeric import DRILLS
from tinyrl.course.words import set_language

BANK = questions.load()


class Deck:
    def __init__(self, path: Path, folder: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        self.media = json.loads((folder / "media").read_text())
        self.data = {name: (folder / key).read_bytes() for key, name in self.media.items()}
        with sqlite3.connect(folder / "collection.anki2") as db:
            self.rows = db.execute("select guid, flds, tags, mid from notes").fetchall()
            self.cards = db.execute("select count(*) from cards").fetchone()[0]
            raw = db.execute("select decks, models from col").fetchone()
        self.decks = sorted(deck["name"] for deck in json.loads(raw[0]).values())
        models = json.loads(raw[1])
        self.names = {m: [f["name"] for f in models[m]["flds"]] for m in models}
        asked = [row for row in self.rows if row[3] in MODEL_IDS.values()]
        self.notes, self.fields = asked, [*map(self.named, asked)]
        self.drills = [self.named(row) for row in self.rows if row not in asked]

    def named(self, row: tuple[str, str, str, int]) -> dict[str, str]:
        """A note's fields by name."""
        return dict(zip(self.names[str(row[3])], row[1].split("\x1f"), strict=True))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each picture that a question names, drawn once."""
    folder = tmp_path_factory.mktemp("pictures")
    names = {q.picture for q in BANK.values() if q.picture}
    return {name: card_pictures.save(name, folder) for name in names}


@pytest.fixture(scope="module", params=["en", "zh"])
def deck(
    request: pytest.FixtureRequest,
    pictures: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Deck:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card_pictures, "save", lambda name, folder: pictures[name])
        patch.setenv("TINYRL_LANG", "en")
        set_language(request.param)
        folder = tmp_path_factory.mktemp("deck")
        anki.write(folder / "x.apkg", request.param)
        return Deck(folder / "x.apkg", folder / "out")


def test_every_question_is_two_cards_in_the_deck_of_its_group(deck: Deck) -> None:
    assert [f["Key"] for f in deck.fields] == list(BANK)
    assert deck.cards == 2 * 70 + len(DRILLS)
    assert len([name for name in deck.decks if "::" in name]) == 8


def test_cards_say_what_the_bank_says(deck: Deck) -> None:
    chinese = "tinyrl (zh)::I 基本概念" in deck.decks
    for fields in deck.fields:
        text = BANK[fields["Key"]].zh if chinese else BANK[fields["Key"]].en
        bare = re.sub(r"<[^>]+>", "", fields["Answer"])
        for point in text.rubric:
            assert _plain(point.text)[:30] in _plain(bare)
        options = re.findall(r"<li>(.*?)</li>", fields["Options"], re.S)
        judged = re.findall(r'<li( class="right")?>(.*?)</li>', fields["Choice"], re.S)
        reasons = {_bare(w.says): _bare(w.why) for w in text.wrong} | {
            _bare(text.sentence): ""
        }
        assert len(options) == len(reasons)
        for says, (right, told) in zip(options, judged, strict=True):
            assert bool(right) == (_bare(says) == _bare(text.sentence))
            mark = YOURS.zh if chinese else YOURS.en
            assert _bare(told) == _bare(says) + _plain(mark) + reasons[_bare(says)]


def test_every_drill_is_a_card_with_numbers_that_its_name_draws(deck: Deck) -> None:
    chinese = "tinyrl (zh)::I 基本概念" in deck.decks
    assert sorted(f["Key"] for f in deck.drills) == sorted(DRILLS)
    for fields in deck.drills:
        asked = fields["Question"].split('<div class="draw">')[1:]
        told = fields["Answer"].split('<div class="draw">')[1:]
        assert len(asked) == len(told) == len({*asked}) == anki.DRAWS
        name = fields["Key"]
        tasks = [DRILLS[name].draw(random.Random(f"{name}:{i}")) for i in range(12)]
        say = {_bare(html(t.question.zh if chinese else t.question.en)): t for t in tasks}
        for question, answer in zip(asked, told, strict=True):
            task = say[_bare(question)]
            words, way = (w.zh if chinese else w.en for w in (task.question, task.worked))
            assert _bare(answer).startswith(
                _bare(html(words)) + _plain(f"{task.answer:.3g}")
            )
            assert _bare(html(way)) in _bare(answer)
            whys = [slip.why.zh if chinese else slip.why.en for slip in task.slips]
            assert all(_bare(html(why)) in _bare(answer) for why in whys)


def _bare(text: str) -> str:
    return _plain(re.sub(r"<[^>]+>", "", text))


def _plain(text: str) -> str:
    """Letters and digits only: HTML escapes and Markdown's marks aside."""
    text = re.sub(r"&\w+;", "", text)
    return "".join(re.findall(r"\w", re.sub(r"[*`<>&\"]", "", text)))


def test_pictures_are_there_and_all_are_used(deck: Deck) -> None:
    used = {name for f in deck.fields for name in re.findall(r'src="([^"]+)"', f["Answer"])}
    assert used == set(deck.data)
    assert all(data[:4] == b"\x89PNG" for data in deck.data.values())
    chinese = "tinyrl (zh)::I 基本概念" in deck.decks
    for fields in deck.fields:
        for said in re.findall(r'alt="([^"]+)"', fields["Answer"]):
            assert bool(re.search(r"[\u4e00-\u9fff]", said)) == chinese
            assert f'<span class="faint">{said}</span>' in fields["Answer"]
    with_picture = [key for key, question in BANK.items() if question.picture]
    assert [f["Key"] for f in deck.fields if "<img" in f["Answer"]] == with_picture


def test_a_newer_deck_replaces_the_notes_of_an_older_one(deck: Deck) -> None:
    language = "zh" if "tinyrl (zh)::I 基本概念" in deck.decks else "en"
    other = "en" if language == "zh" else "zh"
    mine = [anki.genanki.guid_for("tinyrl", key, language) for key in BANK]
    assert [note[0] for note in deck.notes] == mine
    assert not {anki.genanki.guid_for("tinyrl", key, other) for key in BANK} & {*mine}


def test_half_of_the_cards_have_a_picture(pictures: dict[str, Path]) -> None:
    assert sum(q.picture is not None for q in BANK.values()) >= 30
    for path in pictures.values():
        data = path.read_bytes()
        assert data[:4] == b"\x89PNG"
        assert len(data) > 5000, "more than empty axes"


WORDS = {"exp", "min", "max"}


def test_pictures_hold_symbols_and_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One picture serves both languages; a machine may lack a font for Chinese."""
    drawn: list[Figure] = []
    save = Figure.savefig

    def kept(figure: Figure, *to: Any, **how: Any) -> None:
        drawn.append(figure)
        save(figure, *to, **how)

    monkeypatch.setattr(Figure, "savefig", kept)
    for name in [*card_pictures.PICTURES, "fingerprint:kernels.attention"]:
        card_pictures.save(name, tmp_path)
        texts = [text.get_text() for text in drawn.pop().findobj(Text)]
        said = " ".join(texts).replace("kernels.attention = online", "")
        assert {*re.findall(r"[a-z]{2,}", re.sub(r"\$.*?\$", "", said))} <= WORDS, said
        assert said.isascii() or not re.search(r"[\u4e00-\u9fff]", said)


def test_every_picture_has_its_caption() -> None:
    assert set(CAPTIONS) == {*card_pictures.PICTURES, "fingerprint"}


def test_a_file_that_anki_would_not_open_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert anki.run(tmp_path / "foo.txt") == 2
    assert "must end in .apkg" in "".join(capsys.readouterr().out.split("\n"))
    assert [*tmp_path.iterdir()] == []


def test_an_unknown_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no picture 'cat'"):
        card_pictures.save("cat", tmp_path)
    with pytest.raises(ValueError, match=r"no row 'numerics\.colour'"):
        card_pictures.save("fingerprint:numerics.colour", tmp_path)
