"""How much memory a call takes, as the Linux kernel counts it."""

import ctypes
from collections.abc import Callable
from pathlib import Path


def peak_mib(call: Callable[[], None]) -> float:
    """How far the resident memory rises above its current size while `call` runs."""
    ctypes.CDLL(None).malloc_trim(
        0
    )  # memory left over from earlier calls would hide what this one takes
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _status("VmRSS")
    call()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
