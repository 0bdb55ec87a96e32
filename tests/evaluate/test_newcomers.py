import numpy as np
import pandas as pd
import pytest

from benchmarks.newcomers import chain, cut
from forecaster import Forecaster
from forecaster.forecast.history import read
from forecaster.forecast.predictor import BAND

HORIZON, PAST = 7, 28


@pytest.fixture(scope="module")
def shops():
    """A model of thirty shops, and the rows of twenty others."""
    frame = chain(shops=50, days=240, seed=1)
    names = sorted(frame["shop"].unique())
    model = Forecaster(
        horizon=HORIZON, lookback=PAST, target="sales", id="shop", time="day", epochs=1,
        static=["region", "format"], future_covariates="promotion",
        options={"model.width": 4, "model.feed_forward": 4, "train.updates": 30},
    ).fit(frame[frame["shop"].isin(names[:30])])  # fmt: skip
    return model.fitted, frame[frame["shop"].isin(names[30:])]


def test_what_rows_are_worth_and_how_wide_bands_are_is_measured(shops):
    model, _ = shops
    found = model.bundle.record.newcomers
    assert found.rows == (0, 1, 2, 4, 8, 16, PAST)
    assert found.series == 30
    # noise of a day has about half the deviation of levels within a group
    assert 0.125 <= found.worth <= 2
    assert found.widths[0] > 2
    assert found.widths[-1] == 1
    assert list(found.widths) == sorted(found.widths, reverse=True)
    assert found.errors[0] > 1.5 * found.errors[3] > 1.5 * found.errors[-1]


@pytest.mark.parametrize(("rows", "most"), [(0, 0.4), (1, 0.25), (8, 0.16)])
def test_the_bands_of_new_series_hold(shops, rows, most):
    """Of twenty shops at the end of the rows, which training has not seen; errors relative to the
    mean sales."""
    model, frame = shops
    truth = frame.pivot(index="shop", columns="day", values="sales").to_numpy()[:, -HORIZON:]
    last = frame["day"] > frame["day"].max() - pd.Timedelta(days=HORIZON)
    (question,) = read(model.form, frame.assign(sales=frame["sales"].mask(last))).questions()
    forecast, quantiles = model.forecast_quantiles(cut(question, rows), BAND)
    held = (truth >= quantiles[:, :, 0, 0]) & (truth <= quantiles[:, :, 0, 1])
    assert 0.6 <= held.mean() <= 0.97
    assert np.median(np.abs(truth - forecast[..., 0]) / truth.mean(axis=1)[:, None]) < most
