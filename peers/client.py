"""Ask a peer's functions from tinyrl's own environment: a subprocess that stays open."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from .serve import REPLY

HERE = Path(__file__).parent
ROOT = HERE.parent


def interpreter(name: str) -> Path:
    """The peer's Python, where `make peers` puts it. It may not be there."""
    return ROOT / ".peers" / name / "bin/python"


class Peer:
    """A runner, by default `run_<name>.py`, in the peer's environment; a context manager.

    Raises `RuntimeError` with what the peer said when a call or the start of it fails.
    """

    def __init__(self, name: str, runner: str | None = None) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix=f"peer-{name}-")
        quiet = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TQDM_DISABLE": "1"}
        own = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self._said = (Path(self._folder.name) / "stderr").open("w+")
        self._process = subprocess.Popen(
            [interpreter(name), HERE / f"{runner or f'run_{name}'}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            cwd=self._folder.name,
            env={**own, **quiet},
        )
        self.versions: dict[str, str] = self._reply()["versions"]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, call: str, tensors: dict[str, Tensor], **options: Any) -> dict[str, Any]:
        """What the peer's `call` answers: tensors and plain values by name."""
        folder = Path(self._folder.name)
        arrays = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
        save_file(arrays, folder / "in.safetensors")
        request = {"call": call, "options": options, "folder": str(folder)}
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._reply()["answer"]
        return {**answer, **load_file(folder / "out.safetensors")}

    def close(self) -> None:
        """End the runner and remove what was exchanged."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._said.close()
        self._folder.cleanup()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(REPLY):
                reply: dict[str, Any] = json.loads(line.removeprefix(REPLY))
                if "error" in reply:
                    raise RuntimeError(f"{self.name}: {reply['error']}")
                return reply
        self._said.seek(0)
        raise RuntimeError(f"{self.name}'s runner ended:\n{self._said.read()[-4000:]}")
