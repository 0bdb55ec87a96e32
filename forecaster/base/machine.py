"""The machine: its device, its processor, and its memory."""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import torch

from forecaster.base import quota
from forecaster.base.errors import UnavailableError, UsageError

Result = TypeVar("Result")


def device(name: str) -> str:
    """ "cpu" or "cuda"; "auto" takes CUDA where torch can compute on it.

    Raises UnavailableError, with the cause, when CUDA is asked for and cannot be used, UsageError
    for another name.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device '{name}'. Known: auto, cpu, cuda.")
    missing = "" if name == "cpu" else without_cuda()
    if missing and name == "cuda":
        raise UnavailableError(f"device=cuda: {missing}. Or use device=cpu.")
    return "cpu" if missing or name == "cpu" else "cuda"


def without_cuda() -> str:
    """Why torch cannot compute on CUDA here, and what helps; empty if it can."""
    build, place, fault = torch.version.cuda, "(docs/index.md, Install)", "no CUDA device is seen"
    try:
        if torch.cuda.is_available():
            card, codes = torch.cuda.get_device_capability(), torch.cuda.get_arch_list()
            if build is None or _has_code(card, codes):  # None on ROCm, whose codes are others
                return ""
            name = f"{processor('cuda')}, sm_{card[0]}{card[1]}"
            return f"this torch has no code for {name}: install the build that has it {place}"
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:  # the second without CUDA in torch
        fault = str(error).splitlines()[0].rstrip(".")
    if build is None:
        return f"this torch is built without CUDA: install its CUDA build {place}"
    major, minor = _driver()
    if not major:
        return "no NVIDIA driver is seen: install it, or give the container the GPU"
    if major < int(build.partition(".")[0]):
        return (
            f"the NVIDIA driver, for CUDA {major}.{minor}, is too old for this torch, built for "
            f"{build}: update it, or install torch's build for CUDA {major} {place}"
        )
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    return f"{fault}: check `nvidia-smi` and CUDA_VISIBLE_DEVICES, which is {shown or 'empty'}"


def _has_code(card: tuple[int, int], codes: list[str]) -> bool:
    """Whether a code suits a card: sm_ one of its generation, compute_ any that is not older."""
    pairs = re.findall(r"(sm|compute)_(\d+)(\d)", " ".join(codes))
    return not pairs or any(  # a torch that tells nothing is tried
        (int(major), int(minor)) <= card and (kind == "compute" or int(major) == card[0])
        for kind, major, minor in pairs
    )


def _driver() -> tuple[int, int]:
    """The CUDA version that the NVIDIA driver is for; zeros without a driver."""
    version = ctypes.c_int()
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


def cuda() -> tuple[dict[str, str], list[str]]:
    """What CUDA is made of here, or why there is none; and what is wrong with it."""
    if missing := without_cuda():
        return {"cuda": missing}, []
    report = {
        "cuda": str(torch.version.cuda),
        "driver": "for CUDA {}.{}".format(*_driver()),
        "capability": "sm_{}{}".format(*torch.cuda.get_device_capability()),
    }
    problems = []
    numbers = torch.arange(64.0).reshape(8, 8)  # their products are exact in TF32, too
    try:
        on_card = numbers.to("cuda")
        if not torch.equal((on_card @ on_card).cpu(), numbers @ numbers):
            problems.append("the device multiplies wrongly: do not use it")
    except RuntimeError as error:
        problems.append(f"the device cannot multiply: {str(error).splitlines()[0]}")
    return report, problems


def sent(x: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """`x` on `device`; the host does not wait until it is there."""
    there = torch.device(device)
    if there.type == "cpu" or x.device.type != "cpu":
        return x.to(there)
    return x.pin_memory().to(there, non_blocking=True)


_EXACT = Lock()
_open: list[list[Any]] = []  # the blocks of `exact` in all threads: the settings before each


@contextmanager
def exact() -> Iterator[None]:
    """Inside the block, a GPU computes in 32 bits whatever is in 32 bits, and the same each time.

    In TF32, cuDNN's default, convolutions are off by 1e-3, and by another amount in another batch:
    the network that is judged would not be the one that is served.
    """
    cudnn: Any = torch.backends.cudnn
    kinds = (cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul)
    with _EXACT:
        _open.append([cudnn.deterministic, *(kind.fp32_precision for kind in kinds)])
        cudnn.deterministic = True
        for kind in kinds:
            kind.fp32_precision = "ieee"
    try:
        yield
    finally:
        with _EXACT:
            first = _open[0]
            _open.pop()
            if not _open:
                cudnn.deterministic = first[0]
                for kind, precision in zip(kinds, first[1:], strict=True):
                    kind.fp32_precision = precision


def processor(device: str = "cpu") -> str:
    """The name of the processor, or of the GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    name = re.search(r"(?m)^model name\s*: (.*)", text)
    return name[1].strip() if name else platform.processor() or platform.machine()


def hardware(device: str = "cpu", threads: int | None = None) -> str:
    """The processor and its threads, or the GPU, with the version of torch."""
    used = "" if device == "cuda" else f", {threads or torch.get_num_threads()} threads"
    return f"{processor(device)}{used}, torch {torch.__version__}"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside the block, torch computes on `count` threads of the processor; costs under 1 us."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def memory_rise(call: Callable[[], Result], device: str) -> tuple[Result, int | None]:
    """The result of `call`, and the largest rise of memory during it, in bytes.

    The memory is that of torch's allocator on a GPU, else the resident memory of this process; None
    if that cannot be measured, as on any system but Linux.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return call(), torch.cuda.max_memory_allocated() - before
    if sys.platform != "linux":
        return call(), None
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # returns memory that earlier calls left behind
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _resident("VmRSS")
    return call(), _resident("VmHWM") - before


def resident() -> int:
    """Bytes of resident memory of this process; 0 if unknown."""
    return _resident("VmRSS") if sys.platform == "linux" else 0


def peak_mib(device: str) -> float | None:
    """This process's peak memory so far, on a GPU that of torch's allocator; None if unknown."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return _resident("VmHWM") / 2**20 if sys.platform == "linux" else None


def memory_left(device: str) -> int | None:
    """Bytes that this process may still take; None if unknown.

    On a GPU, its free memory; else `quota.memory_left`.
    """
    if device == "cuda":
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()  # free for torch
        return int(torch.cuda.mem_get_info()[0]) + cached
    return quota.memory_left()


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Inside the block, keep freed memory for the next allocations (glibc).

    Otherwise the system takes it back and clears it again, page by page, in every training step.
    Blocks larger than 32 MiB are still returned at once, the rest at the end.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_LARGE, 2**25)
    libc.mallopt(_TRIM, 2**31 - 1)
    try:
        yield
    finally:
        libc.mallopt(_TRIM, 2**26)  # twice the other, as glibc has it
        libc.malloc_trim(0)


_TRIM, _LARGE = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h


def _resident(field: str) -> int:
    """Bytes of resident memory now (VmRSS) or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
