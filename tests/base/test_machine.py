import sys
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from forecaster.base import machine
from forecaster.base.errors import UnavailableError, UsageError


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_that_a_call_takes_and_gives_back() -> None:
    size = 2**27  # the kernel counts resident memory some megabytes out
    result, rise = machine.memory_rise(lambda: len(bytearray(b"x") * size), "cpu")
    assert result == size
    assert rise == pytest.approx(size, rel=0.1)
    assert machine.memory_rise(lambda: None, "cpu")[1] < size / 4


def test_a_device_has_one_of_three_names() -> None:
    with pytest.raises(UsageError, match=r"unknown device 'cuda:0'. Known: auto, cpu, cuda"):
        machine.device("cuda:0")


NO_CARD = RuntimeError("No CUDA GPUs are available.\nCUDA kernel errors might be")


@pytest.mark.parametrize(
    ("build", "driver", "fault", "cause"),
    [
        (None, 0, AssertionError("Torch not compiled"), "is built without CUDA: install its CUDA"),
        ("13.0", 0, RuntimeError("Found no NVIDIA"), "no NVIDIA driver is seen: install it, or"),
        ("13.0", 12040, RuntimeError("The NVIDIA"), r"for CUDA 12\.4, .*built for 13\.0: .* 12 \("),
        (
            "12.6",
            12020,
            NO_CARD,
            r"No CUDA GPUs are available: .*which is empty\. Or use device=cpu",
        ),
        ("13.0", 13000, None, "no CUDA device is seen: check `nvidia-smi`"),
    ],
)
def test_why_there_is_no_cuda(
    build: str | None, driver: int, fault: Any, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", Mock(side_effect=fault))
    monkeypatch.setattr(machine.ctypes, "CDLL", Mock(side_effect=None if driver else OSError))
    monkeypatch.setattr(machine.ctypes, "c_int", lambda: Mock(value=driver))
    monkeypatch.setattr(machine.ctypes, "byref", Mock())
    assert (machine.device("auto"), machine.device("cpu")) == ("cpu", "cpu")
    with pytest.raises(UnavailableError, match=cause):
        machine.device("cuda")


@pytest.mark.parametrize(
    ("card", "codes", "used"),
    [
        ((6, 1), "sm_75 sm_80", False),
        ((7, 0), "sm_75 sm_80 compute_120", False),
        ((8, 9), "sm_75 sm_80 sm_90", True),
        ((10, 3), "sm_80 sm_90 sm_100", True),
        ((12, 0), "sm_90 sm_100", False),
        ((13, 0), "sm_120 compute_120", True),
        ((9, 0), "", True),
    ],
)
def test_a_card_is_used_for_which_torch_has_code(
    card: tuple[int, int], codes: str, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"is_available": True, "get_device_capability": card, "get_device_name": "a card"}
    for name, answer in {**answers, "get_arch_list": codes.split()}.items():
        monkeypatch.setattr(torch.cuda, name, Mock(return_value=answer))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert machine.device("auto") == ("cuda" if used else "cpu")
    if not used:
        with pytest.raises(
            UnavailableError, match=r"no code for a card, sm_\d+: install the build"
        ):
            machine.device("cuda")


def test_elsewhere_no_memory_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.memory_left("cpu") is None
    assert machine.peak_mib("cpu") is None
    assert machine.memory_rise(lambda: 7, "cpu") == (7, None)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_is_kept_only_within() -> None:
    def free_blocks() -> None:
        blocks = [bytearray(2**20) for _ in range(100)]  # in the heap: below the threshold
        del blocks

    with machine.keeping_memory():
        free_blocks()
        kept = machine._resident("VmRSS")
    assert kept - machine._resident("VmRSS") > 50 * 2**20


def test_what_is_exact_ends_with_the_last_of_several_blocks() -> None:
    precision = torch.backends.cudnn.conv.fp32_precision
    assert precision == "tf32", "torch's default"
    with machine.exact():
        with machine.exact():
            assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.conv.fp32_precision == precision
