import pytest
import torch

from forecaster.attention.common import prefix
from forecaster.attention.common.aft import RANK, check_features, gated, position_factors
from tests.attention.agreement import assert_agree, inputs


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("at_once", [1 << 18, 1], ids=["whole", "in parts"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_gates(
    monkeypatch: pytest.MonkeyPatch, rows: int, at_once: int, dtype: torch.dtype, tolerance: float
) -> None:
    monkeypatch.setattr(prefix, "_AT_ONCE", at_once)
    monkeypatch.setattr(prefix, "_CHUNK", 2)
    q, y, _ = inputs(keys=rows, dtype=dtype)
    assert_agree(gated, lambda q, y: q.sigmoid() * y, (q, y), tolerance)


def test_gates_by_finite_differences() -> None:
    q, y, _ = inputs(1, queries=3, keys=3)
    assert torch.autograd.gradcheck(gated, (100 * q, y))
    assert torch.autograd.gradcheck(gated, (q, y[:, :, :1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gates_in_float32(dtype: torch.dtype) -> None:
    q, y, _ = inputs(dtype=dtype)
    assert torch.equal(gated(q, y), q.float().sigmoid() * y.float())


def test_values_are_as_wide_as_keys() -> None:
    check_features(*inputs())
    with pytest.raises(ValueError, match=r"must have the same width, got .* v \(2, 2, 7, 2\)"):
        check_features(*inputs(value_width=2))


def test_position_factors_start_small() -> None:
    torch.manual_seed(0)
    factors = position_factors(50)
    assert factors.shape == (50, RANK)
    assert 0.009 < factors.std() < 0.011
    assert factors.mean().abs() < 0.001
