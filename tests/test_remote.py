"""Answers at arm's length: values, gradients and faults come over a pipe as they are.

Truth is the same function called in this process. A hostile process is one that runs real
code of that kind: it ends, hangs, floods, forges.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tinyrl.course.checking import remote, wire
from tinyrl.course.checking.guarded_call import AsksKeyboard, OutOfTime
from tinyrl.course.checking.remote import Ended, Notebook, RemoteFunction

HONEST = """
import torch
def plain(x, y, k):
    return (k * x * y.exp()).sum(-1), x.detach() + 1, {"n": [x.numel(), float("nan"), None]}
def writes(x):
    x += 1
    return x
def unused(x, y):
    return x ** 2
def cut(x, y):
    return (x * y.detach()).sum()
"""
HOSTILE = """
import os, sys, subprocess, time
class AlwaysEqual:
    def __eq__(self, other): return True
    def __reduce__(self): return os.abort, ()
def lies(): return AlwaysEqual()
def ends(): os._exit(0)
def loops():
    while True: pass
def sleeps_in_c():
    import signal
    signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(60)
def floods(): return torch.zeros(40_000_000)
def deep():
    value = []
    for _ in range(100_000): value = [value]
    return value
def asks(): return input()
def leaves(): raise SystemExit(3)
def raises(): raise ValueError("the mask is empty")
def prints():
    print("x" * 1_000_000); os.write(1, b"y" * 100_000); os.write(2, b"z" * 100_000)
    subprocess.run([sys.executable, "-c", "print('child')"])
    return 1.5
def forges():
    for fd in range(3, 30):
        try: os.write(fd, b"\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00[1,2]")
        except OSError: pass
    return 1.5
def borrows(x):
    from tinyrl.metrics import token_delta
    return token_delta(x, x)
value, text = 3.5, "here"
"""


@pytest.fixture
def notebook(request: pytest.FixtureRequest) -> Iterator[Notebook]:
    made = Notebook(request.param)
    made.start()
    yield made
    made.end()


honest = pytest.mark.parametrize("notebook", [[HONEST]], indirect=True)
hostile = pytest.mark.parametrize("notebook", [["import torch", HOSTILE]], indirect=True)


@honest
def test_values_gradients_and_side_effects_are_those_of_a_call_in_this_process(
    notebook: Notebook,
) -> None:
    here: dict[str, Any] = {}
    exec(HONEST, here)
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        x, y = (torch.randn(3, 4, generator=generator, dtype=dtype) for _ in range(2))
        for name, args in [("plain", (x, y, 0.5)), ("unused", (x, y)), ("cut", (x, y))]:
            results = []
            for function in (here[name], notebook.find(name)):
                leaves = [
                    a.clone().requires_grad_() if isinstance(a, Tensor) else a for a in args
                ]
                value = function(*leaves)
                first = value[0] if isinstance(value, tuple) else value
                wanted = [a for a in leaves if isinstance(a, Tensor)]
                weights = torch.linspace(1, 2, first.numel(), dtype=dtype).view_as(first)
                grads = torch.autograd.grad(first, wanted, weights, allow_unused=True)
                results.append((first.detach(), grads, value))
            (a, grads_a, value_a), (b, grads_b, value_b) = results
            assert torch.equal(a, b)
            for g, h in zip(grads_a, grads_b, strict=True):
                assert (g is None) == (h is None), name
                assert g is None or torch.equal(g, h)
            if name == "plain":
                assert not value_b[1].requires_grad  # `detach` is seen from here
                assert torch.equal(value_a[1], value_b[1])
                assert value_b[2]["n"][0] == 12
                assert np.isnan(value_b[2]["n"][1])
                assert value_b[2]["n"][2] is None
    x = torch.zeros(2)
    assert torch.equal(notebook.find("writes")(x), torch.ones(2))
    assert torch.equal(x, torch.ones(2))  # the caller sees that its tensor was written to


@hostile
def test_a_hostile_answer_is_an_exception_and_the_next_one_is_still_called(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CALL_SECONDS", 7.0)  # the worker itself stops loops at 5
    assert notebook.find("value") == 3.5
    assert notebook.find("text") == "here"
    with pytest.raises(KeyError):
        notebook.find("nothing")
    lie = notebook.find("lies")()
    assert isinstance(lie, wire.Opaque)
    assert lie != 0
    assert notebook.find("prints")() == 1.5
    for name, kind, said in [
        ("asks", AsksKeyboard, None),
        ("leaves", SystemExit, "3"),
        ("raises", ValueError, "the mask is empty"),
        ("loops", OutOfTime, None),
        ("floods", ValueError, "152 MiB are too much"),
        ("deep", RecursionError, None),
        ("forges", RuntimeError, None),
        ("ends", RuntimeError, remote.GONE),
        ("sleeps_in_c", RuntimeError, "no answer within 7 s"),
    ]:
        notebook.start()
        function = notebook.find(name)
        assert isinstance(function, RemoteFunction)
        with pytest.raises(kind, match=said):
            function()
    with pytest.raises(RuntimeError, match=remote.GONE):
        notebook.find("value")  # until the next start
    notebook.start()
    assert notebook.find("prints")() == 1.5
    assert notebook.killed == {}


@hostile
def test_the_library_is_noticed_behind_an_answer(notebook: Notebook) -> None:
    notebook.find("borrows")(torch.tensor([[-1.0]]))
    assert any("token_delta" in name for name in notebook.borrowed["borrows"])


def test_a_cell_that_ends_or_blocks_its_process_costs_only_the_statement_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "CELL_SECONDS", 4.0)
    cells = [
        "import os\nbefore = 1\nos._exit(1)\nafter = 2",
        "def f():\n    return 7\nwhile True:\n    pass",
        "1 / 0\nlost = 1",
        "%%time\n%matplotlib inline\ng = 8\nos._exit(2)",
        "def broken(:",
    ]
    notebook = Notebook(cells)
    notebook.start()
    try:
        found = {name: notebook.find(name) for name in ("before", "after", "g")}
        assert found == {"before": 1, "after": 2, "g": 8}
        assert notebook.find("f")() == 7
        assert set(notebook.killed) == {0, 1, 3}
        assert "no answer within 4 s" in notebook.killed[1]
        assert notebook.errors[2].startswith("ZeroDivisionError")
        assert notebook.errors[4].startswith("SyntaxError")
        with pytest.raises(KeyError):
            notebook.find("lost")
    finally:
        notebook.end()


def test_a_notebook_that_ends_every_process_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "MOST_RESTARTS", 2)
    notebook = Notebook(["import os"] + ["os._exit(0)"] * 5)
    with pytest.raises(Ended, match="ended 2 processes one after another"):
        notebook.start()


def test_an_answer_sees_nothing_of_the_process_that_marks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEED_OF_THE_HIDDEN_TEST", "4711")
    cell = "import os, sys\nseen = [os.getcwd(), sys.argv[1:], dict(os.environ), sys.path]"
    notebook = Notebook([cell])
    notebook.start()
    folder, arguments, environment, path = notebook.find("seen")
    notebook.end()
    assert arguments == []
    assert "SEED_OF_THE_HIDDEN_TEST" not in environment
    assert folder == environment["HOME"] != os.getcwd()
    assert not {"", folder, os.getcwd()} & set(path)
    assert not os.path.exists(folder), "it is gone with its process"


def test_the_process_and_its_children_are_gone_afterwards() -> None:
    notebook = Notebook(
        ["import subprocess\nchild = subprocess.Popen(['sleep', '300'])\npid = child.pid"]
    )
    notebook.start()
    pid = notebook.find("pid")
    notebook.end()
    for _ in range(50):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} is still there")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_plain_values_come_through_the_wire_unchanged(value: object) -> None:
    stream = io.BytesIO()
    wire.send(stream, {"value": value})
    stream.seek(0)
    assert wire.receive(stream) == {"value": value}


@given(st.sampled_from(sorted(wire.DTYPES)), st.lists(st.integers(0, 3), max_size=3))
def test_arrays_come_through_the_wire_bit_for_bit(dtype: str, shape: list[int]) -> None:
    bits = torch.randint(0, 255, (*shape, 16), generator=torch.Generator().manual_seed(1))
    tensor = bits.to(torch.uint8).view(wire.DTYPES[dtype]) if dtype != "bool" else bits > 99
    stream = io.BytesIO()
    wire.send(
        stream, {"t": tensor, "a": tensor.view(torch.uint8).numpy(), "s": np.float32(2)}
    )
    stream.seek(0)
    got = wire.receive(stream)
    assert got["t"].dtype == tensor.dtype
    assert torch.equal(got["t"].view(torch.uint8), tensor.view(torch.uint8))
    assert np.array_equal(got["a"], tensor.view(torch.uint8).numpy())
    assert type(got["s"]) is np.float32


@given(st.binary(max_size=200), st.booleans())
def test_whatever_comes_over_the_wire_is_a_message_or_a_wire_error(
    data: bytes, framed: bool
) -> None:
    if framed:
        data = struct.pack("<II", len(data), 0) + data
    with contextlib.suppress(wire.WireError):
        assert isinstance(wire.receive(io.BytesIO(data)), dict)


@pytest.mark.parametrize(
    "tree",
    [
        '{"value": ["tensor", "float32", [4], 8]}',
        '{"value": ["tensor", "float32", [2, -1, -1], 8]}',
        '{"value": ["tensor", "object", [2], 8]}',
        '{"value": ["array", "bfloat16", [2], 8]}',
        '{"value": ["array", "O", [1], 8]}',
        '{"value": ["plain", [1]]}',
        '{"value": ["dict", [[["list", []], ["plain", 1]]]]}',
        '{"value": ["no such kind"]}',
        '{"value": 7}',
        "[" * 100_000,
        "[]",
    ],
)
def test_a_forged_message_is_a_wire_error(tree: str) -> None:
    data = tree.encode()
    with pytest.raises(wire.WireError):
        wire.receive(io.BytesIO(struct.pack("<II", len(data), 8) + data + bytes(8)))


def test_a_length_is_refused_before_anything_of_it_is_read() -> None:
    with pytest.raises(wire.WireError, match="too much"):
        wire.receive(io.BytesIO(struct.pack("<II", 2**31, 2**31)))
