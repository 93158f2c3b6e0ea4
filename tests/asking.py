"""What the tests of the checks share: a right answer, and a check that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tinyrl.course.checking.checks import CheckFailed, check

Answer = Callable[..., Any]


def token_delta(logp_train: Tensor, logp_rollout: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, logp_train - logp_rollout, 0.0)


def failure(name: str, answer: Any, **kwargs: Any) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        check(name, answer, **kwargs)
    return caught.value
