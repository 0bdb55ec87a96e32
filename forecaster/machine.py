"""The machine: its processor or GPU, its cores, and the memory that a call takes."""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

Result = TypeVar("Result")


def hardware(device: str = "cpu", threads: int | None = None) -> str:
    """Processor and threads, or the GPU, with the version of torch."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = re.findall(r"^model name\s*: (.*)", cpuinfo.read_text(), re.MULTILINE)
        name = names[0].strip() if names else name
    threads = threads or torch.get_num_threads()
    return f"{name}, {threads} threads, torch {torch.__version__}"


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def memory_rise(call: Callable[[], Result], device: str) -> tuple[Result, int | None]:
    """What `call` returns, and by how many bytes memory rises at most above its state before.

    On a GPU the memory of torch's allocator, else the resident memory of this process; None where
    that cannot be measured, which is on anything but Linux.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return call(), torch.cuda.max_memory_allocated() - before
    if sys.platform != "linux":
        return call(), None
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # gives back what earlier calls left behind
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = _resident("VmRSS")
    return call(), _resident("VmHWM") - before


def _resident(field: str) -> int:
    """Bytes of resident memory now (VmRSS) or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
