from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import Mock

import numpy as np
import pandas as pd

from forecaster.forecast import kept
from forecaster.forecast.predictor import Predictor
from tests.bundles import COLUMNS, SEASON, unsaved
from tests.forecast.test_predictor import history

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_forecast_has_a_row_for_each_step_and_target():
    model, ledger, table = Predictor(unsaved(calibrated=True), "cpu"), Mock(), history()
    found = model.predict(table, 3, levels=(0.3,), ledger=ledger)
    ((kind, rows),) = (call.args for call in ledger.add.call_args_list)
    assert (kind, len(rows)) == ("forecasts", 3 * len(COLUMNS))
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
    model, table = Predictor(unsaved(), "cpu"), history()
    table.loc[15, COLUMNS[0]] = np.nan
    model.answer = Mock(wraps=model.answer)
    model.predict(table)
    question, _ = model.answer.call_args.args
    rows = kept.actuals(model, question, NOW)
    assert len(rows) == min(16, model.bundle.horizon) * len(COLUMNS) - 1
    assert set(rows["seen"]) == {pd.Timestamp("2026-05-01 12:00")}
    last, told = rows[rows["target"] == COLUMNS[1]].iloc[-1], table.iloc[-1]
    assert (last["time"], last["value"]) == (told["time"], told[COLUMNS[1]])
    rest = replace(question, starts=question.starts + pd.Timedelta(hours=1))
    later = kept.actuals(model, rest)
    assert later["time"].max() == last["time"] + pd.Timedelta(hours=1)
