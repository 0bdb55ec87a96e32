from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import BundleError, DataError
from forecaster.datasets.dataset import Items, Series
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.golden import question
from forecaster.forecast.newcomers import PULL, Newcomers, fit, typical
from forecaster.forecast.notices import NoticeCode
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import concatenate
from forecaster.plan.schema import Schema
from forecaster.record import NewSeries
from tests.service.toy import KINDS, PAST, make_bundle

DAY = 24
MEASURED = NewSeries(series=3, worth=2, worth_in_cycle=1, rows=(0, 4, PAST), widths=(3, 2, 1))
LEVEL, SPREAD = 50.0, 0.05


def taught(bundle):
    """The bundle of a panel, where series of kind "out" are twice as large as the others."""
    effects = np.zeros((4, len(bundle.schema.columns), 2 + DAY))
    effects[0, :, 0], effects[0, :, 1], effects[3, :, 0] = np.log(LEVEL), np.log(SPREAD), np.log(2)
    effects[0, :, 2:] = np.sin(np.arange(DAY))
    about = {**bundle.about, "newcomers": effects.tolist()}
    record = bundle.record.model_copy(update={"newcomers": MEASURED})
    return replace(bundle, about=about, record=record)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Predictor:
    return Predictor(taught(make_bundle(tmp_path_factory.mktemp("all"), **KINDS["all"])), "cpu")


def asked(model: Predictor, number: int, rows: int, name: str | None = "new"):
    """The question about a made-up series, of which it keeps the newest rows."""
    series = question(model.schema, model.past, model.horizon, [number])
    values, covariates = series.values.copy(), series.covariates.copy()
    values[:, : PAST - rows], covariates[:, : PAST - rows] = (
        np.nan,
        covariates[:, PAST - rows, None],
    )
    return replace(series, values=values, covariates=covariates, items=[name], rows=[rows])


@pytest.mark.parametrize("right", [1.0, 0.5])
def test_the_level_is_that_of_rows_at_their_places_as_far_as_they_count(model, right):
    """Three rows at the peak of a day do not make a large series."""
    newcomers, level = model.newcomers, 80.0
    traits = newcomers.traits({"size": [100.0], "kind": ["in"]}, np.array([0]))
    traits[..., 0] = np.log(level * right)
    phases = (np.arange(PAST) + 5)[None] % DAY
    whole = level * (1 + SPREAD * typical(traits, phases))
    for rows in (1, 3, 20):
        values = np.where(np.arange(PAST)[:, None] >= PAST - rows, whole, np.nan)
        scaler = newcomers.scaler(traits, values, phases, 2.0)
        expected = (rows * level + 2 * level * right) / (rows + 2)
        off = SPREAD * level * abs(1 - right)  # the spread is relative to it, too
        assert scaler.mean == pytest.approx(expected, abs=off + 0.02)


def test_what_attributes_tell_of_a_series_is_what_they_tell_without_it():
    """Against ridge regressions on all others."""
    known, random = KINDS["attributes"]["known"], np.random.default_rng(0)
    names, days = tuple(map(str, range(9))), pd.date_range("2026-01-01", periods=60, freq="h")
    items = Items(names, np.arange(10) * 60, np.zeros(9, dtype=np.int64))
    values = random.lognormal(1, 0.5, (540, 1)) * np.repeat(random.lognormal(3, 1, 9), 60)[:, None]
    static = {"size": random.normal(100, 20, 9), "kind": np.array(["in", "out", "in"] * 3)}
    series = Series(values, days, ("load",), "h", "the test", items, static=static)
    reading = replace(toy_reading(), id=("town",))
    scaler = Scaler.fit_items(values, items, 50, 50)
    schema = Schema(("load",), ("load",), reading, scaler, names, known)
    newcomers, others = fit(schema, series, 50, 30, np.arange(9))
    everyone = np.arange(9)
    features = np.concatenate([np.ones((9, 1)), known.encode(static)], axis=1)
    level = np.log(scaler.mean[:, 0])
    pull = PULL * np.diag([0, 1, 1, 1])
    for place in range(9):
        rest = everyone != place
        x, y = features[rest], level[rest]
        alone = features[place] @ np.linalg.solve(x.T @ x + pull, x.T @ y)
        assert others[place, 0, 0] == pytest.approx(alone)
    scaled = (values.reshape(9, 60) - scaler.mean) / scaler.std
    assert newcomers.effects.shape == (4, 1, 2 + DAY)
    usual = np.stack(
        [scaled[:, [20 + i, 44 + i] if i < 6 else [20 + i]].mean(axis=1) for i in range(4)]
    )
    of_all = typical(newcomers.traits(static, everyone), np.tile(np.arange(20, 24), (9, 1)))
    assert of_all[..., 0].mean(axis=0) == pytest.approx(usual.mean(axis=1))


def toy_reading():
    from forecaster.datasets.reading import Reading

    return Reading(time="time", targets=("load",), freq="h", seasons=(DAY,), timezone="naive")


def test_a_new_series_is_forecast_as_if_typical_rows_had_been_before(model):
    series = asked(model, 0, rows=3)
    forecast, quantiles = model.forecast_quantiles(series, model.levels)
    whole, scaler, _ = model._scaled(series)
    assert not np.isnan(whole.values).any()
    assert whole.rows == [PAST]
    np.testing.assert_array_equal(whole.values[:, -3:], series.values[:, -3:])
    np.testing.assert_array_equal(whole.covariates[:, : PAST - 3], [[[0.0, 20.0]] * (PAST - 3)])
    plain, narrow = model._ahead(whole, scaler, model._known(whole), model.levels)
    np.testing.assert_array_equal(forecast, plain)
    wider = np.interp(3, MEASURED.rows, MEASURED.widths)
    np.testing.assert_allclose(
        quantiles - forecast[..., None], wider * (narrow - plain[..., None]), atol=1e-9
    )


def test_neither_known_series_nor_the_batch_make_a_difference(model):
    """What stands in is the same to the last digit in any batch; known series are as without."""
    series = [
        asked(model, 0, PAST, model.schema.items[0]), asked(model, 1, 0), asked(model, 2, 5),
        asked(model, 4, PAST), asked(model, 5, 1, None),
    ]  # fmt: skip
    together = model.forecast_quantiles(concatenate(series), model.levels)
    alone = [model.forecast_quantiles(one, model.levels) for one in series]
    for place, parts in enumerate(zip(*alone, strict=True)):
        np.testing.assert_allclose(together[place], np.concatenate(parts), atol=1e-5)
    whole, scaler, _ = model._scaled(concatenate(series))
    for place, one in enumerate(series):
        of_one, scaler_of_one, _ = model._scaled(one)
        np.testing.assert_array_equal(whole.values[place], of_one.values[0])
        np.testing.assert_array_equal(scaler.mean[place], scaler_of_one.mean[0])
        np.testing.assert_array_equal(scaler.std[place], scaler_of_one.std[0])
    about = {name: fact for name, fact in model.bundle.about.items() if name != "newcomers"}
    record = model.bundle.record.model_copy(update={"newcomers": None})
    without = Predictor(replace(model.bundle, about=about, record=record), "cpu")
    for place in (0, 3):
        np.testing.assert_array_equal(
            without.forecast_quantiles(series[place], model.levels)[1], alone[place][1]
        )
    with pytest.raises(DataError, match="no value at all"):
        without.forecast_quantiles(series[1])


def rows_of(model: Predictor, name: str, count: int) -> pd.DataFrame:
    """The newest rows of a series and those known ahead, as a file has them."""
    frame = model.example
    frame = frame[frame["town"] == frame["town"].iloc[0]].assign(town=name)
    return frame.iloc[PAST - count :]


def test_a_file_may_have_series_with_few_rows_or_with_what_is_known_ahead_alone(model):
    known = model.schema.items[0]
    frame = pd.concat([rows_of(model, *row) for row in ((known, PAST), ("few", 2), ("none", 0))])
    heard = []
    ahead = model.predict(frame, say=heard.append)
    assert list(ahead["town"].unique()) == [known, "few", "none"]
    assert (ahead.groupby("town")["time"].min() == ahead["time"].min()).all()
    alone = model.predict(rows_of(model, "none", 0))
    pd.testing.assert_frame_equal(ahead[ahead["town"] == "none"].reset_index(drop=True), alone)
    (notice,) = [each for each in heard if getattr(each, "code", "") is NoticeCode.NEW_SERIES]
    assert notice.startswith("series 'few': it is new, with 2 rows")
    assert notice.endswith("; similarly 'none'")
    future = frame[frame["town"] != "few"].groupby("town").tail(model.horizon)
    model.predict(frame[frame["town"] == known][:PAST], future=future, say=heard.append)
    (alone,) = [each for each in heard if each.startswith("no forecast of 'none', new and in the")]
    assert alone.endswith("stand in the file of the histories")
    short = rows_of(model, known, 2)
    with pytest.raises(DataError, match=rf"series '{known}' has 2 rows"):
        model.predict(short)
    with pytest.raises(DataError, match="series 'few' has 2 rows"):
        model.predict(rows_of(model, "few", 2), short_history="refuse")


def test_effects_of_another_shape_are_refused(model):
    with pytest.raises(BundleError, match="expected effects"):
        Newcomers(model.schema, np.zeros((2, 1, 3)), MEASURED)
