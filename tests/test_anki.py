"""The deck for Anki, read back: cards, pictures and ids that stay."""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
from pathlib import Path

import pytest

from tinyrl.course.interview import anki, card_pictures, questions
from tinyrl.course.words import set_language

BANK = questions.load()


class Deck:
    def __init__(self, path: Path, folder: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        self.media = json.loads((folder / "media").read_text())
        self.data = {name: (folder / key).read_bytes() for key, name in self.media.items()}
        with sqlite3.connect(folder / "collection.anki2") as db:
            self.notes = db.execute("select guid, flds, tags from notes").fetchall()
            self.cards = db.execute("select count(*) from cards").fetchone()[0]
            raw = db.execute("select decks, models from col").fetchone()
        self.decks = sorted(deck["name"] for deck in json.loads(raw[0]).values())
        self.fields = [dict(zip(anki.FIELDS, n[1].split("\x1f"), strict=True))
                       for n in self.notes]  # fmt: skip


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
    assert deck.cards == 140
    assert len([name for name in deck.decks if "::" in name]) == 8


def test_cards_say_what_the_bank_says(deck: Deck) -> None:
    chinese = "tinyrl (zh)::I 基本概念" in deck.decks
    for fields in deck.fields:
        text = BANK[fields["Key"]].zh if chinese else BANK[fields["Key"]].en
        bare = re.sub(r"<[^>]+>", "", fields["Answer"])
        for point in text.rubric:
            assert _plain(point.text)[:30] in _plain(bare)
        letter = fields["Choice"][6]
        options = re.findall(r"<li>(.*?)</li>", fields["Options"], re.S)
        right = _plain(re.sub(r"<[^>]+>", "", options["abcde".index(letter)]))
        assert right == _plain(text.sentence)
        assert len(options) == 1 + len(text.wrong)


def _plain(text: str) -> str:
    """Letters and digits only: HTML escapes and Markdown's marks aside."""
    text = re.sub(r"&\w+;", "", text)
    return "".join(re.findall(r"\w", re.sub(r"[*`<>&\"]", "", text)))


def test_pictures_are_there_and_all_are_used(deck: Deck) -> None:
    used = {name for f in deck.fields for name in re.findall(r'src="([^"]+)"', f["Answer"])}
    assert used == set(deck.data)
    assert all(data[:4] == b"\x89PNG" for data in deck.data.values())
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


def test_an_unknown_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no picture 'cat'"):
        card_pictures.save("cat", tmp_path)
    with pytest.raises(ValueError, match=r"no row 'numerics\.colour'"):
        card_pictures.save("fingerprint:numerics.colour", tmp_path)
