from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from forecaster.forecast import kept
from forecaster.forecast.predictor import Predictor
from tests.bundles import COLUMNS, SEASON, unsaved
from tests.forecast.test_predictor import history

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Kept:
    """A ledger that only holds what it gets."""

    def add(self, kind, rows):
        self.kind, self.rows = kind, rows


def test_a_forecast_has_a_row_for_each_step_and_target():
    model, ledger = Predictor(unsaved(calibrated=True), "cpu"), Kept()
    table = history()
    found = model.predict(table, 3, levels=(0.3,), ledger=ledger)
    rows = ledger.rows
    assert ledger.kind == "forecasts"
    assert len(rows) == 3 * len(COLUMNS)
    assert set(rows["series"]) == {""}
    assert rows["time"].tolist() == [*found["time"].repeat(len(COLUMNS))]
    assert set(rows["origin"]) == {pd.Timestamp(table["time"].iloc[-1])}
    for place, column in enumerate(COLUMNS):
        own = rows[rows["target"] == column]
        np.testing.assert_array_equal(own["forecast"], found[column])
        np.testing.assert_array_equal(own["q0.3"], found[f"{column} 0.3"])
        np.testing.assert_array_equal(own["naive"], table[column].iloc[-SEASON:][:3])
        assert set(own["scale"]) == {model.schema.scaler.std[place]}
    assert {f"q{level:g}" for level in model.levels} <= set(rows)


def test_values_of_histories_and_files_are_kept_without_the_missing_ones():
    model = Predictor(unsaved(), "cpu")
    table = history()
    table.loc[15, COLUMNS[0]] = np.nan
    asked = []
    plain = model.forecast_quantiles
    model.forecast_quantiles = lambda question, levels: (
        asked.append(question) or plain(question, levels)
    )
    model.predict(table)
    rows = kept.actuals(model, asked[0], NOW)
    horizon = model.bundle.horizon
    assert len(rows) == min(16, horizon) * len(COLUMNS) - 1
    assert set(rows["seen"]) == {pd.Timestamp("2026-05-01 12:00")}
    last = rows[rows["target"] == COLUMNS[1]].iloc[-1]
    assert (last["time"], last["value"]) == (
        pd.Timestamp(table["time"].iloc[-1]), table[COLUMNS[1]].iloc[-1],
    )  # fmt: skip
    rest = replace(asked[0], starts=asked[0].starts + pd.Timedelta(hours=1))
    later = kept.actuals(model, rest)
    assert later["time"].max() == last["time"] + pd.Timedelta(hours=1)
