"""nbgrader's settings for this course; run `nbgrader` from the root of the clone.

Labs are written in `solutions/`, released to `labs/`. What students hand in, and all that
grading makes of it, lives under `classroom/`, which git ignores. docs/classroom.md is the
guide.
"""

import os
import sys
from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearMarkScheme,
    ClearOutput,
    DeduplicateIds,
    GetGrades,
    OverwriteCells,
    OverwriteKernelspec,
)

from tinyrl.course.classroom.preprocessors import HideSecrets, RepairSubmission

c = get_config()  # noqa: F821  (traitlets puts it there)

root = Path(__file__).resolve().parent
# nbgrader starts `alembic` by name: it has to be found without an activated environment.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# sqlite makes the gradebook's file, not its folder.
(root / "classroom").mkdir(exist_ok=True)

c.CourseDirectory.course_id = "tinyrl"
c.CourseDirectory.root = str(root)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "labs"
c.CourseDirectory.submitted_directory = "classroom/submitted"
c.CourseDirectory.autograded_directory = "classroom/autograded"
c.CourseDirectory.feedback_directory = "classroom/feedback"
c.CourseDirectory.db_url = f"sqlite:///{root / 'classroom' / 'gradebook.db'}"
c.ExportPlugin.to = str(root / "classroom" / "grades.csv")
# Nothing but notebooks is copied: a text notebook beside a source holds every solution,
# and a student's `torch.py` would be imported in place of torch.
c.CourseDirectory.ignore = [
    *(".ipynb_checkpoints", "__pycache__", "feedback", "*.pyc"),
    *("*.py", "*.md", "*.yml", "*.yaml", "*.toml", "*.so"),
]

# Without the repair, a copied cell in one notebook ends the autograding of the class.
c.Autograde.sanitize_preprocessors = [
    ClearOutput,
    RepairSubmission,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]
c.RepairSubmission.released = str(root / "labs")

# The first cell of a notebook waits for torch; no cell of a lab works for longer than 5 s.
c.ExecutePreprocessor.timeout = 30
c.ExecutePreprocessor.interrupt_on_timeout = True

# nbgrader gives zero for one byte on stderr. A check fails by raising and in no other way,
# so whatever a library writes there is noise.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"(?s)."

c.GenerateFeedback.preprocessors = [
    GetGrades,
    HideSecrets,
    ClearHiddenTests,
    ClearMarkScheme,
    CSSHTMLHeaderPreprocessor,
]
