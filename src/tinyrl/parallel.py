"""Tensor parallelism with real processes: each rank holds some heads and part of the MLP.

`kernels.Ops.row_parallel` simulates this split in one process. Here the ranks are processes
that meet through `torch.distributed` (gloo) and add their partial sums with an all-reduce.
Sums of two are the same in either order; from three on the collective picks the order.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing, nn

from .formats import quantise
from .kernels import Kernels, Numerics, Ops
from .model import GPT

ROW_PARALLEL = ("o_proj", "down_proj")


def parallel_logits(
    model: GPT, ids: Tensor, kernels: Kernels, numerics: Numerics, *, timeout: float = 60.0
) -> Tensor:
    """Logits `[B, T, V]` of `ids [B, T]` by `kernels.tensor_parallel` processes.

    Raises `RuntimeError` with what a rank said if one fails, and `TimeoutError` after
    `timeout` seconds. No process is left either way. A script must call this below
    `if __name__ == "__main__":`; a notebook need not care.
    """
    ranks = kernels.tensor_parallel
    if ranks == 1:
        raise ValueError("tensor_parallel is 1: there is nothing to share out")
    stored = _stored(model, numerics)
    shards = [shard(stored, rank, ranks) for rank in range(ranks)]
    processes: list[SpawnProcess] = []
    ends: list[Connection] = []
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        meeting = str(Path(folder) / "meeting")
        try:
            for rank, part in enumerate(shards):
                how = (rank, meeting, timeout, torch.get_num_threads())
                job = Job(part, ids, kernels, numerics, *how)
                process, end = _start(job)
                processes.append(process)
                ends.append(end)
            return _answers(ends, timeout)[0]
        finally:
            for process in processes:
                process.kill()
                process.join()


@dataclass(frozen=True)
class Job:
    """What one rank is told."""

    shard: GPT
    ids: Tensor
    kernels: Kernels
    numerics: Numerics
    rank: int
    meeting: str
    """The file by which the ranks find each other: no port has to be agreed on."""
    timeout: float
    threads: int
    """How many the parent uses; other numbers may add in another order."""


def _stored(model: GPT, numerics: Numerics) -> GPT:
    """The model with its row-parallel weights rounded, as a checkpoint holds them.

    A scale of INT8 or INT4 belongs to a whole row, so this comes before the cut.
    """
    stored = deepcopy(model)
    for name, w in stored.named_parameters():
        if name.split(".")[-2] in ROW_PARALLEL:
            w.data = quantise(w.data, numerics.weights, overflow=numerics.overflow)
    return stored


def shard(model: GPT, rank: int, ranks: int) -> GPT:
    """The part of a dense model that one of `ranks` holds.

    Its query heads, the key heads that these look at (held twice where there are fewer than
    ranks) and its hidden units; embedding, norms and head are whole on every rank.
    """
    c = model.config
    if c.experts:
        raise ValueError("a mixture of experts is not split: the model must be dense")
    if c.heads % ranks or c.intermediate % ranks or (c.kv_heads % ranks and c.kv_heads > 1):
        raise ValueError(
            f"{ranks} ranks cannot share {c.heads} heads, {c.kv_heads} key heads and "
            f"{c.intermediate} hidden units evenly"
        )
    keys = max(c.kv_heads // ranks, 1)
    part = replace(
        c, heads=c.heads // ranks, kv_heads=keys, intermediate=c.intermediate // ranks
    )
    weights = {k: _mine(k, w, rank, ranks, c.kv_heads) for k, w in model.named_parameters()}
    mine = GPT(part, torch.Generator()).to(model.lm_head.weight.dtype)
    mine.load_state_dict(weights)
    return mine


def _mine(name: str, w: Tensor, rank: int, ranks: int, kv_heads: int) -> Tensor:
    """A rank's part: outputs of a column-parallel matrix, inputs of a row-parallel one."""
    layer = name.split(".")[-2]
    if layer in ("q_proj", "gate_proj", "up_proj"):
        return w.chunk(ranks, 0)[rank]
    if layer in ("k_proj", "v_proj") and kv_heads > 1:
        return w.chunk(ranks, 0)[rank]
    return w.chunk(ranks, 1)[rank] if layer in ROW_PARALLEL else w


class RankOps(Ops):
    """The operations of one rank, which holds a share of the weights already."""

    def row_parallel(self, x: Tensor, layer: nn.Linear) -> Tensor:
        """This rank's partial sum, and the others' added to it.

        The collective adds in FP32; for two ranks that is the simulation's rounding.
        """
        n = self.numerics
        sent = self._product(x, layer.weight, n.activations)  # rounded when it was stored
        total = self._round(sent, n.partial).contiguous()
        dist.all_reduce(total)
        return self._round(self._round(total, n.partial), self._result)


def _start(job: Job) -> tuple[SpawnProcess, Connection]:
    """A process at work on `job`, and the end of the pipe at which its answer arrives."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, job), daemon=True)
    try:
        process.start()
    except OSError as error:
        raise RuntimeError(f"no process to be had for rank {job.rank}: {error}") from error
    theirs.close()  # so that the pipe ends when the process does
    return process, mine


@torch.no_grad()
def _work(pipe: Any, job: Job) -> None:
    """What a rank does: meet the others, run the forward pass, send logits or the error."""
    try:
        torch.set_num_threads(job.threads)
        ranks = job.kernels.tensor_parallel
        store = dist.FileStore(job.meeting, ranks)  # type: ignore[attr-defined]
        limit = timedelta(seconds=job.timeout)
        dist.init_process_group(
            "gloo", store=store, rank=job.rank, world_size=ranks, timeout=limit
        )
        logits = job.shard(job.ids, RankOps(job.kernels, job.numerics))
        pipe.send(logits.numpy())
        dist.destroy_process_group()
    except Exception as error:
        pipe.send(f"rank {job.rank}: {type(error).__name__}: {error}")


def _answers(ends: list[Connection], timeout: float) -> list[Tensor]:
    """The logits of every rank; the first error that any of them reports is raised."""
    deadline = time.monotonic() + timeout
    answers: dict[int, Tensor] = {}
    while len(answers) < len(ends):
        waiting = [end for rank, end in enumerate(ends) if rank not in answers]
        ready = wait(waiting, max(0.0, deadline - time.monotonic()))
        if not ready:
            missing = [rank for rank in range(len(ends)) if rank not in answers]
            raise TimeoutError(f"no answer from ranks {missing} within {timeout:g} s")
        for end in ready:
            rank = ends.index(end)  # type: ignore[arg-type]
            try:
                answer: np.ndarray[Any, Any] | str = ends[rank].recv()
            except EOFError:
                raise RuntimeError(
                    f"rank {rank} ended without an answer; a script must call this below "
                    'if __name__ == "__main__":'
                ) from None
            if isinstance(answer, str):
                raise RuntimeError(answer)
            answers[rank] = torch.from_numpy(answer)
    return [answers[rank] for rank in range(len(ends))]
