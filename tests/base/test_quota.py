import sys
from pathlib import Path
from typing import Any

import pytest

from forecaster.base import quota as share


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the control groups: version 1 of memory and of processors, or version 2."""
    own = tmp_path / "own"
    own.write_text("5:memory:/a/b\n4:cpu,cpuacct:/a/b\n3:cpuset:/x\n0::/a/b\n")
    for controller in ("memory", "cpu,cpuacct", ""):
        (tmp_path / controller / "a/b").mkdir(parents=True)
    monkeypatch.setattr(share, "MEMBERSHIP", own)
    monkeypatch.setattr(share, "GROUPS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("quota", "cores"), [(50, 1), (250, 3), (None, 64)])
def test_a_container_may_have_less_than_a_core_or_some(
    version: int, quota: int | None, cores: int, groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == 1:
        (groups / "cpu,cpuacct/a/cpu.cfs_quota_us").write_text(f"{quota or -1}\n")
        (groups / "cpu,cpuacct/a/cpu.cfs_period_us").write_text("100\n")
    else:
        (groups / "a/cpu.max").write_text(f"{quota or 'max'} 100\n")
    monkeypatch.setattr(share.sys, "platform", "linux")
    monkeypatch.setattr(share.os, "sched_getaffinity", lambda process: range(64), raising=False)
    assert share.cores() == cores


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
class TestMemoryLeft:
    @pytest.mark.parametrize(
        ("place", "most", "used", "cache", "unlimited"),
        [
            ("memory/a/b", "limit_in_bytes", "usage_in_bytes", "total_inactive_file", 2**63),
            ("a/b", "max", "current", "inactive_file", "max"),
        ],
    )
    def test_of_a_container(
        self, place: str, most: str, used: str, cache: str, unlimited: Any, groups: Path
    ) -> None:
        folder = groups / place
        (folder / f"memory.{most}").write_text("5000\n")
        (folder / f"memory.{used}").write_text("3000\n")
        (folder / "memory.stat").write_text(f"anon 7\n{cache} 1000\n")
        assert share.memory_left() == 3000
        (folder / f"memory.{most}").write_text(f"{unlimited}\n")
        assert all(left > 2**60 for left in share._left_in_groups())
        (groups / "own").unlink()
        assert list(share._left_in_groups()) == []
