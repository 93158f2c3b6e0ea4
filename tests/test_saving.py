"""A learner's file is replaced whole or not at all, and nothing in it is lost."""

from __future__ import annotations

import codecs
import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adversaries.students import cell, own
from submissions import NAME, assert_gradable, good, save, strip_all
from tinyrl.course import notebooks, saving
from tinyrl.course.classroom import doctor

HALF = "\ud800"  # of a character: JSON can hold it, UTF-8 cannot


def damaged(folder: Path) -> Path:
    nb = good()
    strip_all(nb)
    return save(folder, nb)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Any file that grows beyond `size` bytes is met as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("more", [-100, 100], ids=["for the backup", "for the new file"])
def test_without_room_nothing_changes_and_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: int
) -> None:
    path = damaged(tmp_path)
    before = path.read_bytes()
    with room_for(len(before) + more):
        assert doctor.run(path, fix=True) == doctor.PROBLEMS
    assert "Nothing was changed: [Errno 27] File too large" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_character_stays_where_it_is(tmp_path: Path) -> None:
    nb = good()
    nb.cells.append(own(f"text = '{HALF}'"))
    cell(nb, "open_answer").source = f"It should {HALF} be 1."
    strip_all(nb)
    path = tmp_path / f"{NAME}.ipynb"
    path.write_text(json.dumps(nb))
    assert doctor.run(path, fix=True) == doctor.PROBLEMS  # Python cannot read that cell
    fixed = notebooks.read(path)
    assert cell(fixed, "open_answer").source == f"It should {HALF} be 1."
    assert fixed.cells[-1].source == f"text = '{HALF}'"
    assert doctor.run(path) == doctor.PROBLEMS


def test_two_repairs_in_one_second_leave_two_backups(tmp_path: Path) -> None:
    contents = []
    for number in range(3):
        nb = good()
        strip_all(nb)
        nb.cells.append(own(f"x = {number}"))
        path = save(tmp_path, nb)
        contents.append(path.read_bytes())
        assert doctor.run(path, fix=True) == doctor.CLEAN
    backups = [p.read_bytes() for p in tmp_path.glob("*.bak")]
    assert sorted(backups) == sorted(contents)


def test_the_mode_stays_also_under_another_name(tmp_path: Path) -> None:
    path = damaged(tmp_path)
    path.chmod(0o640)
    doctor.run(path, fix=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    other = path.rename(tmp_path / "mine.ipynb")
    doctor.run(other, fix=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_student_s_file_stays_theirs_when_root_repairs_it(tmp_path: Path) -> None:
    theirs = (12345, 23456)
    path = damaged(tmp_path).rename(tmp_path / "mine.ipynb")
    os.chown(path, *theirs)
    path.chmod(0o600)
    assert doctor.run(path, fix=True) == doctor.CLEAN
    found = [(p.stat().st_uid, p.stat().st_gid) for p in tmp_path.iterdir()]
    assert found == [theirs, theirs], "the file of another name, and the backup"
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}


def test_a_file_that_cannot_be_given_away_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(path: Path, uid: int, gid: int) -> None:
        asked.append((uid, gid))
        raise PermissionError(1, "Operation not permitted")

    path = damaged(tmp_path)
    path.chmod(0o640)
    owner = (path.stat().st_uid, path.stat().st_gid)
    monkeypatch.setattr(os, "chown", refuse)
    assert doctor.run(path, fix=True) == doctor.CLEAN
    assert asked == [owner, owner]
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}


def test_a_new_file_gets_the_mode_of_any_new_file(tmp_path: Path) -> None:
    saving.replace(tmp_path / "a", "text")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_link_is_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = damaged(elsewhere)
    link = tmp_path / f"{NAME}.ipynb"
    link.symlink_to(target)
    assert doctor.run(link, fix=True) == doctor.CLEAN
    assert link.is_symlink()
    assert_gradable(notebooks.read(target))
    assert list(elsewhere.iterdir()) == [target]


def test_a_file_that_keeps_its_wrong_name_leaves_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = damaged(tmp_path).rename(tmp_path / "mine.ipynb")
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self == path:
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)  # as where the file is open, on Windows
    assert doctor.run(path, fix=True) == doctor.PROBLEMS
    assert list(tmp_path.iterdir()) == [path]


def test_text_that_utf8_cannot_hold_is_refused_before_anything_happens(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(UnicodeError):
        saving.replace(path, HALF)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a"]


def test_a_byte_order_mark_is_read_named_and_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, good())
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert notebooks.version(path) == (4, 5)
    assert doctor.run(path) == doctor.PROBLEMS
    assert "begins with a mark that nbgrader cannot read" in capsys.readouterr().out
    assert doctor.run(path, fix=True) == doctor.CLEAN
    assert not notebooks.has_bom(path)
    assert_gradable(notebooks.read(path))


def test_utf_16_is_called_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, good())
    path.write_text(path.read_text("utf-8"), "utf-16")
    assert doctor.run(path) == doctor.USAGE
    assert "is UTF-16, a notebook is UTF-8: save it as UTF-8" in capsys.readouterr().out
