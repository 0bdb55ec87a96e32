import pytest
import torch

from forecaster.attention.common.slices import slices


def length(part: slice, total: int) -> int:
    return len(range(total)[part])


@pytest.mark.parametrize("each", [1, 3, 7, 100])
@pytest.mark.parametrize("at_once", [1, 20, 21, 22, 63, 1000])
def test_covers_every_head_of_every_series_once(each: int, at_once: int) -> None:
    seen = torch.zeros(5, 3)
    for part in slices(5, 3, each, at_once):
        seen[part] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("each", [1, 3, 7, 100])
@pytest.mark.parametrize("at_once", [1, 20, 21, 22, 63, 1000])
def test_holds_no_more_than_it_may_or_one_head_of_one_series(each: int, at_once: int) -> None:
    for x, y in slices(5, 3, each, at_once):
        pairs = length(x, 5) * length(y, 3)
        assert pairs == 1 or pairs * each <= at_once


@pytest.mark.parametrize(
    ("at_once", "sizes"),
    [
        (20, [(1, 2), (1, 1)] * 2),  # two of three heads fit
        (21, [(1, 3)] * 2),
        (42, [(2, 3)]),
        (6, [(1, 1)] * 6),  # not even one fits
    ],
)
def test_takes_as_many_as_fit(at_once: int, sizes: list[tuple[int, int]]) -> None:
    assert [(length(x, 2), length(y, 3)) for x, y in slices(2, 3, 7, at_once)] == sizes
