import pytest
import torch

from forecaster.attention import FullAttention, Place, full_attention

from .agreement import inputs


def test_a_mask_without_holes_is_no_mask() -> None:
    q, k, v = inputs()
    mask = torch.ones(2, 7, dtype=torch.bool)
    assert torch.equal(full_attention(q, k, v, key_mask=mask), full_attention(q, k, v))


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


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_refuses_an_impossible_dropout(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"dropout must be .* got dropout={dropout}"):
        FullAttention(Place(8, 2, 5, 5), dropout=dropout)
