"""New series of a panel over HTTP: with any number of rows, none included."""

import numpy as np
import pandas as pd
import pytest

from forecaster.client import Client
from forecaster.forecast.predictor import Predictor, keep
from forecaster.forecast.question import Question
from tests.forecast.test_newcomers import asked, rows_of, taught
from tests.service.routes.test_read import posted
from tests.service.test_inputs import ask
from tests.service.toy import KINDS, PAST, make_bundle, refused, start
from tests.test_client import serving

ROWS = (0, 1, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("new")
    keep(taught(make_bundle(path, **KINDS["all"])), path)
    return path


@pytest.fixture(scope="module")
def model(folder) -> Predictor:
    return Predictor.load(folder, "cpu")


@pytest.fixture(scope="module")
def client(folder):
    with start(model=str(folder)) as client:
        yield client


def sent(model, rows: int, name: str = "new"):
    (series,) = asked(model, 2, rows, name).to_json(model.form)
    return series


def test_it_is_forecast_as_in_the_library(client, model):
    """By default, and from an empty target: `start` is the first step ahead then."""
    series = [sent(model, rows) for rows in ROWS]
    assert series[0]["target"] == []
    answer = ask(client, *series)
    for place, rows in enumerate(ROWS):
        expected, _ = model.forecast_quantiles(asked(model, 2, rows))
        found = answer["predictions"][place]
        np.testing.assert_allclose(found["mean"], expected[0], rtol=1e-5, atol=1e-5)
        assert found["start"] == answer["predictions"][0]["start"] == series[0]["start"]
    assert [notice["code"] for notice in answer["notices"]] == ["new_series"] * 3
    again = Question.from_json(series, {}, model)
    assert [*again.rows] == [*ROWS]


def test_what_cannot_be_forecast_is_refused(client, model):
    known = sent(model, 5, model.schema.items[0])
    empty = {**sent(model, 5), "target": [[None] * 3] * 5}
    unknown = {**sent(model, 1), "static_covariates": {"size": 100, "kind": "north"}}
    (code,) = {
        refused(client, {"inputs": [series], "parameters": parameters})["errors"][0]["type"]
        for series, parameters in [(known, {}), (sent(model, 5), {"short_history": "refuse"})]
    }
    assert code == "too_short"
    problem = refused(client, {"inputs": [unknown]})
    assert "expected one of in, out" in problem["detail"]
    assert ask(client, empty)["notices"]


def test_a_file_with_one_is_read_and_the_client_answers_as_the_library(client, model, folder):
    few, none = rows_of(model, "few", 2), rows_of(model, "none", 0)
    frame = pd.concat([rows_of(model, model.schema.items[0], PAST), few, none])
    for item, rows in (("few", 2), ("none", 0)):
        for apart in ({}, {"future": "apart"}):
            found = posted(client, frame.to_csv(index=False), item=item, **apart)
            assert (found["rows"], len(found["series"]["target"])) == (rows, rows)
            (answer,) = ask(client, found["series"])["predictions"]
            assert answer["start"] == frame["time"].iloc[PAST].isoformat()
    heard = []
    with serving(folder) as url:
        ahead = Client(url).predict(frame, say=heard.append)
    pd.testing.assert_frame_equal(ahead, model.predict(frame), rtol=1e-5)
    assert [sentence.code for sentence in heard if hasattr(sentence, "code")] == ["new_series"]
