import numpy as np
import pandas as pd
import pytest

from forecaster.record import alarms

START = pd.Timestamp("2026-01-01")


def rows(days, horizon=2, **changes):
    """A forecast of `horizon` days from each day, 1 off, where the naive one is 2 off."""
    origin = np.repeat(np.arange(days), horizon)
    step = np.tile(np.arange(1, horizon + 1), days)
    return pd.DataFrame({
        "origin": START + pd.to_timedelta(origin, unit="D"), "step": step,
        "time": START + pd.to_timedelta(origin + step, unit="D"), "scale": 1.0,
        "error": 1.0, "naive_error": 2.0, "value": 0.0, "q0.1": -1.0, "q0.9": 1.0,
    } | changes)  # fmt: skip


def test_evidence_is_the_sum_of_bets_from_every_start():
    observed, most, year = [0.9, 0.1, 1.0], 0.25, 3
    expected = np.mean([
        sum(np.prod([1 + bet / most * (x - most) for x in observed[start:]]) for start in range(3))
        for bet in alarms.BETS
    ]) / year  # fmt: skip
    assert alarms.evidence(observed, most, year)[-1] == pytest.approx(expected)


def test_fewer_than_were_promised_are_alarmed_falsely():
    random, most = np.random.default_rng(0), 0.25
    reached = [
        alarms.evidence(random.random(365) < most, most, 365).max() >= 1 / alarms.LEVEL
        for _ in range(400)
    ]
    assert np.mean(reached) <= alarms.LEVEL


def test_origins_do_not_overlap_and_count_when_they_are_complete():
    found = alarms.origins(rows(9)[:-1], 2)
    assert [*found.index] == [START + pd.Timedelta(days=day) for day in (0, 2, 4, 6)]
    assert (found == [1.0, 2.0, 0.0]).all(axis=None)
    assert alarms.in_a_year(rows(3)) == 183
    assert alarms.origins(rows(3, value=5.0), 2)["missed"].eq(1).all()
    unknown = {"error": [1.0, 9.0] * 3, "naive_error": [2.0, np.nan] * 3}
    assert alarms.origins(rows(3, **unknown), 2)["error"].eq(1).all(), "only beside a naive one"


@pytest.mark.parametrize(
    ("changes", "raised"),
    [
        ({}, []),
        ({"error": 40.0, "naive_error": 80.0}, []),  # a hard time for every method
        ({"error": 8.0}, ["error"]),
        ({"value": 3.0}, ["coverage"]),
    ],
)
def test_what_got_worse_raises_its_alarm(changes, raised):
    found = alarms.origins(rows(200, **changes), 2)
    told = alarms.alarms(found, 0.5, 183, 2)
    assert {each.what for each in told} == {"error", "coverage"}
    assert [each.what for each in told if each.since is not None] == raised
    for each in told:
        assert ("ALARM since 2026-0" in str(each)) is (each.what in raised)
        assert each.to_dict()["origins"] == 96, "stretches of six"


@pytest.mark.parametrize("remembers", [0.0, 0.9])
def test_single_steps_of_a_model_that_is_as_usual_raise_hardly_any_alarm(remembers):
    """Noise of which a mean is the forecast, against its last value, and with a lasting shift."""
    random, raised = np.random.default_rng(0), []
    for shift in [0.0] * 60 + [3.0] * 20:
        noise = random.normal(size=366)
        for day in range(1, 366):
            noise[day] = remembers * noise[day - 1] + np.sqrt(1 - remembers**2) * noise[day]
        off = np.abs(noise[1:] + shift)
        naive = np.abs(np.diff(noise))
        found = pd.DataFrame({"error": off, "naive": naive, "missed": off > 1.2816})
        told = alarms.alarms(found, (2 - 2 * remembers) ** -0.5, 365, 1)
        raised.append(any(each.since is not None for each in told))
    assert sum(raised[:60]) <= 3
    assert all(raised[60:])


def test_where_nothing_is_to_be_watched_there_is_no_alarm():
    found = alarms.origins(rows(20).drop(columns=["q0.1", "q0.9"]), 2)
    assert alarms.alarms(found, None, 183, 2) == []
    test = {"mae": 0.4, "floors": {"seasonal naive, 24": {"mae": 0.8}, "last value": {"mae": 1.0}}}
    assert alarms.usual_ratio(test, 24) == 0.5
    assert alarms.usual_ratio(test, 1) == 0.4
    assert alarms.usual_ratio(test, 7) is None
