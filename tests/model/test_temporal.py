"""test_tokens.py tests how a skeleton uses these queries."""

import pytest
import torch
from torch import Tensor

from forecaster.model.temporal import TemporalQueries

SEASON, COLUMNS, WIDTH = 6, 3, 4


def calendar(*places: int) -> Tensor:
    """A feature that goes from -1/2 to 1/2 once a season, and an uninformative one."""
    return torch.stack([torch.tensor(places) / SEASON - 0.5, torch.zeros(len(places))], dim=1)


def queries() -> TemporalQueries:
    torch.manual_seed(0)
    return TemporalQueries(SEASON, COLUMNS, WIDTH, (float(SEASON), 0.0))


@pytest.mark.parametrize("place", range(SEASON))
def test_each_place_in_the_season_has_vectors_of_its_own(place: int) -> None:
    asked = queries()
    found = asked(calendar(place, (place + 1) % SEASON))
    assert found.shape == (2, COLUMNS, WIDTH)
    assert torch.equal(found[0], asked.table[place])
    assert not torch.isclose(found[0], found[1]).any()


def test_only_the_place_that_is_asked_for_learns() -> None:
    asked = queries()
    asked(calendar(4, 4)).sum().backward()
    assert asked.table.grad is not None
    assert torch.equal(asked.table.grad.amax((1, 2)), torch.tensor([0.0, 0, 0, 0, 2, 0]))


def test_a_season_that_the_calendar_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"that the calendar knows .*, got season=6 steps"):
        TemporalQueries(SEASON, COLUMNS, WIDTH, ())
