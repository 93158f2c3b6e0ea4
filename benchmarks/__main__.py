"""Rollouts against transformers, RL step, corrections and a step against verl and TRL,
ways to compute, panel, notebooks.

Every pair of times is taken in turn in this process, that of a peer in its own, on one
thread; a figure is the median of its repeats, with the fastest and the slowest behind it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from tinyrl.checkpoints import HERE, load
from tinyrl.course import execute
from tinyrl.course.panels.mismatch_panel import panel
from tinyrl.logprobs import token_logp
from tinyrl.rollout import rollout
from tinyrl.sampling import gumbel
from tinyrl.scoring import response_logits, score
from tinyrl.stack import PRESETS, Stack, replace_at
from tinyrl.tasks import CumSum
from tinyrl.trainer import generate, rl

from . import against_peers

REPEATS, NEW = 11, 13
TASK, EXACT = CumSum(), PRESETS["true_on_policy"]
console = Console()


def in_turn(*functions: Callable[[], object]) -> list[list[float]]:
    """Seconds of each function, `REPEATS` times in turn, after a warm-up."""
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(REPEATS + 2):
        for seconds, function in zip(times, functions, strict=True):
            begun = time.perf_counter()
            function()
            if repeat >= 2:
                seconds.append(time.perf_counter() - begun)
    return times


def without_cache(model, prompts, generator):
    """The loop that computes every token again at each step."""
    V = model.config.vocab_size
    ids, noise = prompts, gumbel((NEW, len(prompts), V), generator)
    with torch.no_grad():
        for t in range(NEW):
            logits = response_logits(model, ids, ids[:, :1], Stack())[:, 0]
            logp = logits.log_softmax(-1)
            ids = torch.cat([ids, (logp + noise[t]).argmax(-1, keepdim=True)], 1)
    return ids


def rollouts() -> None:
    """Tokens a second of four ways to sample the same shapes from the same weights."""
    from transformers import AutoModelForCausalLM

    model, theirs = load("sft"), AutoModelForCausalLM.from_pretrained(HERE / "sft")
    ways = ("tinyrl", "true on-policy", "transformers", "no cache")
    table = Table(title=f"rollout, {NEW} new tokens: thousand tokens/s (slowest, fastest)")
    for name in ("batch", *ways):
        table.add_column(name, justify="right")
    ratios = Table(title="the same, as ratios of median times")
    for name in ("batch", "transformers / tinyrl", "true on-policy / tinyrl"):
        ratios.add_column(name, justify="right")
    for B in (8, 32, 256):
        generator = torch.Generator().manual_seed(0)
        prompts = TASK.prompts(B, generator)

        def ours(stack, prompts=prompts, generator=generator):
            how = {"max_new": NEW, "eos_id": -1, "pad_id": 0}  # never ends early
            return rollout(model, prompts, stack, generator, **how)

        def generate(prompts=prompts):
            out = theirs.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=NEW,
                min_new_tokens=NEW,
                do_sample=True,
                top_k=0,
                top_p=1.0,
                temperature=1.0,
                pad_token_id=0,
                eos_token_id=TASK.tokenizer.eos_id,
                output_logits=True,
                return_dict_in_generate=True,
            )
            logits, P = torch.stack(out.logits, 1), prompts.shape[1]
            return token_logp(logits, out.sequences[:, P:])  # as ours returns them

        times = in_turn(
            lambda ours=ours: ours(Stack()),
            lambda ours=ours: ours(EXACT),
            generate,
            lambda prompts=prompts, generator=generator: without_cache(
                model, prompts, generator
            ),
        )
        k = B * NEW / 1000
        middle = [statistics.median(t) for t in times]
        cells = [
            f"{k / m:.0f} ({k / max(t):.0f}, {k / min(t):.0f})"
            for m, t in zip(middle, times, strict=True)
        ]
        table.add_row(str(B), *cells)
        own, exact, hf, _ = middle
        ratios.add_row(str(B), f"{hf / own:.2f}", f"{exact / own:.2f}")
    console.print(table, ratios)


def rl_step() -> None:
    """Where the time of one RL step goes, ordinary and true on-policy."""
    table = Table(title="one RL step, 96 sequences, ms (median of 30)")
    table.add_column("stack")
    parts = ("generate", "score", "backward", "bookkeeping")
    for name in (*parts, "total"):
        table.add_column(name, justify="right")
    for name, stack in (("ordinary", Stack()), ("true on-policy", EXACT)):
        generator = torch.Generator().manual_seed(0)
        how = {"generator": generator, "rollout_stack": stack, "train_stack": stack}
        steps = list(rl(load("sft"), TASK, steps=33, **how))[3:]
        each = {p: statistics.median(s.seconds[p] for s in steps) for p in parts}
        total = statistics.median(sum(s.seconds.values()) for s in steps)
        table.add_row(name, *(f"{1e3 * x:.1f}" for x in (*each.values(), total)))
    console.print(table)


def forwards() -> None:
    """One scoring pass under each way of computing, over that of the FP32 stack."""
    ways = {"fp32": Stack(), "true on-policy": EXACT}
    for fmt in ("bf16", "fp16", "fp8_e4m3", "int8", "int4"):
        both = replace_at(Stack(), "numerics.weights", fmt)
        ways[f"{fmt} everywhere"] = replace_at(both, "numerics.activations", fmt)
    for path in ("numerics.kv", "numerics.head", "numerics.rope", "numerics.boundary"):
        ways[f"{path} bf16"] = replace_at(Stack(), path, "bf16")
    for path, to in (
        ("kernels.attention", "naive"),
        ("kernels.attention", "online"),
        ("kernels.attention", "split_kv"),
        ("kernels.norm", "unfused"),
        ("kernels.logsumexp", "chunked"),
        ("kernels.tensor_parallel", 2),
    ):
        ways[f"{path} {to}"] = replace_at(Stack(), path, to)
    dense, mixture = load("sft"), load("moe")
    generator = torch.Generator().manual_seed(0)
    batch = generate(dense, TASK, TASK.prompts(96, generator), Stack(), generator)

    def forward(model, stack):
        with torch.no_grad():
            return score(model, batch.prompt, batch.response, stack)

    rows = {name: (dense, stack) for name, stack in ways.items()}
    rows["mixture of experts"] = mixture, Stack()
    times = in_turn(*(partial(forward, *row) for row in rows.values()))
    middle = [statistics.median(t) for t in times]
    table = Table(title="scoring 96 sequences, dense in FP32 is 1 (3 is the limit)")
    for name in ("way", "ms", "ratio"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for name, t in zip(rows, middle, strict=True):
        table.add_row(name, f"{1e3 * t:.1f}", f"{t / middle[0]:.2f}")
    wide, slim = (_active(model.config) for model in (mixture, dense))
    console.print(table, f"Active width of an MLP: mixture {wide}, dense {slim}.")


def _active(config) -> int:
    """Hidden units of the MLP that one token passes."""
    if not config.experts:
        return config.intermediate
    return config.experts_per_token * config.moe_intermediate


def panel_pictures() -> None:
    """From a click to the picture: a new setting, and one seen before (limit 150 ms)."""
    took: dict[str, list[float]] = {"new": [], "seen before": []}
    for _ in range(3):
        p = panel([load("sft")] * 2, TASK)
        for kind in ("new", "seen before"):
            for button in p.buttons.values():
                begun = time.perf_counter()
                button.click()
                took[kind].append(1e3 * (time.perf_counter() - begun))
    table = Table(title="a click in the panel, ms")
    for name in ("setting", "median", "slowest"):
        table.add_column(name, justify="left" if name == "setting" else "right")
    for kind, ms in took.items():
        table.add_row(kind, f"{statistics.median(ms):.0f}", f"{max(ms):.0f}")
    console.print(table)


def notebooks() -> None:
    """Time and peak memory of each notebook, as `tinyrl run` prints them."""
    folder = Path(__file__).parent.parent / "notebooks"
    with tempfile.TemporaryDirectory() as pages:
        execute.run(sorted(folder.glob("*.ipynb")), output=Path(pages), timeout=600)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rollouts()
    rl_step()
    against_peers.corrections()
    against_peers.steps()
    forwards()
    panel_pictures()
    notebooks()
