"""The rows to fill in, and that a model takes them back."""

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import UsageError
from forecaster.datasets.reading import Reading
from forecaster.forecast.future import future_rows
from forecaster.forecast.history import read
from forecaster.forecast.question import Form

DAYS = pd.date_range("2026-01-05", periods=21)  # from a Monday on


def form(**reading):
    said = {"time": "when", "targets": ("y",), "freq": "D", "panel": False, "timezone": "naive"}
    return Form(Reading(**{**said, **reading}), ("y",), 3, 3, 1, 7)


def history(**columns):
    return pd.DataFrame({"when": DAYS, "y": np.arange(21.0), **columns})


def test_the_calendar_fills_what_it_has_always_determined():
    said = []
    frame = history(weekend=(DAYS.day_of_week >= 5) * 1, flat=2, random=np.arange(21) % 5)
    names = ("weekend", "flat", "random")
    found = future_rows(form(future_covariates=names), frame, say=said.append)
    assert list(found) == ["when", *names]
    assert list(found["when"]) == [*pd.date_range("2026-01-26", periods=7)]
    assert found["weekend"].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert found["flat"].tolist() == [2] * 7
    assert found["random"].isna().all()
    assert said[-1] == "To fill in: 'random' (7 rows)."


def test_one_observation_of_a_position_determines_nothing():
    frame = history(day=np.arange(21.0)).head(7)
    assert future_rows(form(future_covariates=("day",)), frame)["day"].isna().all()
    with pytest.raises(UsageError, match="takes no covariates known ahead"):
        future_rows(form(), history())


def test_rows_after_the_history_give_their_values_and_each_series_its_own_end():
    late, early = history(shop="a", promo=np.arange(21) % 4 // 2), history(shop="b", promo=0.0)
    early = early.head(15)
    late.loc[18:, "y"] = np.nan
    late.loc[20, "promo"] = np.nan
    late["promo"] += np.arange(21)
    found = future_rows(form(id=("shop",), future_covariates=("promo",)), pd.concat([late, early]))
    assert found["shop"].tolist() == ["a"] * 7 + ["b"] * 7
    assert found["when"][[0, 7]].tolist() == [DAYS[18], DAYS[15]]
    assert found["promo"].tolist()[:2] == late["promo"].tolist()[18:20]
    assert found["promo"][2:7].isna().all()
    assert found["promo"].tolist()[7:] == [0] * 7


@pytest.mark.parametrize(
    ("reading", "columns"),
    [
        ({"id": ("shop",)}, {"shop": "a"}),
        ({"targets": ("y", "z"), "panel": True}, {"z": 1.0}),
        ({"timezone": "UTC"}, {}),
        ({"time": "Date,Hour", "time_columns": ("Date", "Hour")}, {}),
    ],
)
def test_a_model_takes_the_rows_back(reading, columns):
    frame = history(known=(DAYS.day_of_week >= 5) * 1, **columns)
    if reading.get("timezone"):
        frame["when"] = frame["when"].dt.tz_localize("UTC")
    if "time_columns" in reading:
        frame["Date"], frame["Hour"] = frame.pop("when").dt.strftime("%Y-%m-%d"), 0
    own = form(**{**reading, "future_covariates": ("known",)})
    ahead = future_rows(own, frame)
    asked = read(own, frame, future=ahead)
    for question in asked.questions():
        assert question.covariates[0, -7:, 0].tolist() == [0, 0, 0, 0, 0, 1, 1]
