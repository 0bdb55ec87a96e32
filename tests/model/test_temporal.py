"""test_tokens.py tests how a skeleton uses these queries."""

import pytest
import torch

from forecaster.model.temporal import TemporalQueries

SEASON, COLUMNS, WIDTH = 6, 3, 4


def test_each_place_in_the_season_has_vectors_of_its_own() -> None:
    queries = TemporalQueries(SEASON, COLUMNS, WIDTH, (float(SEASON), 0.0))
    place = torch.arange(SEASON)
    calendar = torch.stack([place / SEASON - 0.5, torch.zeros(SEASON)], dim=1)
    assert torch.equal(queries(calendar), queries.table)
    assert len(queries.table.flatten(1).unique(dim=0)) == SEASON


def test_a_season_that_the_calendar_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"season=6 steps"):
        TemporalQueries(SEASON, COLUMNS, WIDTH, ())
