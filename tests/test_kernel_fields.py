"""A kernel that does not exist, or a field that holds something else, is named."""

from __future__ import annotations

import re

import pytest
import torch

from tinyrl.kernels import Kernels, log_softmax


def test_an_unknown_logsumexp_is_named():
    with pytest.raises(ValueError, match="logsumexp must be one of fused, naive, chunked"):
        log_softmax(torch.zeros(2, 3), "naiv")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("prefill", 1.5, "prefill must be a whole number, not 1.5"),
        ("prefill", "3", "prefill must be a whole number, not '3'"),
        ("prefill", True, "prefill must be a whole number, not True"),
        ("norm_eps", "a", "norm_eps must be a number, not 'a'"),
        ("tensor_parallel", 2.0, "tensor_parallel must be one of"),
        ("tensor_parallel", True, "tensor_parallel must be one of"),
        ("attention", ["sdpa"], "attention must be one of"),
    ],
)
def test_a_field_of_another_type_is_named(field, value, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Kernels(**{field: value})
