"""Bundles of release 0.2.0 load, forecast and serve as they did with it."""

import json

import pandas as pd
import pytest

from forecaster import Forecaster
from forecaster_service.logs import LINES
from tests.equality import cases
from tests.equality.cases import KINDS, WRITTEN, assert_close, assert_same_table, kept
from tests.service.toy import start

LINES.at_once = True  # so that each line is in the output of its test
every = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with every bundle, and the question of each as a file."""
    folder = tmp_path_factory.mktemp("home")
    with cases.at(folder, theirs=True):
        for name in KINDS:
            cases.unpack(name, folder)
            (folder / f"{name}.csv").write_text(kept(name, "input.csv"))
        yield folder


@pytest.fixture(scope="module")
def service(home):
    """One service of all of them."""
    for name in KINDS:
        Forecaster.load(home / name, device="cpu")  # a service would wait for one that is refused
    models = ",".join(str(home / name) for name in KINDS)
    with start(model=models, device="cpu", poll_seconds=0, parts=("repeated",)) as client:
        yield client


@every
def test_the_library_forecasts_the_same(name, home):
    model = Forecaster.load(home / name, device="cpu")
    ahead = model.predict(home / f"{name}.csv", levels=cases.LEVELS)
    assert_same_table(pd.DataFrame(ahead), name)


@every
def test_the_service_answers_the_same(name, service):
    found = cases.answer(service, json.loads(kept(name, "request.json")))
    expected = json.loads(kept(name, "answer.json"))
    for mine, theirs in zip(found["predictions"], expected["predictions"], strict=True):
        std = [WRITTEN["std"][name][column] for column in theirs["columns"]]
        for level, values in theirs.pop("quantiles").items():
            assert_close(mine["quantiles"].pop(level), values, std, level)
        assert mine.pop("quantiles") == {}
        middle = "mean" if "mean" in theirs else "median"
        assert_close(mine.pop(middle), theirs.pop(middle), std, middle)
    assert found == expected
