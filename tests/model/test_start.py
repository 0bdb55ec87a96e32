from functools import partial

import numpy as np
import pandas as pd
import pytest

from forecaster.config.run_config import load
from forecaster.evaluate.metrics import forecast_with, score
from forecaster.model.start import STARTS, untrained_error
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import examples, make_splits
from tests import shapes, small

pytestmark = pytest.mark.usefixtures("home")


def splits(table, *sets, horizon=12):
    table.to_csv("own.csv", index=False)
    loaded = load(None, list(sets), {"data": "own.csv", "horizon": horizon}, {})
    return make_splits(make_plan(*find_data(loaded, lambda _: None)))


def start(table, *sets, horizon=12):
    options = splits(table, *sets, horizon=horizon).plan.config.model.options
    return tuple(options[name] for name in STARTS[0])


def noise():
    """Weeks of daily values around a constant level."""
    days = np.arange(400)
    values = np.sin(days * 2 * np.pi / 7) + np.random.default_rng(0).normal(0, 1, 400)
    return pd.DataFrame({"when": pd.date_range("2020", periods=400), "value": values})


def test_what_grows_starts_at_its_changes_and_what_stays_at_its_mean():
    assert start(shapes.monthly()) == ("cycle", True, False)
    assert start(shapes.weekly(), horizon=26) == ("last", True, False)
    assert start(noise()) == ("cycle", False, True)
    card = small.splits().plan.config.model.options
    assert [card[name] for name in STARTS[0]] == ["cycle", False, True], "as its recipe says"


def test_what_is_named_is_kept():
    assert start(shapes.monthly(), "model.changes=false") == ("cycle", False, False)
    assert start(shapes.monthly(), "model.centre=last") == ("last", True, False)
    assert start(noise(), "model.shrink=false") == ("cycle", False, False)
    assert start(noise(), "model.normalise=none") == ("cycle", False, True)


def test_the_training_rows_alone_decide():
    table = shapes.daily()
    first = splits(table)
    rest = np.arange(len(table)) >= first.plan.borders.train
    turned = table.assign(value=np.where(rest, table["value"][::-1] ** 2, table["value"]))
    assert splits(turned).plan.config.model == first.plan.config.model
    grown = shapes.monthly()
    half = grown.assign(value=np.where(np.arange(144) < 100, noise()["value"][:144] + 9, 9e9))
    assert start(half)[1] is False


def test_the_error_is_that_of_the_training_windows():
    own = splits(shapes.monthly())
    task, windows = own.schema.task(*own.plan.config.window.lengths()), own.training("cpu")
    errors = []
    for chosen in STARTS:
        config = own.plan.config.changed(model=own.plan.config.model.options | chosen)
        errors.append(
            untrained_error(partial(config.build_model, task), windows.rows(), examples(windows))
        )
        wanted = score(
            forecast_with(small.planned(own, config=config).build_model().eval()), windows
        )
        assert errors[-1] == pytest.approx(wanted.mse, rel=1e-5)
    assert errors[1] == min(errors)
    # with what is known without training, of one and a half cycles
    own = splits(shapes.monthly(), "model.prior=true", "window.past=18")
    task, windows = own.schema.task(*own.plan.config.window.lengths()), own.training("cpu")
    model = own.build_model().eval()
    without = score(forecast_with(model), windows).mse
    model.prepare(windows.rows())
    wanted = score(forecast_with(model), windows).mse
    assert wanted != pytest.approx(without, rel=1e-4)
    build = partial(own.plan.config.build_model, task)
    assert untrained_error(build, windows.rows(), examples(windows)) == pytest.approx(
        wanted, rel=1e-5
    )
