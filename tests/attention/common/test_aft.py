import pytest
import torch

from forecaster.attention.common.aft import RANK, check_features, gated, position_factors
from tests.attention.agreement import inputs


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
