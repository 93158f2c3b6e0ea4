"""A trainer's state as named tensors, and back: all that its next step depends on.

A step taken after `restore` is equal to the last bit, on the same machine, to the one that
would have been taken.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .trainer import Trainer, weights_of


def snapshot(trainer: Trainer) -> dict[str, Tensor]:
    """Weights (also those that the rollout may still use), optimizer, critic, generator.

    `weights.0.<name>` are the newest, `weights.1.<name>` those of a step before. Copies:
    training on does not change them.
    """
    found = {"done": torch.tensor(trainer.done), "generator": trainer.generator.get_state()}
    for age, weights in enumerate(reversed(trainer.versions)):
        found |= {f"weights.{age}.{name}": w.clone() for name, w in weights.items()}
    if trainer.critic:
        found |= {f"critic.{name}": w for name, w in weights_of(trainer.head).items()}
    for index, moments in trainer.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{index}.{name}": x.clone() for name, x in moments.items()}
    return found


def restore(trainer: Trainer, state: Mapping[str, Tensor]) -> None:
    """Give a new trainer, made with the same arguments, a state that `snapshot` took.

    Raises `ValueError` where a tensor is missing or has another shape.
    """
    try:
        done = int(state["done"])
        ages = 1 + max(int(name.split(".")[0]) for name in _under("weights", state))
        versions = [_under(f"weights.{age}", state) for age in reversed(range(ages))]
        trainer.model.load_state_dict(versions[-1])
        if trainer.critic:
            trainer.head.load_state_dict(_under("critic", state))
        moments: dict[int, dict[str, Tensor]] = {}
        for path, x in _under("optimizer", state).items():
            index, name = path.split(".")
            moments.setdefault(int(index), {})[name] = x.clone()
        groups = trainer.optimizer.state_dict()["param_groups"]
        trainer.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        trainer.generator.set_state(state["generator"])
    except (KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"this is no state of such a run: {error}") from None
    trainer.done = done
    trainer.versions.clear()
    trainer.versions.extend({n: w.clone() for n, w in v.items()} for v in versions)


def newest(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The newest weights in a state, by the names that the model gives them."""
    return _under("weights.0", state)


def _under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "."
    return {n.removeprefix(start): x for n, x in state.items() if n.startswith(start)}
