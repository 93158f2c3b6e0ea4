"""The formats as other libraries have them."""

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from tinyrl.formats import FORMATS

NUMPY = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
SMALL = list(TORCH)  # the floating-point formats of 8 and 16 bits
INTEGERS = ["int8", "int4"]


def every_number(fmt: str) -> Tensor:
    """What all 2^8 or 2^16 patterns stand for, decoded by ml_dtypes or numpy; float32."""
    width = FORMATS[fmt].bits
    patterns = np.arange(2**width, dtype=np.uint8 if width == 8 else np.uint16)
    return torch.from_numpy(patterns.view(NUMPY[fmt]).astype(np.float32))
