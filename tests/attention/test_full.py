import pytest
import torch

from forecaster.attention import full_attention

from .agreement import inputs


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of torch 2.10
def test_unequal_widths_do_not_build_the_matrix() -> None:
    q, k, v = inputs(1, 1, 4096, 4096, width=4, value_width=8, dtype=torch.float32)
    with torch.profiler.profile(profile_memory=True) as profile:
        full_attention(q, k, v)
    largest = max(event.cpu_memory_usage for event in profile.key_averages())
    assert largest < 4096 * 4096
