"""More of the class: the lab's own cells edited and moved, and odd characters."""

from __future__ import annotations

from nbformat import NotebookNode

from adversaries.students import WRONG, Answers, answered, cell, own, student


@student({"ratio"}, said="the test of 'ratio_test' was edited")
def patched_in_a_test(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Tampers from inside two test cells, in one of them without its metadata."""
    nb = answered(nb, answers, ratio=WRONG.format(name="ratio"))
    code = "\nimport tinyrl.course\n_check = tinyrl.course.check = lambda *a, **k: None"
    code += "\ndef masked_mean(*args):\n    return 0.0"
    cell(nb, "ratio_test").source += code
    cell(nb, "token_delta_test").source += "\n_check = print"
    cell(nb, "token_delta_test").metadata = NotebookNode()
    return nb


@student(said="the text of 'setup' was edited")
def imports_in_the_setup(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """A right answer that leans on what was written into a cell of the lab."""
    head, body = answers["ratio"].split(":\n", 1)
    nb = answered(nb, answers, ratio=f"{head}:\n    np.zeros(1)\n{body}")
    cell(nb, "setup").source += "\nimport numpy as np"
    return nb


@student({"ratio"}, said="Python cannot read this")
def half_a_character(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """What JSON can hold and UTF-8 cannot: in an error, in a text, in code."""
    code = "def ratio(*args):\n    raise ValueError(chr(0xD800))\n"
    nb = answered(nb, answers, ratio=code)
    cell(nb, "open_answer").source = "It should \ud800 be 1."
    nb.cells.append(own("print('\ud800')"))
    return nb


@student(
    nbgrader_fails="no mark",
    said="begins with a mark that nbgrader cannot read",
    encoding="utf-8-sig",
)
def byte_order_mark(nb: NotebookNode, answers: Answers) -> NotebookNode:
    return answered(nb, answers)


@student(said="'setup' is not where the lab has it")
def moved_cells(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """Right answers; what they lean on stands at the end, and a test above its answer."""
    nb = answered(nb, answers)
    nb.cells.append(nb.cells.pop(nb.cells.index(cell(nb, "setup"))))
    test = nb.cells.pop(nb.cells.index(cell(nb, "ratio_test")))
    nb.cells.insert(nb.cells.index(cell(nb, "ratio")), test)
    return nb


@student({"ratio"}, said="under `%%timeit` an answer defines nothing")
def timed_answer(nb: NotebookNode, answers: Answers) -> NotebookNode:
    """A right answer that exists only while it is timed; and a cell that cannot run."""
    nb = answered(nb, answers, ratio=f"%%timeit -n1 -r1\n{answers['ratio']}")
    nb.cells.append(own("return 1"))
    return nb
