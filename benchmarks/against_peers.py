"""Against verl's rollout correction and a step of TRL's GRPOTrainer, in their environments.

`make peers` sets these up; without them there is nothing to compare with.
"""

from __future__ import annotations

import multiprocessing
import statistics

import torch
from peers.client import Peer, interpreter
from peers.measure import measured
from rich.console import Console
from rich.table import Table
from torch import Tensor

from tinyrl.checkpoints import HERE, load
from tinyrl.correction import Correction
from tinyrl.monitoring import averages
from tinyrl.presets import PRESETS
from tinyrl.tally import tally
from tinyrl.tasks import CumSum
from tinyrl.trainer import rl

B, T, REPEATS = 512, 8192, 7
ROUNDS, STEPS, WARM = 3, 13, 3
WAYS = {
    "token weights": "decoupled_token_is",
    "sequence weights": "decoupled_seq_is",
    "token weights, rejection": "decoupled_geo_rs_token_tis",
}
"""verl's recipes, which are presets of ours."""
console = Console()


def there(name: str) -> bool:
    """Whether the peer was set up; says so if not."""
    found = interpreter(name).exists()
    if not found:
        console.print(f"No environment for {name}: `make peers` makes it.")
    return found


def arrays() -> dict[str, Tensor]:
    """Two logprobs `[512, 8192]` in float32 about 0.02 apart, and a ragged mask."""
    g = torch.Generator().manual_seed(0)
    train = -0.05 - 2 * torch.rand(B, T, generator=g)
    roll = (train + 0.02 * torch.randn(B, T, generator=g)).clamp(max=0.0)
    mask = torch.arange(T) < torch.randint(T // 8, T + 1, (B, 1), generator=g)
    return {"logp_train": train, "logp_rollout": roll, "mask": mask}


def own_cost(recipe: str, repeats: int) -> list[dict[str, float]]:
    """Correction and all numbers but quantiles, which verl has none of."""
    torch.set_num_threads(1)
    given, correction = arrays(), PRESETS[f"verl/{recipe}"].correction

    def call(how: Correction = correction) -> object:
        weight, kept = how.apply(given["logp_train"], given["logp_rollout"], given["mask"])
        both = given["logp_rollout"], given["logp_train"], given["mask"]
        return weight, averages(tally(*both, kept=kept, correction=how))

    return [measured(call) for _ in range(repeats)]


def corrections() -> None:
    """Weights, masks and metrics of a large batch; limits: 3 times as fast, 2 inputs."""
    if not there("verl"):
        return
    given = arrays()
    size = sum(x.numel() * x.element_size() for x in given.values()) / 2**20
    table = Table(title=f"correction and metrics of [{B}, {T}], one thread, CPU seconds")
    columns = ("verl", "tinyrl", "verl / tinyrl", "verl: extra", "tinyrl: extra")
    for name in ("recipe", *columns):
        table.add_column(name, justify="left" if name == "recipe" else "right")
    theirs = {**given, "mask": given["mask"].long()}  # as its trainer has it
    for title, recipe in WAYS.items():
        spawn = multiprocessing.get_context("spawn")
        with Peer("verl") as verl, spawn.Pool(1) as pool:
            fields = verl.ask("recipes", {})[recipe]
            how = {k: v for k, v in fields.items() if k.startswith("rollout_")}
            costs: list[tuple[dict[str, float], dict[str, float]]] = [
                (verl.ask("cost", theirs, **how), pool.apply(own_cost, (recipe, 1))[0])
                for _ in range(REPEATS)
            ]
        (first, own_first), *later = costs
        times = [[pair[i]["seconds"] for pair in later] for i in (0, 1)]
        middle = [statistics.median(t) for t in times]
        table.add_row(
            title,
            *(
                f"{m:.3f} ({min(t):.3f}, {max(t):.3f})"
                for m, t in zip(middle, times, strict=True)
            ),
            f"{middle[0] / middle[1]:.1f}",
            *(f"{c['extra'] / size:.1f} inputs" for c in (first, own_first)),
        )
    console.print(
        table, f"Inputs: {size:.0f} MiB. Median (fastest, slowest) of {len(later)}."
    )


def steps() -> None:
    """One RL step of 96 sequences: weights, prompts, group size, updates, loss the same."""
    if not there("trl"):
        return
    task, generator = CumSum(), torch.Generator().manual_seed(0)
    found: dict[str, list[dict[str, float]]] = {"TRL": [], "tinyrl": []}
    with Peer("trl", "run_trl_step") as trl:
        for _ in range(ROUNDS):  # in turn, each from the same weights
            prompts = torch.cat([task.prompts(12, generator) for _ in range(STEPS)])
            theirs = trl.ask(
                "train",
                {"prompts": prompts, "answers": task.answer(prompts)},
                checkpoint=str(HERE / "sft"),
                steps=STEPS,
                updates=2,
                group_size=8,
            )
            own = rl(load("sft"), task, generator=generator, steps=STEPS)
            laps = [
                {**s.seconds, "total": sum(s.seconds.values()), "reward": s.reward}
                for s in own
            ]
            found["TRL"] += theirs["steps"][WARM:]
            found["tinyrl"] += laps[WARM:]
    split = ("generate", "score", "backward", "the rest", "total")
    table = Table(title=f"one RL step, 96 sequences, ms (median of {len(found['TRL'])})")
    for name in ("", *split, "mean reward"):
        table.add_column(name, justify="right" if name else "left")
    medians = {}
    for name, steps_ in found.items():
        for lap in steps_:
            lap["the rest"] = lap["total"] - sum(lap[part] for part in split[:3])
        medians[name] = {p: statistics.median(s[p] for s in steps_) for p in split}
        times = (f"{1e3 * medians[name][p]:.1f}" for p in split)
        reward = statistics.mean(s["reward"] for s in steps_)
        table.add_row(name, *times, f"{reward:.2f}")
    ratio = {p: medians["TRL"][p] / medians["tinyrl"][p] for p in split}
    table.add_row("TRL / tinyrl", *(f"{ratio[p]:.1f}" for p in split), "")
    size = sum(p.numel() for p in load("sft").parameters())
    console.print(
        table,
        f"{size:,} parameters: most of this is Python and calls into torch, on both sides. "
        "It says nothing of a model whose matrix products take longer.",
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    corrections()
    steps()
