"""Questions from JSON and back, in parts and joined; the service's tests have all refusals."""

import numpy as np
import pytest

from forecaster.forecast.golden import question
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.question import Question, Refusal, concatenate
from tests.service.toy import HORIZON, KINDS, PAST, make_bundle


@pytest.fixture(scope="module", params=[*KINDS])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    return Predictor(make_bundle(folder, **KINDS[request.param]), "cpu")


def same(one, other):
    np.testing.assert_array_equal(one.values, other.values)
    assert [*one.starts] == [*other.starts]
    if one.covariates is not None:
        np.testing.assert_allclose(one.covariates, other.covariates)
    assert {**one.static} == {**other.static}
    assert [*one.rows] == [*other.rows]


@pytest.fixture
def asked(model):
    """What is asked in JSON about made-up histories."""
    histories = question(model.schema, PAST, HORIZON, range(6))
    inputs = Question.to_json(
        Question(
            histories.values, histories.starts, histories.covariates, histories.static,
            histories.items or [None] * 6, [PAST] * 6,
        ),
        model.form,
    )  # fmt: skip
    return Question.from_json(inputs, {}, model)


def test_it_is_the_same_after_json(model, asked):
    assert model.form.known == model.schema.known.columns
    assert model.form.targets == model.schema.targets
    same(Question.from_json(asked.to_json(model.form), {}, model), asked)


def test_parts_are_the_whole_again(asked):
    parts = [asked[:2], asked[2:3], asked[3:]]
    same(concatenate(parts), asked)
    assert [str(n) for n in concatenate(parts).notices] == [*map(str, asked.notices)]
    assert [n.place for n in concatenate(parts).notices] == [n.place for n in asked.notices]
    assert asked[:] is asked


def test_all_that_does_not_fit_is_refused_at_once(model, asked):
    inputs = [*asked.to_json(model.form)[:2]]
    inputs[1] = {**inputs[1], "start": "yesterday"}
    with pytest.raises(Refusal, match="at most 6 steps") as caught:
        Question.from_json(inputs, {"prediction_length": 7, "freq": "D"}, model)
    others = [(each.path, each.code) for each in caught.value.others]
    assert caught.value.path == ("parameters", "prediction_length")
    assert others == [(("parameters", "freq"), "other_freq"), (("inputs", 1, "start"), "start")]
