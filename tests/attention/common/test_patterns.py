import torch

from forecaster.attention.common.patterns import Strip, pattern_mask
from forecaster.attention.strided import StridedPattern
from tests.attention.agreement import inputs


def test_a_mask_made_in_inference_serves_training_too() -> None:
    device = torch.device("cpu")
    with torch.inference_mode():
        mask = pattern_mask((StridedPattern(3),), 19, device)
    assert not mask.is_inference()
    assert pattern_mask((StridedPattern(3),), 19, device) is mask
    assert pattern_mask((StridedPattern(3, causal=False),), 19, device) is not mask


def test_a_strip_separates_series_by_its_margin_and_gives_them_back() -> None:
    q = inputs(3, 2, 7, width=4)[0].detach()
    strip = Strip(batch=3, length=7, padded=12, margin=5)
    steps = strip.lay(q, 6, torch.float64)
    assert steps.shape == (5 + 3 * 12 + 5, 2, 6)
    filled = (steps != 0).any(dim=2).any(dim=1).nonzero().flatten().tolist()
    assert filled == [5 + 12 * b + i for b in range(3) for i in range(7)]
    assert (steps[:, :, 4:] == 0).all()
    assert torch.equal(strip.lift(steps, 4, torch.float64), q)
