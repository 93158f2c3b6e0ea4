"""JupyterLab as `make lab` starts it: on the course, quiet, without pop-ups, offline.

Found through JUPYTER_CONFIG_PATH; nothing in the user's own Jupyter folders is changed.
What the page leaves out (announcements, nbgrader's authoring side bar: labs are written
as text here) is named in labconfig/page_config.json.
"""

import os
from pathlib import Path

root = Path(__file__).resolve().parent.parent
c = get_config()  # noqa: F821  (defined by Jupyter, which runs this file)

c.ServerApp.root_dir = str(root)
c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.ServerApp.allow_root = getattr(os, "geteuid", lambda: 1)() == 0

# No request leaves the machine.
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.LabApp.extension_manager = "readonly"

# A notebook's source, beside it, is for its authors.
c.ContentsManager.hide_globs = [
    *("__pycache__", "*.pyc", "*.pyo", ".DS_Store", "*~", "*.so", "*.dylib"),
    *("[0-9][0-9]_*.py", "atlas.py"),
]

# Tabs of another project, or of a deleted notebook, must not open here.
c.LabApp.workspaces_dir = str(root / ".jupyter" / "workspaces")

# The terminal shows the address, warnings and errors, and nothing has to warn.
c.Application.log_level = "WARN"
c.KernelManager.transport_encryption = "auto"

# No pings: server and page are one machine, or one tunnel. With them, tornado warns of
# Jupyter's own timeout, and a timeout that it accepts ends every connection after 30 s.
c.ServerApp.tornado_settings = {"ws_ping_interval": 0}
