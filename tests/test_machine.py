import sys

import pytest
import torch

from forecaster import machine
from forecaster.errors import UnavailableError, UsageError


def test_hardware_names_threads_and_torch() -> None:
    said = machine.hardware("cpu", 3)
    assert said.endswith(f", 3 threads, torch {torch.__version__}")
    assert machine.hardware() == machine.hardware("cpu", torch.get_num_threads())


def test_cores_are_those_of_this_process() -> None:
    assert 1 <= machine.cores() <= torch.multiprocessing.cpu_count()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_that_a_call_takes_and_gives_back() -> None:
    size = 2**24
    result, rise = machine.memory_rise(lambda: len(bytearray(b"x") * size), "cpu")
    assert result == size
    assert rise is not None
    assert rise == pytest.approx(size, rel=0.1)
    assert machine.memory_rise(lambda: None, "cpu")[1] < size / 4


def test_elsewhere_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.memory_rise(lambda: 7, "cpu") == (7, None)


class TestDevice:
    @pytest.mark.parametrize(("cuda", "auto"), [(True, "cuda"), (False, "cpu")])
    def test_auto_takes_cuda_where_there_is_one(
        self, cuda: bool, auto: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        assert machine.device("auto") == auto
        assert machine.device("cpu") == "cpu"

    def test_cuda_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(UnavailableError, match=r"sees no CUDA device. Use device=cpu"):
            machine.device("cuda")

    @pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:0", ""])
    def test_another_name(self, name: str) -> None:
        with pytest.raises(UsageError, match=f"unknown device '{name}'. Known: auto, cpu, cuda"):
            machine.device(name)
