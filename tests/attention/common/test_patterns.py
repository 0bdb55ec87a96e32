import subprocess
import sys

import pytest
import torch

from forecaster.attention.common.patterns import Strip, check_self_inputs, pattern_mask
from forecaster.attention.strided import StridedPattern
from tests.attention.agreement import inputs


def test_a_mask_made_in_inference_serves_training_too() -> None:
    pattern, device = StridedPattern(3), torch.device("cpu")
    with torch.inference_mode():
        mask = pattern_mask(pattern, 19, device)
    assert not mask.is_inference()
    assert pattern_mask(StridedPattern(3), 19, device) is mask
    assert pattern_mask(StridedPattern(3, causal=False), 19, device) is not mask


def test_a_strip_separates_series_by_its_margin_and_gives_them_back() -> None:
    q = inputs(3, 2, 7, width=4)[0].detach()
    strip = Strip(batch=3, length=7, padded=12, margin=5)
    steps = strip.lay(q, 6, torch.float64)
    assert steps.shape == (5 + 3 * 12 + 5, 2, 6)
    filled = (steps != 0).any(dim=2).any(dim=1).nonzero().flatten().tolist()
    assert filled == [5 + 12 * b + i for b in range(3) for i in range(7)]
    assert (steps[:, :, 4:] == 0).all()
    assert torch.equal(strip.lift(steps, 4, torch.float64), q)


def test_refuses_another_series() -> None:
    q, k, v = inputs(queries=5, keys=7)
    with pytest.raises(ValueError, match="got 5 queries, 7 keys"):
        check_self_inputs(q, k, v, False, None)


# In a process of its own, because the tracer cannot see through the checks of shapes in tests.
COMPILED = """
import torch

from forecaster.attention import fixed, fixed_attention, strided, strided_attention

strided._SHORT = fixed._SHORT = 0
cores = {
    "strided": lambda q, k, v: strided_attention(q, k, v, stride=5, causal=False),
    "fixed": lambda q, k, v: fixed_attention(q, k, v, stride=5, summary=2),
}
for name, core in cores.items():
    results = []
    for call in (core, torch.compile(core, backend="aot_eager")):
        torch.manual_seed(0)
        tensors = [torch.randn(2, 2, 23, 4, requires_grad=True) for _ in range(3)]
        out = call(*tensors)
        results.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for x, y in zip(*results):
        torch.testing.assert_close(x, y)
    print(name)
"""


@pytest.mark.slow
def test_tiles_give_the_same_numbers_under_compile() -> None:
    run = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert run.stdout.split() == ["strided", "fixed"], run.stderr
