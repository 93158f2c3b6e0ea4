"""The loop of a runner, inside a peer's environment: requests in, answers out.

A request is a line of JSON on standard input: `call`, `options`, and a `folder` that holds
`in.safetensors`. Its answer is a line of JSON too, after the mark `REPLY`, since a peer may
print what it likes; tensors go to `out.safetensors`. Nothing of tinyrl is imported here.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

REPLY = "reply "
Answer = dict[str, Any]


def serve(packages: list[str], calls: dict[str, Callable[..., Answer]]) -> None:
    """Say the versions of `packages`, then answer until standard input ends."""
    torch.set_num_threads(1)
    _say({"versions": {name: version(name) for name in packages}})
    for line in sys.stdin:
        request = json.loads(line)
        folder = Path(request["folder"])
        tensors = load_file(folder / "in.safetensors")
        try:
            answer = calls[request["call"]](tensors, **request["options"])
        except Exception:  # the asker is to see it, and may go on asking
            _say({"error": traceback.format_exc()})
            continue
        out = {k: v for k, v in answer.items() if isinstance(v, Tensor)}
        out = {k: v.detach().clone().contiguous() for k, v in out.items()}
        save_file(out, folder / "out.safetensors")
        _say({"answer": {k: v for k, v in answer.items() if k not in out}})


def with_gradient(loss: Tensor, logp: Tensor) -> Answer:
    """A loss and its gradient with respect to `logp`, float64 as it came."""
    (gradient,) = torch.autograd.grad(loss, logp)
    return {"loss": loss, "gradient": gradient}


def _say(reply: Answer) -> None:
    print(f"\n{REPLY}{json.dumps(reply)}", flush=True)
