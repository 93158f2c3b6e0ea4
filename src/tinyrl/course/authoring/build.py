"""Build every notebook of the course from its source, a text notebook (py:percent).

`notebooks/NN_name.py` becomes `notebooks/NN_name.ipynb`. `solutions/labNN_name.py`, the
only place where a lab is written, becomes `solutions/labNN_name/labNN_name.ipynb` (not in
git), nbgrader's `generate_assignment` makes the student's version of it, and that is
written twice: to `labs/`, where learners answer, and to `classroom/released/` beside this
package, the untouched copy by which `lab doctor` repairs and `lab check` knows the tests.
`questions/*.md` together become `interview/bank.json`.

Usage: `python -m tinyrl.course.authoring.build [--check]` at the root of a clone.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from tinyrl.course import notebooks
from tinyrl.course.authoring import question_files
from tinyrl.course.interview.questions import Question
from tinyrl.course.sources import BuildError, canonical, digest, dumps, parse, stamped
from tinyrl.course.syllabus import SyllabusError

CONFIG = "nbgrader_config.py"
RELEASED = Path("src/tinyrl/course/classroom/released")
BANK = Path("src/tinyrl/course/interview/bank.json")
ASKED = "Asked in interviews \u00b7 本课的面试题"
GLOSSARY = "[Glossary \u00b7 术语表](../docs/glossary.md)"


def with_links(
    lessons: dict[str, NotebookNode], questions: list[Question]
) -> dict[str, NotebookNode]:
    """The notebooks by name, each with a last cell of links: the interview's questions that
    it answers; for the numbered ones those before and after, called as their first headings
    say; the glossary.
    """
    numbered = sorted(name for name in lessons if name[:2].isdigit())
    links = {
        name: f"[{name[:2]}, {_heading(lessons[name], name[3:])}]({name}.ipynb)"
        for name in numbered
    }
    linked = {}
    for name, lesson in lessons.items():
        i = numbered.index(name) if name in numbered else len(numbered) + 1
        ways = [f"Before: {links[n]}" for n in numbered[max(i - 1, 0) : i]]
        ways += [f"Next: {links[n]}" for n in numbered[i + 1 : i + 2]]
        text = " \u00b7 ".join([*ways, GLOSSARY])
        keys = [q.key for q in questions if name in (s.notebook for s in q.sections)]
        if keys:
            cards = ", ".join(f"[{key}](../questions/{key}.md)" for key in keys)
            text = f"{ASKED}: {cards}\n\n{text}"
        nb = notebooks.copy(lesson)
        nb.cells.append(nbformat.v4.new_markdown_cell(text))  # type: ignore[no-untyped-call]
        linked[name] = canonical(nb, name)
    return linked


def _heading(nb: NotebookNode, default: str) -> str:
    texts = (cell.source for cell in nb.cells if cell.cell_type == "markdown")
    lines = (line for text in texts for line in text.splitlines())
    return next((line[2:] for line in lines if line.startswith("# ")), default)


def build(root: Path) -> dict[Path, str]:
    """Every generated file under `root`: relative path to text. Writes nothing."""
    lessons = {
        source.stem: parse(source) for source in sorted((root / "notebooks").glob("*.py"))
    }
    questions = _questions(root)
    made = {
        Path("notebooks", f"{name}.ipynb"): dumps(stamped(nb))
        for name, nb in with_links(lessons, questions).items()
    }
    solutions = {
        source.stem: dumps(parse(source))
        for source in sorted((root / "solutions").glob("*.py"))
    }
    for name, text in release(solutions, root / CONFIG).items():
        made[Path("solutions", name, f"{name}.ipynb")] = solutions[name]
        made[Path("labs", name, f"{name}.ipynb")] = text
        made[RELEASED / f"{name}.ipynb"] = text
    if questions:
        made[BANK] = question_files.dumps(questions)
    return made


def _questions(root: Path) -> list[Question]:
    """The interview bank; a clone without one, as tests make them, has no questions."""
    if not (root / "questions").is_dir():
        return []
    try:
        return question_files.bank(root)
    except (question_files.QuestionError, SyllabusError) as error:
        raise BuildError(str(error)) from error


def release(solutions: dict[str, str], config_file: Path) -> dict[str, str]:
    """Each solution as nbgrader releases it to students, by the course's own settings."""
    if not solutions:
        return {}
    from nbgrader.converters.base import NbGraderException  # type: ignore[import-untyped]
    from nbgrader.converters.generate_assignment import (  # type: ignore[import-untyped]
        GenerateAssignment,
    )
    from nbgrader.coursedir import CourseDirectory  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as folder, _quiet() as errors:
        for name, text in solutions.items():
            source = Path(folder, "solutions", name, f"{name}.ipynb")
            source.parent.mkdir(parents=True)
            source.write_text(text, "utf-8")
        config = settings(config_file)
        config.CourseDirectory.root = folder
        config.GenerateAssignment.no_database = True  # as --no-db: it takes seconds to make
        config.SaveCells.enabled = False
        course = CourseDirectory(config=config, student_id=".", assignment_id="*")
        try:
            GenerateAssignment(coursedir=course, config=config).start()
        except NbGraderException as error:
            raise BuildError(_reason(errors, solutions) or str(error)) from error
        return {name: _released(Path(folder, "labs", name), name) for name in solutions}


def _reason(errors: list[str], solutions: dict[str, str]) -> str:
    """From nbgrader's log: which lab it refused, and the last line of the traceback."""
    refused = [name for name in solutions if any(name in error for error in errors)]
    traces = [error.strip().splitlines()[-1] for error in errors if "Traceback" in error]
    return "\n".join(f"solutions/{name}.py: {t}" for name in refused for t in traces)


def settings(config_file: Path) -> Config:
    """nbgrader's settings as the course has them."""
    config: Config = PyFileConfigLoader(str(config_file)).load_config()
    return config


def _released(folder: Path, name: str) -> str:
    """The one notebook that nbgrader put in `folder`; anything beside it is a leak."""
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    if files != [f"{name}.ipynb"]:
        raise BuildError(f"{name}: nbgrader would release {files}, not one notebook")
    return dumps(canonical(notebooks.read(folder / files[0]), name))


@contextlib.contextmanager
def _quiet() -> Iterator[list[str]]:
    """Collect what nbgrader logs as errors, and keep its chatter off the screen."""
    errors: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                errors.append(record.getMessage())

    logger, handler = logging.getLogger("traitlets"), Collect()
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's own code
            yield errors
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def differences(root: Path, made: dict[Path, str]) -> list[str]:
    """One line for every committed file that is not what the sources generate."""
    found = []
    for path, text in made.items():
        if path.parts[0] == "solutions":  # not committed
            continue
        file = root / path
        if not file.exists():
            found.append(f"{path}: missing")
        elif (there := file.read_text("utf-8")) != text:
            line = _first_difference(there, text)
            found.append(f"{path}:{line}: not what its source gives")
    committed = [*(root / "notebooks").glob("*.ipynb"), *(root / RELEASED).rglob("*")]
    committed += [*(root / "labs").rglob("*"), root / BANK]
    files = [p for p in committed if p.is_file() and ".ipynb_checkpoints" not in p.parts]
    strays = {p.relative_to(root) for p in files} - made.keys()
    return found + [f"{path}: no source generates it" for path in sorted(strays)]


def _first_difference(a: str, b: str) -> int:
    """The number, from 1, of the first line in which two texts differ."""
    pairs = enumerate(zip(a.splitlines(), b.splitlines(), strict=False), start=1)
    return next((n for n, (x, y) in pairs if x != y), min(len(a), len(b)))


def write(
    root: Path, made: dict[Path, str], *, force: bool = False
) -> tuple[list[Path], list[Path]]:
    """Write what has changed, but not over a learner's work: the paths written and kept."""
    changed, kept = [], []
    for path, text in made.items():
        file = root / path
        if file.exists() and file.read_text("utf-8") == text:
            continue
        if not force and holds_work(root, path):
            kept.append(path)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="\n")
        changed.append(path)
    return changed, kept


def holds_work(root: Path, path: Path) -> bool:
    """Whether somebody worked in this file: a lab that is not the one released last, or a
    notebook whose cells are no longer those that were built. Outputs are no work."""
    file, last = root / path, root / RELEASED / path.name
    if not file.exists():
        return False
    if path.parts[0] == "labs":
        return last.exists() and file.read_text("utf-8") != last.read_text("utf-8")
    if path.parts[0] != "notebooks":
        return False
    try:
        nb = notebooks.read(file)
    except Exception:  # no notebook at all
        return False
    stamp = nb.metadata.get("tinyrl", {}).get("cells")
    return stamp is not None and stamp != digest(nb)


def main(argv: list[str] | None = None) -> int:
    usage = "python -m tinyrl.course.authoring.build"
    parser = argparse.ArgumentParser(prog=usage, description="Build notebooks and labs.")
    parser.add_argument("--check", action="store_true", help="only look; exit 1 if stale")
    parser.add_argument("--force", action="store_true", help="write over what was edited")
    options = parser.parse_args(argv)
    root = Path.cwd()
    if not (root / CONFIG).exists():
        print(f"no {CONFIG} here: run this at the root of a clone", file=sys.stderr)
        return 2
    try:
        made = build(root)
        lines: list[Any]
        if options.check:
            lines = differences(root, made)
            hint = ["run: make notebooks"] if lines else ["all up to date"]
            print("\n".join([*lines, *hint]))
            return 1 if lines else 0
        changed, kept = write(root, made, force=options.force)
        lines = [f"wrote {path}" for path in changed]
        lines += [f"kept {path}: it holds work of its own (else --force)" for path in kept]
        print("\n".join(lines or ["all up to date"]))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
