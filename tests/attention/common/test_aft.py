import pytest
import torch

from forecaster.attention.common.aft import gated
from tests.attention.agreement import inputs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gates_in_float32(dtype: torch.dtype) -> None:
    q, y, _ = inputs(dtype=dtype)
    assert torch.equal(gated(q, y), q.float().sigmoid() * y.float())
