"""The house rules that a machine can check: layers, sizes, types, what notebooks hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from tinyrl import course
from tinyrl.course.sources import parse

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src/tinyrl"
LAYERS = [
    *("said", "wrapping"),
    *("formats", "attention", "kernels", "logprobs", "moe", "positions", "model"),
    *("pretrained", "parallel", "tokens", "tasks", "sampling", "stack"),
    *("rollout", "scoring", "collate", "advantages", "objectives", "correction"),
    *("presets", "explain", "metrics"),
    *("agreement", "tally", "measures", "monitoring", "intervals", "alarms"),
    "framework_names",
    *("routing", "recipe", "sft", "experience", "critic", "steps", "trainer", "snapshots"),
    *("exposure", "checkpoints", "json_values", "runs", "sweeps"),
    *("diagnosis", "course"),
    "cli",
]
COURSE = [  # the same inside the course
    *(
        "words",
        "streams",
        "printing",
        "saving",
        "notebooks",
        "citations",
        "html",
        "sources",
    ),
    *(
        "journal",
        "records",
        "card",
        "live",
        "style",
        "syllabus",
        "labels",
        "claims",
        "predictions",
    ),
    *("exercise", "exercises", "outline", "environment", "execute"),
    *("lessons", "panels", "checking", "interview", "authoring", "classroom"),
]
MODULES = sorted(p for p in SRC.rglob("*.py") if p != SRC / "__init__.py")
PYTHON = [
    *MODULES,
    *sorted((ROOT / "tests").glob("*.py")),
    *sorted(ROOT.glob("bench*/*.py")),
]
NOTEBOOKS = [
    *sorted((ROOT / "notebooks").glob("*.py")),
    *sorted((ROOT / "solutions").glob("*.py")),
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer(module: Path, within: Path = SRC) -> str:
    return module.relative_to(within).parts[0].removesuffix(".py")


COURSE_MODULES = [m for m in MODULES if layer(m) == "course" and m.parent != SRC / "course"]
COURSE_MODULES += [m for m in (SRC / "course").glob("*.py") if m.name != "__init__.py"]


def imported(module: Path, source: str) -> Iterator[tuple[int, list[str]]]:
    """Line and parts of the name of each import of tinyrl, wherever in a file it stands."""
    package = ["tinyrl", *module.relative_to(SRC).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        for parts in (dotted.split(".") for dotted in names):
            if parts[0] == "tinyrl" and len(parts) > 1 and not parts[1].startswith("__"):
                yield node.lineno, parts[1:]


def too_high(module: Path, source: str) -> list[str]:
    """Where a module of a lower layer imports from a higher one."""
    mine = LAYERS.index(layer(module))
    return [
        f"{name(module)}:{line} uses {used}"
        for line, (used, *_) in imported(module, source)
        if used not in LAYERS or LAYERS.index(used) > mine
    ]


def too_high_in_course(module: Path, source: str) -> list[str]:
    """The same between the parts of the course, functions it offers at its top included."""
    mine = COURSE.index(layer(module, SRC / "course"))
    parts = [
        (line, course._HOME.get(used[1], used[1]).split(".")[0])
        for line, used in imported(module, source)
        if used[0] == "course"
    ]
    return [
        f"{name(module)}:{line} uses {part}"
        for line, part in parts
        if part not in COURSE or COURSE.index(part) > mine
    ]


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_a_file_uses_only_those_above_it(module: Path) -> None:
    assert layer(module) in LAYERS, "give the new file its place in LAYERS"
    assert too_high(module, module.read_text("utf-8")) == []


@pytest.mark.parametrize("module", COURSE_MODULES, ids=name)
def test_a_part_of_the_course_uses_only_those_above_it(module: Path) -> None:
    assert layer(module, SRC / "course") in COURSE, "give the new file its place in COURSE"
    assert too_high_in_course(module, module.read_text("utf-8")) == []


def test_the_package_lists_its_layers_in_their_order() -> None:
    said = ast.get_docstring(ast.parse((SRC / "__init__.py").read_text()))
    assert said
    listed = [part.split(": ")[1] for part in said.split("\n- ")[1:]]
    assert [x for part in listed for x in " ".join(part.split()).split(", ")] == LAYERS


def test_the_course_says_where_everything_is() -> None:
    said = set(re.findall(r"\w+", course.__doc__ or ""))
    assert set(COURSE) <= said
    assert {layer(m, SRC / "course") for m in COURSE_MODULES} == set(COURSE)


@pytest.mark.parametrize(
    "line",
    [
        "from .trainer import rl",
        "from . import trainer",
        "from tinyrl.trainer import rl",
        "from tinyrl import trainer",
        "import tinyrl.trainer",
        "def late():\n    from .trainer import rl",
    ],
)
def test_the_layer_test_sees_every_way_to_import(line: str) -> None:
    (found,) = too_high(SRC / "stack.py", line)
    assert found.endswith("uses trainer")
    (found,) = too_high(
        SRC / "diagnosis/x.py",
        line.replace("from .", "from ..", 1).replace("trainer", "course"),
    )
    assert found.endswith("uses course")
    assert too_high(SRC / "cli.py", line) == []


@pytest.mark.parametrize(
    "line",
    [
        "from tinyrl.course import check",
        "from tinyrl.course import checking",
        "from tinyrl.course.checking.checks import check",
        "from ..checking import checks",
    ],
)
def test_the_layer_test_sees_into_the_course(line: str) -> None:
    (found,) = too_high_in_course(SRC / "course/panels/x.py", line)
    assert found.endswith("uses checking")
    assert too_high_in_course(SRC / "course/interview/x.py", line) == []


def test_importing_tinyrl_is_cheap() -> None:
    code = (
        "import sys; before = set(sys.modules); import tinyrl; "
        "print(*sorted(set(sys.modules) - before)); assert tinyrl.__version__"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["tinyrl"]


@pytest.mark.parametrize("file", PYTHON, ids=name)
def test_a_file_is_one_idea(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= 320


def test_ruff_and_its_format_are_clean() -> None:
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "src", "tests"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_types_are_clean() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def cells(path: Path, kind: str) -> list[NotebookNode]:
    return [cell for cell in parse(path).cells if cell.cell_type == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_is_read_at_one_sitting(path: Path) -> None:
    words = sum(len(cell.source.split()) for cell in cells(path, "markdown"))
    code = [line for cell in cells(path, "code") for line in cell.source.splitlines()]
    assert len(parse(path).cells) <= 60
    assert words <= 3000
    assert sum(line.strip()[:1] not in ("", "#") for line in code) <= 250
    assert [line for line in code if len(line) > 80] == []


def lists_of_one(markdown: str) -> list[str]:
    """What follows a number or dash that a line of prose happens to begin with."""
    prose = re.sub(r"(?s)\$\$.*?\$\$", "math", markdown)  # Jupyter takes it out first
    tokens, found = MarkdownIt().parse(prose), []
    for at, token in enumerate(tokens):
        if token.type.endswith("_list_open"):
            inside = (t for t in tokens[at + 1 :] if t.level == token.level + 1)
            items = takewhile(lambda t: t.type.startswith("list_item"), inside)
            if sum(t.nesting == 1 for t in items) == 1:
                found.append(tokens[at + 3].content)
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_no_prose_turns_into_a_list(path: Path) -> None:
    assert [x for cell in cells(path, "markdown") for x in lists_of_one(cell.source)] == []


def test_a_list_of_one_is_found() -> None:
    assert lists_of_one("every ratio is exactly\n1. (That is no bug.)") == [
        "(That is no bug.)"
    ]
    assert lists_of_one("1. a\n2. b\n\ntext\n\n- c\n- d") == []


UNWELCOME = {
    "an answer that nobody can give in CI": r"\binput\(",
    "an installation": r"^\s*[!%]|\bpip install\b|\bsubprocess\b",
    "a path of one machine": r"""["'](/|~/|[A-Z]:\\+)\w""",
    "a slider that floods the kernel": r"continuous_update\s*=\s*True",
}


def unwelcome(source: str) -> set[str]:
    """What a learner's notebook must not hold."""
    found = {why for why, what in UNWELCOME.items() if re.search(what, source, re.M)}
    for node in ast.walk(ast.parse(re.sub(r"(?m)^\s*[!%].*", "", source))):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            quiet = any(k.arg == "continuous_update" for k in node.keywords)
            if called in ("interact", "interactive") or (
                called.endswith("Slider") and not quiet
            ):
                found.add("a slider that floods the kernel")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_runs_anywhere_and_does_not_flood(path: Path) -> None:
    for cell in cells(path, "code"):
        assert unwelcome(cell.source) == set(), cell.source


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_no_slider_of_ours_floods_the_kernel(module: Path) -> None:
    assert "a slider that floods the kernel" not in unwelcome(module.read_text("utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "x = input('name?')",
        "%pip install torch",
        "!pip install torch",
        "load('/home/me/x.npy')",
        "load('~/x.npy')",
        "load('C:\\\\x.npy')",
        "FloatSlider(0.5)",
        "w.IntSlider(3, description='d', continuous_update=True)",
        "interact(f, x=3)",
    ],
)
def test_unwelcome_things_are_found(source: str) -> None:
    assert len(unwelcome(source)) == 1


@pytest.mark.parametrize(
    "source",
    ["w.IntSlider(3, continuous_update=False)", "a / b", "load('data/x.npy')", "'/'"],
)
def test_harmless_things_are_not(source: str) -> None:
    assert unwelcome(source) == set()
