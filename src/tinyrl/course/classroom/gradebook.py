"""A class on disk: nbgrader's folders and gradebook, by the course's own settings."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from tinyrl.course import notebooks
from tinyrl.course.authoring.build import CONFIG, settings
from tinyrl.course.classroom.labs import Lab
from tinyrl.course.notebooks import BadNotebook
from tinyrl.course.printing import encodable


class CannotRegrade(Exception):
    """What is missing before a class can be marked again."""


class Course:
    """A course on disk, and its gradebook, as nbgrader's settings describe them."""

    def __init__(self, root: Path, name: str) -> None:
        from nbgrader.coursedir import CourseDirectory  # type: ignore[import-untyped]

        if not (root / CONFIG).exists():
            raise CannotRegrade(f"no {CONFIG} here: run this at the root of a clone")
        self.root, self.name = root, name
        self.directory = CourseDirectory(config=settings(root / CONFIG))
        self.lab = Lab(name, self._notebook("release"))
        self.tests = self._notebook("source")

    def _path(self, step: str, student: str = ".") -> Path:
        folder = getattr(self.directory, f"{step}_directory")
        return Path(self.directory.format_path(folder, student, self.name))

    def _notebook(self, step: str) -> NotebookNode:
        try:
            return notebooks.read(self._path(step) / f"{self.name}.ipynb")
        except BadNotebook as error:
            advice = "build it first: make notebooks"
            raise CannotRegrade(f"{error} ({advice})") from error

    def submissions(self) -> dict[str, Path]:
        """The folder of each student who handed something in."""
        folders = self._path("submitted", "*")
        pattern = folders.relative_to(self.root)
        found = {path.parent.name: path for path in sorted(self.root.glob(str(pattern)))}
        if not found:
            raise CannotRegrade(f"nobody has handed in {self.name}: no {pattern}")
        for name in found:
            if encodable(name) != name:
                raise CannotRegrade(
                    f"no gradebook can hold the name of the folder {name!r}"
                )
        return found

    @contextlib.contextmanager
    def grades(self, student: str) -> Iterator[dict[str, Any]]:
        """nbgrader's records of a student's marks, by cell; changes to them are kept."""
        from nbgrader.api import Gradebook, MissingEntry  # type: ignore[import-untyped]

        with (
            warnings.catch_warnings(action="ignore"),  # SQLAlchemy's, of nbgrader's code
            Gradebook(self.directory.db_url, self.directory.course_id) as book,
        ):
            try:
                book.update_or_create_student(student)
                book.update_or_create_submission(self.name, student)
            except MissingEntry:
                advice = f"nbgrader generate_assignment {self.name} --force"
                raise CannotRegrade(f"not in the gradebook yet: {advice}") from None
            submitted = book.find_submission_notebook(self.name, self.name, student)
            yield {grade.name: grade for grade in submitted.grades}
            book.db.commit()
