import pytest
import torch

from forecaster.attention import FullAttention, Place, full_attention

from .agreement import inputs


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of torch 2.10
def test_unequal_widths_do_not_build_the_matrix() -> None:
    q, k, v = inputs(1, 1, 4096, 4096, width=4, value_width=8, dtype=torch.float32)
    with torch.profiler.profile(profile_memory=True) as profile:
        full_attention(q, k, v)
    largest = max(event.cpu_memory_usage for event in profile.key_averages())
    assert largest < 4096 * 4096


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    module, x = FullAttention(Place(8, 2, 5, 5), dropout=0.5), torch.randn(3, 5, 8)
    assert not torch.equal(module(x), module(x))
    module.eval()
    plain = FullAttention(Place(8, 2, 5, 5)).eval()
    plain.load_state_dict(module.state_dict())
    assert torch.equal(module(x), plain(x))
