import numpy as np
import pandas as pd
import pytest

from forecaster.record.adapting import RATE, by_day, follow, newest

START = pd.Timestamp("2026-01-01")


def rows(days=60, horizon=3, hours=24, seed=0, wide=1.0, digest="a"):
    """Forecasts of zero, `horizon` days ahead from the end of each day, with a band of `wide`."""
    random = np.random.default_rng(seed)
    origin = np.repeat(np.arange(days), horizon * hours)
    step = np.tile(np.arange(1, horizon * hours + 1), days)
    number = origin * hours + step
    value = random.normal(size=number.max() + 1)[number]
    times = START + pd.to_timedelta(number * (24 // hours), unit="h")
    ends = pd.to_timedelta(origin * hours * (24 // hours), unit="h")
    return pd.DataFrame({
        "digest": digest, "target": "y", "origin": START + ends, "time": times, "value": value,
        "forecast": 0.0, "q0.1": -wide, "q0.9": wide,
    })  # fmt: skip


def slow(table, hours):
    """The definition, one row at a time."""
    rest = pd.Timedelta(hours=24 - 24 // hours) if hours > 1 else pd.Timedelta(0)
    days = sorted(set(table["time"].dt.floor("D")))
    path = {}
    for day in days:
        missed = []
        for row in table[table["time"].dt.floor("D") == day].itertuples():
            known = [path[each] for each in days if each + rest <= row.origin]
            missed.append(abs(row.value) > np.exp(known[-1] if known else 0.0) * 1.0)
        last = path[max(path)] if path else 0.0
        path[day] = last + RATE * (np.mean(missed) - 0.2)
    return list(path.values())


@pytest.mark.parametrize(("hours", "horizon"), [(1, 3), (4, 1), (4, 2)])
def test_widths_are_those_of_the_definition(hours, horizon):
    table = rows(20, horizon, hours)
    (found,) = follow(table, {"a": {"y": {}}}).values()
    assert found["0.8"].tolist() == pytest.approx(slow(table, hours))


@pytest.mark.parametrize("wide", [0.2, 1.0, 4.0])
def test_whatever_the_band_was_it_holds_what_it_promises_in_the_end(wide):
    table = rows(400, horizon=2, hours=4, wide=wide)
    (path,) = follow(table, {"a": {"y": {}}}).values()
    width = np.exp(np.append(0.0, path["0.8"])[by_day(table)[2]])
    inside = (table["value"].abs() <= wide * width)[table["origin"] > START + pd.Timedelta("100D")]
    assert inside.mean() == pytest.approx(0.8, abs=0.015)


def test_a_width_that_was_said_already_is_taken_into_account():
    table = rows(30, horizon=1, hours=4)
    later = table["origin"] > START + pd.Timedelta("9D")
    again = table.assign(digest=np.where(later, "b", "a"))
    for name in ("q0.1", "q0.9"):
        again[name] = table[name] * np.where(later, np.exp(0.7), 1.0)
    said = {"a": {"y": {}}, "b": {"y": {"0.8": 0.7}}}
    (found,), (plain,) = follow(again, said).values(), follow(table, said).values()
    np.testing.assert_allclose(found, plain)
    other = table.assign(digest=np.where(later, "unknown", "a"))
    (found,) = follow(other, said).values()
    assert len(found) < len(plain), "what answered with unknown widths does not count"


def test_values_that_are_missing_or_forecast_exactly_change_nothing():
    table = rows(10, horizon=1, hours=4)
    table.loc[table.index % 2 == 0, "value"] = np.nan
    assert np.isfinite(follow(table, {"a": {"y": {}}})["y"].to_numpy()).all()
    exact = table.assign(value=0.0)
    assert newest(follow(exact, {"a": {"y": {}}})) == {"y": {"0.8": round(-11 * RATE * 0.2, 4)}}
