"""`tinyrl diagnose A.npy B.npy`: metrics, a reading of K3 and causes, on the terminal."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .bands import Band
from .verdict import Diagnosis, diagnose

MEANING = {
    "tokens": "real response tokens",
    "sequences": "responses",
    "mean": "of d = log p_train - log p_rollout, nats",
    "mean_abs": "of |d|",
    "p99_abs": "99th percentile of |d|",
    "max_abs": "largest |d|",
    "k1": "mean of -d: KL(rollout || train), noisy",
    "k2": "mean of d^2 / 2",
    "k3": "mean of exp(d) - 1 - d: KL(rollout || train)",
    "seq_mean": "of the sum of d over a response",
    "seq_mean_abs": "of its size",
    "seq_max_abs": "its largest size",
    "seq_per_token": "its size over the length",
    "ratio_min": "smallest exp(d)",
    "ratio_max": "largest exp(d)",
    "clip_fraction": "share of tokens with exp(d) outside 0.8 to 1.2",
    "ess": "effective sample size of token weights, 1 is full",
    "ess_seq": "the same of whole responses",
}


def run(rollout: Path, train: Path, mask: Path | None = None) -> int:
    """Diagnose two .npy files of logprobs `[B, T]`; prints, and returns the exit code.

    0 if there was something to read, whatever was found; 2 if not, with the reason on
    stderr. Files are data only: pickled objects are refused.
    """
    try:
        real = None if mask is None else load(mask)
        verdict = diagnose(load(rollout), load(train), real)
    except ValueError as error:
        names = {"logp_rollout": rollout, "logp_train": train, "mask": mask}
        message = " ".join(_with_files(str(error), names).split())
        print(f"tinyrl diagnose: {printable(message)}", file=sys.stderr)
        return 2
    show(verdict, rollout, train)
    return 0


def load(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """The array of one .npy file. `ValueError` says in a line why it cannot be read."""
    name = printable(path)
    try:
        with path.open("rb") as file:
            if file.read(6) != b"\x93NUMPY":
                raise ValueError(f"{name} is not a .npy file; write it with numpy.save")
            file.seek(0)
            return _array(name, file)
    except FileNotFoundError:
        raise ValueError(f"there is no file {name}") from None
    except IsADirectoryError:
        raise ValueError(f"{name} is a folder, not a .npy file") from None
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror or error}") from None


def printable(text: Any) -> str:
    """`text` with `\\n` or `\\x1b` for what would break a line or command a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def _array(name: str, file: BinaryIO) -> np.ndarray[Any, np.dtype[Any]]:
    """What numpy reads. It evaluates the header as Python, so that a damaged one may raise
    nearly anything: SyntaxError, TokenError, TypeError, OverflowError, RecursionError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header of Python 2 is read right
            array: np.ndarray[Any, np.dtype[Any]] = np.load(file, allow_pickle=False)
            return array
    except OSError:
        raise
    except (ValueError, EOFError, MemoryError) as error:
        why = str(error).partition("\n")[0] or "it is cut short"
        if "Object arrays" in why:
            why = "it holds pickled Python objects"
    except Exception:
        why = "its header is damaged; write it again with numpy.save"
    raise ValueError(f"{name} cannot be read: {printable(why)}")


def show(verdict: Diagnosis, rollout: Path, train: Path) -> None:
    """Print a verdict with rich."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    names = f"{printable(rollout.name)} (rollout) against {printable(train.name)} (trainer)"
    table = Table(
        title=escape(names),
        caption="Causes hold only if the rollout itself sampled these tokens.",
    )
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("", style="dim")
    for name, value in verdict.mismatch.table():
        table.add_row(name, value, MEANING.get(name, ""))
    console.print(table)
    console.print(f"\n[bold]Reading of K3[/]: {escape(_reading(verdict.band))}")
    for i, found in enumerate(verdict.findings, 1):
        console.print(f"\n[bold]{i}. {found.cause}[/]: {escape(found.what)}.")
        console.print(f"   explains {found.share} of the sum of |d|", highlight=False)
        console.print(f"   [dim]evidence[/] {escape(found.evidence)}")
        console.print(f"   [dim]remedy[/]   {escape(found.remedy)}")
    if not verdict.findings:
        console.print(
            "\nNone of: shift by one, exact zeros, first tokens only, constant offset, "
            "scale, clamp."
        )
    console.print(f"\n[bold]Left[/]: {escape(verdict.rest)}.")


def _reading(band: Band) -> str:
    return f"{band.reading}." + (f" [{band.source}]" if band.source else "")


def _with_files(message: str, names: dict[str, Path | None]) -> str:
    said = [
        f"{name} is {printable(path)}"
        for name, path in names.items()
        if path and name in message
    ]
    return message + (f" ({'; '.join(said)})" if said else "")
