"""What this machine and the control groups of this process, such as a container, leave to it: cores
and memory. Nothing heavy is imported here."""

import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

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
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            place = GROUPS / controllers / path.lstrip("/")
            yield from (p for p in (place, *place.parents) if GROUPS in (p, *p.parents))


def memory_left() -> int | None:
    """Bytes of memory that this process may still take; None if unknown.

    What the kernel can give (MemAvailable), or what the control groups of the process have left, if
    that is less.
    """
    if sys.platform != "linux":
        return None
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return min([free, *_left_in_groups()])


def _left_in_groups() -> Iterator[int]:
    for folder in _groups("memory"):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            if (folder / most).exists() and (text := (folder / most).read_text()) != "max\n":
                stat = (folder / "memory.stat").read_text()
                cache = re.search(r"(?m)^(?:total_)?inactive_file (\d+)", stat)
                taken = int((folder / used).read_text()) - int(cache[1] if cache else 0)
                yield max(0, int(text) - taken)
