"""What a request may say in several ways; test_client.py compares each kind with its model."""

from copy import deepcopy

import numpy as np
import pandas as pd

from tests.service.toy import HORIZON, PAST


def ask(client, *inputs):
    answer = client.post("/predict", json={"inputs": list(inputs)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def means(client, *inputs):
    return [np.array(each["mean"]) for each in ask(client, *inputs)["predictions"]]


def test_past_covariates_apart_or_among_the_columns_are_the_same(serve):
    client, _, series = serve("past")
    assert series["columns"] == ["Zürich °C"]
    apart = series["past_covariates"]
    apart["wind"][5] = None
    ready = zip(apart["load"], apart["wind"], series["target"], strict=True)
    table = [[load, wind, *row] for load, wind, row in ready]
    whole = {"item_id": series["item_id"], "start": series["start"], "target": table}
    partly = {
        **series,
        "columns": ["Zürich °C", "load"],
        "target": [[row[2], row[0]] for row in table],
        "past_covariates": {"wind": apart["wind"]},
    }
    unnamed = {name: value for name, value in series.items() if name != "columns"}
    flat = {**unnamed, "target": [row[0] for row in series["target"]]}
    expected, *others = (means(client, each)[0] for each in (whole, series, partly, unnamed))
    for other in others:
        np.testing.assert_array_equal(other, expected)
    np.testing.assert_array_equal(means(client, flat)[0], expected[:, 0])
    assert ask(client, partly)["warnings"] == ["inputs[0]: 1 missing value of 72 was masked"]
    flat["target"][-1] = None
    answer = client.post("/predict", json=flat).json()
    assert answer["warnings"] == ["2 missing values of 72 were masked"]


def test_the_newest_known_ahead_belong_to_the_newest_rows(serve):
    client, _, series = serve("ahead")
    before = pd.Timestamp(series["start"]) - pd.Timedelta("2h")
    longer = {
        **series,
        "start": before.isoformat(),
        "target": [[7.0], [None], *series["target"]],
        "past_covariates": {
            name: [9.0, None, *values] for name, values in series["past_covariates"].items()
        },
    }
    np.testing.assert_array_equal(means(client, longer)[0], means(client, series)[0])


def test_words_may_be_columns_of_0_and_1(serve):
    client, _, series = serve("words")
    parted = deepcopy(series)
    for role in ("past_covariates", "future_covariates"):
        sky = parted[role].pop("sky")
        parted[role] |= {"sky=clear": [1.0] * len(sky), "sky=rain": [0.0] * len(sky)}
    np.testing.assert_array_equal(*means(client, series, parted))


def test_series_of_different_contents_run_together(serve):
    client, forecaster, series = serve("all")
    random = np.random.default_rng(0)
    bodies = []
    for number in range(6):
        body = deepcopy(series)
        body["item_id"] = ["new", *forecaster.schema.items][number % 4]
        body["start"] = f"2026-0{number + 1}-05T03:00:00"
        target = np.array(body["target"]) + random.normal(size=(PAST, 2))
        body["target"] = target.tolist()
        if number % 2:
            body["target"][number] = [None, 1.0]
        body["static_covariates"] = {"size": 10.0 * number, "kind": ("in", "out")[number % 2]}
        body["future_covariates"]["holiday"] = random.integers(0, 2, HORIZON).tolist()
        bodies.append(body)
    answer = ask(client, *bodies)
    assert answer["timing"]["batch_size"] == 6
    for each, body in zip(answer["predictions"], bodies, strict=True):
        (alone,) = means(client, body)
        np.testing.assert_allclose(each["mean"], alone, rtol=1e-5, atol=1e-5)
