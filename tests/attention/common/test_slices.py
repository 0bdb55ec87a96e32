import torch
from hypothesis import given
from hypothesis import strategies as st

from forecaster.attention.common.slices import slices


@given(*[st.integers(1, 6)] * 2, st.integers(1, 100), st.integers(1, 1000))
def test_covers_every_head_once_in_as_few_slices_as_fit(
    series: int, heads: int, each: int, at_once: int
) -> None:
    seen = torch.zeros(series, heads)
    for part in slices(series, heads, each, at_once):
        seen[part] += 1
        count = seen[part].numel()
        assert count == 1 or count * each <= at_once
        whole = seen[part].shape[1] == heads
        assert whole or seen[part].shape[0] == 1
    assert (seen == 1).all()


def test_takes_as_many_as_fit() -> None:
    assert len(list(slices(2, 3, 7, 42))) == 1
    assert [part[1] for part in slices(1, 3, 7, 20)] == [slice(0, 2), slice(2, 4)]
