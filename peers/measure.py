"""What a call costs: processor time, and memory beyond what was there before it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/proc/self/status")


def measured(call: Callable[[], object]) -> dict[str, float]:
    """`seconds` of the processor; `extra`, MiB of memory at the highest, above the start.

    What other programs take of the clock is not in it. Highest as the kernel counts, so
    results count too; NaN where there is no Linux. In a process that has run the call
    before, memory that it left is used again: the first figure of a fresh one is whole.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the highest is now what there is
        before = _mib("VmRSS")
    except OSError:
        before = math.nan
    begun = time.process_time()
    call()
    seconds = time.process_time() - begun
    extra = math.nan if math.isnan(before) else _mib("VmHWM") - before
    return {"seconds": seconds, "extra": extra}


def _mib(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", MEMORY.read_text())
    return int(found[1]) / 1024 if found else math.nan
