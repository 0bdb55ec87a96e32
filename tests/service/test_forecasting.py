"""Missing values, covariates, attributes and panels, for every kind of model."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

from forecaster.forecast.predictor import Predictor
from forecaster.forecast.questions import Question
from tests.service.toy import HORIZON, KINDS, NAME, PAST, make_bundle, start

Body = dict[str, Any]
Serve = Callable[..., tuple[TestClient, Predictor, Body]]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """For a kind of model: a client, the model itself, and a series that it accepts."""
    made: dict[tuple[str, str], tuple[TestClient, Predictor, Body]] = {}
    with ExitStack() as stack:

        def served(kind: str, model: str = "informer") -> tuple[TestClient, Predictor, Body]:
            if (kind, model) not in made:
                folder = tmp_path_factory.mktemp("kinds") / kind
                make_bundle(folder, model=model, **KINDS[kind])
                client = stack.enter_context(start(model=str(folder)))
                body = client.get(f"/models/{NAME}/example").json()
                made[kind, model] = client, Predictor.load(folder, "cpu"), body["inputs"][0]
            client, forecaster, series = made[kind, model]
            return client, forecaster, deepcopy(series)

        yield served


def ask(client: TestClient, *inputs: Body) -> Body:
    answer = client.post("/predict", json={"inputs": list(inputs)})
    assert answer.status_code == 200, answer.text
    body: Body = answer.json()
    return body


def means(client: TestClient, *inputs: Body) -> list[np.ndarray]:
    return [np.array(each["mean"]) for each in ask(client, *inputs)["predictions"]]


def refused(client: TestClient, series: Body) -> Body:
    answer = client.post("/predict", json=series)
    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 6000
    problem: Body = answer.json()
    return problem


class TestMissing:
    @pytest.mark.parametrize("model", ["informer", "tokens"])
    def test_they_are_masked_and_counted(self, serve: Serve, model: str) -> None:
        client, forecaster, series = serve("plain", model)
        complete = np.array(series["target"])
        for row, column in ((0, 1), (20, 0), (20, 2)):
            series["target"][row][column] = None
        answer = ask(client, series)
        assert answer["warnings"] == ["inputs[0]: 3 missing values of 72 were masked"]
        (notice,) = answer["notices"]
        assert (notice["code"], notice["input"]) == ("missing_masked", 0)
        history = np.array(series["target"], dtype=float)[None]
        starts = pd.DatetimeIndex([series["start"]])
        expected = forecaster.forecast_quantiles(Question(history, starts))[0][0]
        np.testing.assert_array_equal(answer["predictions"][0]["mean"], expected)
        other, _ = forecaster.forecast_quantiles(Question(complete[None], starts))
        assert not np.allclose(expected, other[0])

    def test_one_in_a_flat_list(self, serve: Serve) -> None:
        client, _, series = serve("panel")
        series["target"] = [row[0] for row in series["target"]]
        series["target"][-1] = None
        answer = client.post("/predict", json=series).json()
        assert answer["warnings"] == ["1 missing value of 24 was masked"]
        assert np.shape(answer["predictions"][0]["mean"]) == (HORIZON,)

    @pytest.mark.parametrize("model", ["informer", "tokens"])
    def test_those_of_one_series_do_not_touch_the_others(self, serve: Serve, model: str) -> None:
        client, _, series = serve("plain", model)
        gappy = deepcopy(series)
        gappy["target"][3:9] = [[None] * 3] * 6
        gappy["target"][12][1] = None
        (alone,), (masked,) = means(client, series), means(client, gappy)
        together = means(client, gappy, series, gappy)
        np.testing.assert_allclose(together[1], alone, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(together[0], masked, rtol=1e-5, atol=1e-5)
        assert not np.allclose(alone, masked)

    def test_a_column_without_any_value_is_refused(self, serve: Serve) -> None:
        client, _, series = serve("plain")
        series["target"] = [[1.0, 2.0, 3.0]] + [[a, None, c] for a, _, c in series["target"]]
        problem = refused(client, series)
        assert problem["errors"][0]["loc"] == ["target"]
        assert "column 'wind' has no value at all in the newest 24 rows" in problem["detail"]

    def test_those_before_the_look_back_are_not_counted(self, serve: Serve) -> None:
        client, _, series = serve("plain")
        longer = {**series, "target": [[None] * 3] + series["target"]}
        assert ask(client, longer)["warnings"] == ["inputs[0]: the newest 24 of 25 rows were used"]


class TestPastCovariates:
    def test_apart_or_among_the_columns_they_are_the_same(self, serve: Serve) -> None:
        client, _, series = serve("past")
        assert series["columns"] == ["Zürich °C"]
        apart = series["past_covariates"]
        apart["wind"][5] = None
        ready = zip(apart["load"], apart["wind"], series["target"], strict=True)
        whole = {
            **{name: series[name] for name in ("item_id", "start")},
            "target": [[load, wind, *row] for load, wind, row in ready],
        }
        partly = {
            **series,
            "columns": ["Zürich °C", "load"],
            "target": [[row[2], row[0]] for row in whole["target"]],
            "past_covariates": {"wind": apart["wind"]},
        }
        unnamed = {name: value for name, value in series.items() if name != "columns"}
        flat = {**unnamed, "target": [row[0] for row in series["target"]]}
        expected = means(client, whole)[0]
        for other in (series, partly, unnamed):
            np.testing.assert_array_equal(means(client, other)[0], expected)
        np.testing.assert_array_equal(means(client, flat)[0], expected[:, 0])
        assert ask(client, partly)["warnings"] == ["inputs[0]: 1 missing value of 72 was masked"]

    @pytest.mark.parametrize(
        ("change", "loc", "words"),
        [
            ({"wind": [1.0] * 23}, ["past_covariates", "wind"], ["24 values, one per row"]),
            ({"wind": [None] * 24}, ["past_covariates", "wind"], ["'wind' has no value at all"]),
            ({"wnd": [1.0] * 24}, ["past_covariates"], ["load, wind", "Did you mean 'wind'?"]),
            ({"Zürich °C": [1.0] * 24}, ["past_covariates"], ["expected load, wind unless"]),
        ],
    )  # fmt: skip
    def test_what_does_not_fit_is_named(
        self, serve: Serve, change: Body, loc: list[str], words: list[str]
    ) -> None:
        client, _, series = serve("past")
        series["past_covariates"].update(change)
        problem = refused(client, series)
        assert problem["errors"][0]["loc"] == loc
        for word in words:
            assert word in problem["detail"]

    def test_one_that_is_left_out_may_still_be_given(self, serve: Serve) -> None:
        client, _, series = serve("past")
        del series["past_covariates"]["wind"]
        problem = refused(client, series)
        assert problem["errors"][0]["loc"] == ["columns"]
        assert "missing: wind" in problem["detail"]


class TestKnownAhead:
    @pytest.mark.parametrize("kind", ["ahead", "attributes", "all"])
    def test_forecast_is_the_one_of_the_library(self, serve: Serve, kind: str) -> None:
        client, forecaster, series = serve(kind)
        expected = forecaster.predict(forecaster.example)[list(forecaster.schema.targets)]
        np.testing.assert_array_equal(means(client, series)[0], expected.to_numpy())

    def test_words_are_columns_of_0_and_1(self, serve: Serve) -> None:
        client, forecaster, series = serve("words")
        assert series["past_covariates"]["mood"] == ["bad"] * PAST
        assert series["future_covariates"]["sky"] == ["clear"] * HORIZON
        expected = forecaster.predict(forecaster.example)[["load"]]
        np.testing.assert_array_equal(means(client, series)[0], expected.to_numpy())
        parted = deepcopy(series)
        for role in ("past_covariates", "future_covariates"):
            sky = parted[role].pop("sky")
            parted[role] |= {"sky=clear": [1.0] * len(sky), "sky=rain": [0.0] * len(sky)}
        np.testing.assert_array_equal(means(client, parted)[0], expected.to_numpy())
        other = deepcopy(series)
        other["future_covariates"]["sky"][3] = "rain"
        other["past_covariates"]["mood"][5:] = [None, "good"] * 9 + [None]
        frame = forecaster.example.astype(object)
        frame.loc[PAST + 3, "sky"] = "rain"
        frame.loc[5 : PAST - 1, "mood"] = [None, "good"] * 9 + [None]
        frame["load"] = frame["load"].astype(float)
        expected = forecaster.predict(frame)[["load"]]
        np.testing.assert_array_equal(means(client, other)[0], expected.to_numpy())

    @pytest.mark.parametrize(
        ("role", "change", "loc", "words"),
        [
            ("future", {"sky": ["clear"] * 5 + ["hail"]}, ["sky", 5], "value 6: .* clear, rain"),
            ("future", {"sky": [1.0] * 6}, ["sky", 0], "value 1: expected one of clear, rain"),
            ("future", {"sky": ["rain", None] * 3}, ["sky", 1], "value 2: null is not allowed"),
            ("future", {"sky": ["rain", 1] * 3}, ["sky", 1], "expected a string"),
            ("future", {"holiday": ["no"] * 6}, ["holiday", 0], "value 1: expected a number"),
            ("past", {"holiday": [None] + ["no"] * 23}, ["holiday", 1], "value 2: .* a number"),
            ("past", {"mood": ["meh"] * 24}, ["mood", 0], "expected one of bad, good"),
            ("future", {"sky": None}, [], r"expected holiday, sky; missing: sky\."),
            ("future", {"skye": ["rain"] * 6}, [], "Did you mean 'sky'"),
        ],
    )
    def test_words_that_do_not_fit_are_named(
        self, serve: Serve, role: str, change: Body, loc: list[str | int], words: str
    ) -> None:
        client, _, series = serve("words")
        given = {**series[f"{role}_covariates"], **change}
        given = {name: values for name, values in given.items() if values is not None}
        problem = refused(client, {**series, f"{role}_covariates": given})
        assert problem["errors"][0]["loc"] == [f"{role}_covariates", *loc]
        assert re.search(words, problem["errors"][0]["msg"])

    def test_it_matters_at_every_step_and_belongs_to_its_series(self, serve: Serve) -> None:
        client, _, series = serve("ahead")
        others = []
        for role, place in (("past_covariates", 2), ("future_covariates", 5)):
            other = deepcopy(series)
            other[role]["holiday"][place] += 1
            others.append(other)
        together = means(client, *others, series)
        for one, body in zip(together, (*others, series), strict=True):
            np.testing.assert_allclose(one, means(client, body)[0], rtol=1e-5, atol=1e-5)
        assert not np.allclose(together[0], together[2])
        assert not np.allclose(together[1], together[2])

    def test_the_newest_belong_to_the_newest_rows(self, serve: Serve) -> None:
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

    @pytest.mark.parametrize(
        ("role", "change", "loc", "words"),
        [
            ("future", {"holiday": [0.0] * 2}, ["holiday"],
             ["expected 6 values, one per step of the model's horizon", "got 2"]),
            ("future", {"holiday": [0.0] * 7}, ["holiday"], ["got 7"]),
            ("future", {"hollyday": [0.0] * 6}, [], ["expected holiday, target;", "Did you mean"]),
            ("future", {"holiday": None}, [], ["missing: holiday"]),
            ("past", {"holiday": None}, [], ["missing: holiday"]),
            ("past", {"holiday": [0.0] * 23}, ["holiday"],
             ["expected 24 values, one per row of target", "got 23"]),
            ("future", {"holiday": [None] + [0.0] * 5}, ["holiday", 0], ["value 1", "complete"]),
            ("past", {"holiday": [0.0] * 3 + [None] * 21}, ["holiday", 3], ["value 4", "complete"]),
            ("past", {"holiday": [0.0] * 23 + [None]}, ["holiday", 23], ["value 24"]),
            ("past", {"load": [0.0] * 24}, [], ["expected holiday, target; name 3 is unknown"]),
        ],
    )  # fmt: skip
    def test_what_does_not_fit_is_named(
        self, serve: Serve, role: str, change: Body, loc: list[str | int], words: list[str]
    ) -> None:
        client, _, series = serve("ahead")
        given = {**series[f"{role}_covariates"], **change}
        given = {name: values for name, values in given.items() if values is not None}
        body = {**series, f"{role}_covariates": given, "prediction_length": 2}
        problem = refused(client, body)
        assert problem["errors"][0]["loc"] == [f"{role}_covariates", *loc]
        for word in words:
            assert word in problem["detail"]

    def test_all_of_the_horizon_is_needed_for_fewer_steps(self, serve: Serve) -> None:
        client, _, series = serve("ahead")
        answer = client.post("/predict", json={**series, "prediction_length": 2}).json()
        expected = means(client, series)[0][:2]
        np.testing.assert_array_equal(answer["predictions"][0]["mean"], expected)


class TestAttributes:
    @pytest.mark.parametrize(
        ("change", "loc", "words"),
        [
            ({"kind": "inn"}, ["kind"], "expected one of in, out"),
            ({"kind": 1}, ["kind"], "expected one of in, out"),
            ({"size": "large"}, ["size"], "expected a number"),
            ({"size": "100"}, ["size"], "expected a number"),
            ({"size": None}, ["size"], "expected a number or a word"),
            ({"size": [1]}, ["size"], "expected a number or a word"),
            ({"size": True}, ["size"], "expected a number or a word"),
            ({"sise": 1.0}, [], "expected size, kind"),
        ],
    )
    def test_what_does_not_fit_is_named(
        self, serve: Serve, change: Body, loc: list[str], words: str
    ) -> None:
        client, _, series = serve("attributes")
        series["static_covariates"].update(change)
        problem = refused(client, series)
        assert problem["errors"][0]["loc"] == ["static_covariates", *loc]
        assert words in problem["detail"]

    def test_they_matter_and_must_be_there(self, serve: Serve) -> None:
        client, _, series = serve("attributes")
        other = {**series, "static_covariates": {"kind": "out", "size": 300}}
        assert not np.allclose(*means(client, series, other))
        assert (
            "missing: kind"
            in refused(client, {**series, "static_covariates": {"size": 1}})["detail"]
        )


class TestPanels:
    @pytest.mark.parametrize("kind", ["panel", "wide"])
    def test_each_series_has_its_own_scale(self, serve: Serve, kind: str) -> None:
        client, forecaster, series = serve(kind)
        target = np.array(series["target"])
        items = list(forecaster.schema.items)
        bodies = [
            {**series, "item_id": item, "target": (target + 100 * place).tolist()}
            for place, item in enumerate(items)
        ]
        answer = ask(client, *bodies)
        assert answer["warnings"] == []
        assert [each["item_id"] for each in answer["predictions"]] == items
        first = np.array(answer["predictions"][0]["mean"])
        for place, each in enumerate(answer["predictions"]):
            np.testing.assert_allclose(each["mean"], first + 100 * place, rtol=1e-5)

    def test_one_that_is_not_known_is_scaled_by_its_history(self, serve: Serve) -> None:
        client, _, series = serve("panel")
        other = {**series, "item_id": "Zürich 2"}
        unnamed = {**series, "item_id": None}
        answer = ask(client, series, other, unnamed)
        words = "it is scaled by its own history: no series in training had its name"
        assert answer["warnings"] == [f"inputs[1]: {words}", f"inputs[2]: {words}"]
        assert answer["notices"] == [
            {"code": "own_scale", "input": place, "text": words} for place in (1, 2)
        ]
        known, new, nameless = (np.array(each["mean"]) for each in answer["predictions"])
        np.testing.assert_allclose(new, nameless, rtol=1e-5)
        assert not np.allclose(known, new)
        grown = {**other, "target": (np.array(series["target"]) * 1000).tolist()}
        np.testing.assert_allclose(means(client, grown)[0], new * 1000, rtol=1e-5)

    def test_a_name_is_plain_or_one_of_the_model(self, serve: Serve) -> None:
        client, _, series = serve("panel")
        assert ask(client, {**series, "item_id": "../c d"})["warnings"] == []
        for name in ("../c", "a/b", "%2e", " a", "a\0", "a\n", "a" * 129):
            problem = refused(client, {**series, "item_id": name})
            assert problem["errors"][0]["loc"] == ["item_id"]

    def test_the_columns_of_the_file_are_inputs_of_their_own(self, serve: Serve) -> None:
        client, _, series = serve("wide")
        for body in (
            {**series, "columns": None, "target": [[1.0, 2.0, 3.0]] * PAST},
            {**series, "columns": ["Bern", "None"], "target": [[1.0, 2.0]] * PAST},
        ):
            assert "example shows a request that fits" in refused(client, body)["detail"]


def test_series_of_different_contents_run_together(serve: Serve) -> None:
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


def test_a_new_series_of_two_columns_has_plain_parts(serve: Serve) -> None:
    client, _, series = serve("two ids")
    answer = ask(client, {**series, "item_id": "South / Basel"})
    assert answer["predictions"][0]["item_id"] == "South / Basel"
    for name in ("South / a/b", "South/Basel", "South / "):
        problem = refused(client, {**series, "item_id": name})
        assert problem["errors"][0]["loc"] == ["item_id"]


@pytest.mark.parametrize("role", ["past_covariates", "future_covariates", "static_covariates"])
def test_a_model_without_covariates_takes_none(serve: Serve, role: str) -> None:
    client, _, series = serve("plain")
    series[role] = {"holiday": 1 if role == "static_covariates" else [1, 0]}
    problem = refused(client, series)
    assert problem["errors"][0]["loc"] == [role]
    assert "expected none; name 1 is unknown" in problem["detail"]
    assert ask(client, {**series, role: {}})["warnings"] == []


@pytest.mark.parametrize("kind", ["plain", "panel", "all"])
@pytest.mark.parametrize("huge", [1e300, 1.7e308, -1e300])
def test_numbers_beyond_float32_are_refused(serve: Serve, kind: str, huge: float) -> None:
    client, _, series = serve(kind)
    width = len(series["target"][0])
    bodies = [
        {**series, "target": [[huge] * width] * PAST},
        {**series, "item_id": "new", "target": [[huge] * width, *series["target"][1:]]},
    ]
    for role in ("past_covariates", "future_covariates", "static_covariates"):
        for name, values in series[role].items():
            if not isinstance(values, str):
                changed = [huge] * len(values) if isinstance(values, list) else huge
                bodies.append({**series, role: {**series[role], name: changed}})
    for body in bodies:
        refused(client, body)
