"""test_tokens.py tests how a skeleton uses these queries."""

import pytest

from forecaster.model.temporal import TemporalQueries


def test_a_season_that_the_calendar_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"season=6 steps"):
        TemporalQueries(6, 3, 4, ())
