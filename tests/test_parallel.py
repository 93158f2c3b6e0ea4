"""Two real processes against the simulated split and against one process."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
import time

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from tinyrl import parallel
from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.model import GPT, GPTConfig
from tinyrl.parallel import parallel_logits, shard

TWO = Kernels("naive", "fixed", tensor_parallel=2)
LOW = Numerics("int8", "bf16", "int8", partial="fp8_e4m3")


def some_ids(B: int = 16, T: int = 28) -> torch.Tensor:
    return torch.randint(0, 16, (B, T), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("numerics", [Numerics(), LOW], ids=["fp32", "low"])
def test_two_processes_and_the_simulated_split_agree_to_the_last_bit(numerics):
    """On the machine that runs this: a + b is b + a, all else is the same arithmetic."""
    model, ids = load("sft"), some_ids()
    begun = time.monotonic()
    logits = parallel_logits(model, ids, TWO, numerics)
    assert time.monotonic() - begun < 60
    with torch.no_grad():
        assert torch.equal(logits, model(ids, Ops(TWO, numerics)))
        whole = model(ids, Ops(Kernels("naive", "fixed"), numerics))
    assert not torch.equal(logits, whole)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "kv_heads", "ranks"), [(4, 2, 2), (4, 1, 4)])
def test_the_ranks_compute_the_function_of_the_whole(heads, kv_heads, ranks):
    """In float64, where order matters by 1e-16: a thousandfold growth would be 1e-13 of the
    logits, and an input that is left out or counted twice changes all digits."""
    config = GPTConfig(heads=heads, kv_heads=kv_heads, head_dim=8)
    model = GPT(config, torch.Generator().manual_seed(1)).double()
    ids, kernels = some_ids(4, 12), Kernels(tensor_parallel=ranks)
    logits = parallel_logits(model, ids, kernels, Numerics())
    with torch.no_grad():
        whole = model(ids, Ops(Kernels(), Numerics()))
    assert logits.dtype == torch.float64
    assert (logits - whole).abs().max() <= 1e-12 * whole.abs().max()


def test_a_shard_holds_its_part_and_no_more():
    config = GPTConfig(heads=4, kv_heads=2, head_dim=8)
    model = GPT(config, torch.Generator().manual_seed(1))
    one, two = (shard(model, rank, 2).state_dict() for rank in range(2))
    for name, w in model.state_dict().items():
        if torch.equal(one[name], w):
            assert torch.equal(two[name], w)
            assert not name.endswith("_proj.weight")
            continue
        dim = 1 if "o_proj" in name or "down_proj" in name else 0
        assert torch.equal(torch.cat([one[name], two[name]], dim), w)


def test_key_heads_that_are_too_few_are_held_twice():
    model = GPT(GPTConfig(), torch.Generator().manual_seed(1))
    for rank in range(2):
        mine = shard(model, rank, 2).layers[0].self_attn
        assert mine.config.kv_heads == mine.config.heads == 1
        assert torch.equal(mine.k_proj.weight, model.layers[0].self_attn.k_proj.weight)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPTConfig(heads=3), "2 ranks cannot share 3 heads, 1 key heads and 96 hidden"),
        (GPTConfig(heads=6, kv_heads=3), "2 ranks cannot share 6 heads, 3 key heads"),
        (GPTConfig(intermediate=95), "and 95 hidden units evenly"),
        (GPTConfig(experts=4, experts_per_token=2), "the model must be dense"),
    ],
)
def test_what_cannot_be_split_is_refused_before_anything_starts(config, message):
    model = GPT(config, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=message):
        parallel_logits(model, some_ids(), TWO, Numerics())


def test_one_rank_is_no_split():
    with pytest.raises(ValueError, match="tensor_parallel is 1"):
        parallel_logits(load("sft"), some_ids(), Kernels(), Numerics())


def test_what_a_rank_says_is_said_and_nothing_is_left():
    with pytest.raises(
        RuntimeError, match=r"rank [01]: ValueError: ids row 0 has an id out"
    ):
        parallel_logits(load("sft"), torch.full((1, 3), 99), TWO, Numerics())
    assert multiprocessing.active_children() == []


def test_time_runs_out_and_nothing_is_left():
    with pytest.raises(TimeoutError, match=r"no answer from ranks \[0, 1\] within 0.01 s"):
        parallel_logits(load("sft"), some_ids(), TWO, Numerics(), timeout=0.01)
    assert multiprocessing.active_children() == []


def test_a_machine_without_room_for_a_process_says_so(monkeypatch):
    class Full:
        Pipe = staticmethod(multiprocessing.Pipe)

        class Process:
            def __init__(self, **_):
                pass

            def start(self):
                raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(parallel.multiprocessing, "get_context", lambda _: Full)
    with pytest.raises(
        RuntimeError, match="no process to be had for rank 0: Resource temp"
    ):
        parallel_logits(load("sft"), some_ids(), TWO, Numerics())


SCRIPT = """
import torch
from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics
from tinyrl.parallel import parallel_logits
ids, kernels = torch.zeros(1, 4).long(), Kernels(tensor_parallel=2)
parallel_logits(load("sft"), ids, kernels, Numerics())
"""


@pytest.mark.slow
def test_a_rank_that_dies_is_told_from_one_that_is_slow(tmp_path):
    """A script without the guard: each rank runs it again, and is stopped by Python."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.match(r"RuntimeError: rank [01] ended without an answer; a script must", last)


KERNEL = """
import json, multiprocessing, torch
from tinyrl.checkpoints import load
from tinyrl.kernels import Kernels, Numerics, Ops
from tinyrl.parallel import parallel_logits
model, ids = load("sft"), torch.arange(16)[None] % 8
how = Kernels("naive", "fixed", tensor_parallel=2), Numerics()
with torch.no_grad():
    same = torch.equal(parallel_logits(model, ids, *how), model(ids, Ops(*how)))
print(json.dumps([same, len(multiprocessing.active_children())]))
"""


@pytest.mark.slow
def test_it_works_from_a_notebook():
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(KERNEL)])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    (output,) = book.cells[0].outputs
    assert output.name == "stdout"
    assert json.loads(output.text) == [True, 0]
