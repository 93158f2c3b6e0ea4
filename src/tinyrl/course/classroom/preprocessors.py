"""The two steps that the course adds to nbgrader's own: before marking, and in feedback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor  # type: ignore[import-untyped]
from traitlets import Unicode

from tinyrl.course.classroom.labs import Lab
from tinyrl.course.classroom.repair import repaired
from tinyrl.course.notebooks import read

SHORTEST_SECRET = 10  # characters: a lone bracket of a hidden test is no secret


class RepairSubmission(NbGraderPreprocessor):  # type: ignore[misc]
    """Bring a submission back to what can be marked, before nbgrader looks at it.

    By itself nbgrader gives nothing for lost metadata or a deleted test, and one copied
    cell ends the autograding of the whole class with a message about old metadata.
    """

    released = Unicode(help="the folder of the labs as they were released").tag(config=True)

    def preprocess(
        self, nb: NotebookNode, resources: dict[str, Any]
    ) -> tuple[NotebookNode, dict[str, Any]]:
        about = resources["nbgrader"]
        path = Path(self.released, about["assignment"], f"{about['notebook']}.ipynb")
        fixed = repaired(nb, Lab(path.stem, read(path)))
        # nbgrader cannot write half a character, and would give no mark for the notebook
        text = nbformat.writes(fixed).encode("utf-8", "replace")  # type: ignore[no-untyped-call]
        return nbformat.reads(text.decode("utf-8"), as_version=4), resources  # type: ignore[no-untyped-call]


class HideSecrets(NbGraderPreprocessor):  # type: ignore[misc]
    """Keep hidden tests out of the outputs; `ClearHiddenTests` keeps them out of the cells.

    A traceback quotes the source of its cell, hidden lines included, and a student's own
    cell can print the history of the kernel. So errors of test cells shrink to one line,
    and no output keeps a hidden line. This must run before `ClearHiddenTests`.
    """

    def preprocess(
        self, nb: NotebookNode, resources: dict[str, Any]
    ) -> tuple[NotebookNode, dict[str, Any]]:
        secrets, shown = set[str](), set[str]()
        for cell in nb.cells:
            visible, hidden = split_lines(cell.source)
            shown.update(visible)
            secrets.update(line for line in hidden if len(line) >= SHORTEST_SECRET)
        for cell in nb.cells:
            locked = cell.metadata.get("nbgrader", {}).get("locked", False)
            for output in cell.get("outputs", []):
                if locked and output.output_type == "error":
                    output.traceback = [f"{output.ename}: {output.evalue}"]
                _redact(output, secrets - shown)
        return nb, resources


def split_lines(source: str) -> tuple[list[str], list[str]]:
    """A cell's lines without indentation: those that stay, and those of hidden regions."""
    visible: list[str] = []
    hidden: list[str] = []
    inside = False
    for line in source.splitlines():
        if "BEGIN HIDDEN TESTS" in line or "BEGIN MARK SCHEME" in line:
            inside = True
        elif "END HIDDEN TESTS" in line or "END MARK SCHEME" in line:
            inside = False
        else:
            (hidden if inside else visible).append(line.strip())
    return visible, hidden


def _redact(node: Any, secrets: set[str]) -> None:
    """Replace every hidden line in every text of an output, in place."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, str):
            for secret in secrets:
                # A notebook's `In` shows a line as its repr, with quotes escaped.
                for form in (secret, repr(secret)[1:-1]):
                    value = value.replace(form, "(hidden)")
            node[key] = value
        elif isinstance(value, dict | list):
            _redact(value, secrets)
