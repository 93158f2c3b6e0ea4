"""A class of students: each one's notebook, and the marks that it deserves.

Every function takes lab 01 as released and the course's own answers (by the name of their
cell), and returns what that student hands in. `CLASS` has them by name.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tinyrl.course.exercises import find

LAB = "lab01_two_policies"
Answers = dict[str, str]
Make = Callable[[NotebookNode, Answers], NotebookNode]
WRONG = "def {name}(*args):\n    return 0.0\n"


@dataclass(frozen=True)
class Student:
    """One adversary. `nbgrader_fails` is what nbgrader alone is known to get wrong."""

    make: Make
    wrong: frozenset[str]  # answers that deserve nothing; ALL for every one
    nbgrader_fails: str = ""  # "no mark" (the whole notebook), "fooled", "unreadable", ""
    said: str = ""  # part of the line that the teacher reads
    file: str = f"{LAB}.ipynb"
    encoding: str = "utf-8"


CLASS: dict[str, Student] = {}
ALL = frozenset({"*"})
NONE: frozenset[str] = frozenset()


def student(
    wrong: frozenset[str] | set[str] = NONE, **fields: str
) -> Callable[[Make], None]:
    def add(make: Make) -> None:
        CLASS[make.__name__] = Student(make, frozenset(wrong), **fields)

    return add


def answered(nb: NotebookNode, answers: Answers, **changed: str) -> NotebookNode:
    """The lab with the answers in it, some of them `changed`."""
    nb = copy.deepcopy(nb)
    for name, code in {**answers, **changed}.items():
        cell(nb, name).source = code
    return nb


def cell(nb: NotebookNode, name: str) -> NotebookNode:
    return next(
        c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name
    )


def own(code: str) -> NotebookNode:
    return nbformat.v4.new_code_cell(code)


def wrong(answers: Answers) -> Answers:
    return {name: WRONG.format(name=name) for name in answers}


@student()
def good(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return answered(nb, answers)


@student(ALL)
def blank(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return nb


@student({"ratio", "token_delta", "longest_response"}, said="Python cannot read this")
def partial(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(
        nb, answers, token_delta="def token_delta(a, b, mask):\n    return b - a\n"
    )
    cell(nb, "ratio").source = "def ratio(logp_train, logp_rollout, mask:\n    return 1\n"
    cell(nb, "longest_response").source = "# later"
    return nb


@student({"token_delta", "clip_fraction"})
def hard_coded(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """The numbers of the example in the text, returned whatever the inputs are."""
    return answered(
        nb,
        answers,
        token_delta="def token_delta(logp_train, logp_rollout, mask):\n"
        "    return torch.tensor([[0.1, 0.0, -0.5], [0.25, -1.0, 0.0]])\n",
        clip_fraction="def clip_fraction(*args):\n    return torch.tensor(0.2)\n",
    )


@student(said="copy of 'ratio'")
def duplicate_cell(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, answers)
    at = nb.cells.index(cell(nb, "ratio"))
    twin = copy.deepcopy(nb.cells[at])
    twin.id = "twin"
    twin.source = "def ratio(*args):\n    raise NotImplementedError()\n"
    nb.cells.insert(at, twin)
    return nb


@student({"ratio"})
def endless_loop(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return answered(nb, answers, ratio="def ratio(*args):\n    while True:\n        pass\n")


@student(said="a cell stops its process")
def endless_cell(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, answers)
    cell(nb, "masked_mean").source += "\nwhile True:\n    pass\n"
    return nb


@student({"ratio"}, nbgrader_fails="no mark", said="calling it ends its process")
def os_exit(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return answered(nb, answers, ratio="import os\n\ndef ratio(*args):\n    os._exit(0)\n")


@student({"ratio", "masked_mean"})
def always_equal(nb: NotebookNode, answers: Answers) -> NotebookNode:
    code = """class Right(torch.Tensor):
    def __eq__(self, other): return True
    def __abs__(self): return self
    def __sub__(self, other): return self
    def __le__(self, other): return True
    def __bool__(self): return True
    def __float__(self): return 0.0
"""
    nb = answered(
        nb,
        answers,
        ratio="def ratio(*args):\n    return Right()\n",
        masked_mean="class Any:\n    __eq__ = __le__ = lambda *a: True\n"
        "def masked_mean(*args):\n    return Any()\n",
    )
    nb.cells.insert(nb.cells.index(cell(nb, "ratio")), own(code))
    return nb


@student(ALL)
def shadowed_builtins(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, wrong(answers))
    code = "abs = min = max = lambda *a, **k: 0\nall = any = isinstance = lambda *a: True\n"
    code += "import builtins\nbuiltins.all = builtins.any = lambda *a: True\n"
    code += "builtins.abs = lambda *a: 0.0\n"
    nb.cells.insert(nb.cells.index(cell(nb, "setup")) + 1, own(code))
    return nb


@student(ALL)
def redefined_check(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, wrong(answers))
    code = "def check(*a, **k): print('right')\n_check = check\n"
    nb.cells.insert(nb.cells.index(cell(nb, "setup")) + 1, own(code))
    return nb


@student(ALL, nbgrader_fails="fooled", said="right only there")
def patched_module(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, wrong(answers))
    code = "import tinyrl.course as c, tinyrl.course.checking.checks as checks\n"
    code += "c.check = checks.check = lambda *a, **k: None\n"
    nb.cells.insert(0, own(code))
    return nb


@student(ALL, nbgrader_fails="fooled", said="right only there")
def rewritten_input(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Every later cell is emptied on its way into Python."""
    nb = answered(nb, wrong(answers))
    code = "get_ipython().input_transformers_cleanup.append(lambda lines: [])\n"
    nb.cells.insert(nb.cells.index(cell(nb, "setup")) + 1, own(code))
    return nb


@student({"ratio"})
def system_exit(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return answered(nb, answers, ratio="def ratio(*args):\n    raise SystemExit(0)\n")


@student({"ratio"}, said="the test of 'ratio_test' was edited")
def edited_test(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, answers, ratio=WRONG.format(name="ratio"))
    cell(nb, "ratio_test").source = "print('all tests passed')"
    cell(nb, "ratio_hidden").source = "pass"
    return nb


@student(said="nbgrader's metadata are lost")
def stripped_metadata(nb: NotebookNode, answers: Answers) -> NotebookNode:
    nb = answered(nb, answers)
    for c in nb.cells:
        c.metadata = NotebookNode()
    return nb


@student(nbgrader_fails="no mark", said="has to be called", file=f"{LAB} (1).ipynb")
def renamed_file(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return answered(nb, answers)


@student({"ratio"}, said="`input()` waits for a keyboard")
def asks_input(nb: NotebookNode, answers: Answers) -> NotebookNode:
    code = "def ratio(*args):\n    return float(input('the answer? '))\n"
    return answered(nb, answers, ratio=code)


@student({"token_delta"}, said="reaches into tinyrl")
def calls_library(nb: NotebookNode, answers: Answers) -> NotebookNode:
    code = "def token_delta(a, b, mask):\n"
    code += "    from tinyrl.metrics import token_delta as theirs\n"
    code += "    return theirs(b, a, mask)\n"
    return answered(nb, answers, token_delta=code)


@student(said="'ratio_hidden' of the lab is gone")
def untidy(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Right answers that print, warn and log, with magics, in a notebook of accidents.

    One answer has become markdown, a test is deleted: no mark is lost.
    """
    loud = "    import warnings, sys, logging, os\n    warnings.warn('careful')\n"
    loud += "    print('debug'); print('oops', file=sys.stderr); logging.warning('hm')\n"
    loud += "    os.write(2, b'from C')\n"
    changed = {}
    for name, code in answers.items():
        head, doc, body = code.split('"""')
        changed[name] = f'%%time\n{head}"""{doc}"""\n{loud}{body.lstrip(chr(10))}'
    nb = answered(nb, answers, **changed)
    code = cell(nb, "ratio")
    turned = nbformat.v4.new_markdown_cell(code.source, metadata=code.metadata)
    nb.cells[nb.cells.index(code)] = turned
    nb.cells.remove(cell(nb, "ratio_hidden"))
    nb.cells.append(own("import sys\nprint('end', file=sys.stderr)"))
    murmur = "import os, threading, time\ndef murmur():\n    for _ in range(3000):\n"
    murmur += "        os.write(2, b'from a library thread '); time.sleep(0.01)\n"
    murmur += "threading.Thread(target=murmur, daemon=True).start()"
    nb.cells.insert(1, own(murmur))
    nb.cells.insert(1, own("%matplotlib inline\nimport warnings; warnings.warn('first')"))
    return nb


@student({"ratio"})
def prints_history(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Tries to carry the hidden tests away in the outputs."""
    nb = answered(nb, answers, ratio="def ratio(*args):\n    return In[-1]\n")
    nb.cells.append(own("for code in In: print(code)"))
    nb.cells.append(own("In"))
    nb.cells.append(own("raise ValueError(''.join(In))"))
    return nb


@student(ALL, nbgrader_fails="unreadable", said="no notebook")
def cut_short(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Right answers, of which the upload kept half a file."""
    return answered(nb, answers)


@student({"clip_fraction"}, nbgrader_fails="fooled", said="right only there: clip_fraction")
def memorised(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Has got hold of every seed, the hidden one too, and returns from a table."""
    exercise = find("clip_fraction")
    source = (Path(__file__).parents[2] / f"solutions/{LAB}.py").read_text("utf-8")
    seeds = re.findall(r"clip_fraction, seed=(\d+)", source)
    cases = [case for seed in (0, *map(int, seeds)) for case in exercise.inputs(seed)]
    table = {told(case.args): float(exercise.reference(*case.args)) for case in cases}
    code = f"TABLE = {table!r}\n{inspect.getsource(told)}\n"
    code += "def clip_fraction(*args):\n    return TABLE[told(args)]\n"
    return answered(nb, answers, clip_fraction=code)


def told(args):  # type: ignore[no-untyped-def]
    import hashlib

    text = str([a.tolist() if hasattr(a, "tolist") else a for a in args])
    return hashlib.sha256(text.encode()).hexdigest()
