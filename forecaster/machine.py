"""The machine: its device, processor and cores, and the memory that a call takes."""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from forecaster.errors import UnavailableError, UsageError

Result = TypeVar("Result")


def device(name: str) -> str:
    """ "cpu" or "cuda"; "auto" takes CUDA where there is one.

    Raises UnavailableError when CUDA is asked for and this torch sees none, UsageError for
    another name.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device '{name}'. Known: auto, cpu, cuda.")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UnavailableError(
            "device=cuda: this torch sees no CUDA device. Use device=cpu, or install the CUDA "
            "build of torch (README, Installing torch)."
        )
    return name


def processor(device: str = "cpu") -> str:
    """The name of the processor, or of the GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = re.findall(r"^model name\s*: (.*)", cpuinfo.read_text(), re.MULTILINE)
        if names:
            return str(names[0]).strip()
    return platform.processor() or platform.machine()


def hardware(device: str = "cpu", threads: int | None = None) -> str:
    """The processor and its threads, or the GPU, with the version of torch."""
    used = "" if device == "cuda" else f", {threads or torch.get_num_threads()} threads"
    return f"{processor(device)}{used}, torch {torch.__version__}"


def cores() -> int:
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
