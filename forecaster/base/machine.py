"""The machine: its device, processor and cores, and its memory."""

import ctypes
import math
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
    if cpuinfo.exists():
        names = re.findall(r"^model name\s*: (.*)", cpuinfo.read_text(), re.MULTILINE)
        if names:
            return str(names[0]).strip()
    return platform.processor() or platform.machine()


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


MEMBERSHIP, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Where Linux keeps the control groups of this process, and their limits."""


def cores() -> int:
    """How many cores this process may use, at least one.

    Those that it may run on or, if that is less, the quota of a control group, such as a container.
    """
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return min([len(os.sched_getaffinity(0)), *_quotas()])


def _quotas() -> Iterator[int]:
    """The cores that each control group may use, a part of one counted whole."""
    for folder in _groups("cpu"):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            files = [folder / name for name in names]
            if all(file.exists() for file in files):
                quota, period = " ".join(file.read_text() for file in files).split()
                if quota not in ("max", "-1"):
                    yield max(1, math.ceil(int(quota) / int(period)))


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the control groups of this process, for versions 2 and 1, the inner first."""
    for line in MEMBERSHIP.read_text().splitlines() if MEMBERSHIP.exists() else []:
        _, controllers, own = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            place = GROUPS / controllers / own.lstrip("/")
            yield from (each for each in (place, *place.parents) if GROUPS in (each, *each.parents))


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

    On a GPU, its free memory; else what the kernel can give (MemAvailable), or what the control
    group of the process (such as a container) has left, if that is less.
    """
    if device == "cuda":
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()  # free for torch
        return int(torch.cuda.mem_get_info()[0]) + cached
    if sys.platform != "linux":
        return None
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return min([free, *_left_in_groups()])


def _left_in_groups() -> Iterator[int]:
    """The memory that the control groups of this process have left."""
    for folder in _groups("memory"):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            if (folder / most).exists() and (text := (folder / most).read_text()) != "max\n":
                cache = re.search(
                    r"^(?:total_)?inactive_file (\d+)",
                    (folder / "memory.stat").read_text(),
                    re.MULTILINE,
                )
                taken = int((folder / used).read_text()) - int(cache[1] if cache else 0)
                yield max(0, int(text) - taken)


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
