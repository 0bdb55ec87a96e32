"""Traps of published benchmarks, tested with the whole sequence on a small series."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.base.errors import UsageError
from forecaster.config.run_config import RunConfig
from forecaster.datasets.card import SplitRule
from forecaster.datasets.dataset import Dataset, Series
from forecaster.datasets.reading import Reading
from forecaster.datasets.scaling import Scaler
from forecaster.evaluate.judge import judge
from forecaster.evaluate.metrics import forecast_with, score
from forecaster.parts import Blend, Network
from forecaster.parts.base import forecast_of
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.run.train import make_blend, train_network
from tests import small

ROWS, TRAIN, VALIDATION, TEST = 420, 240, 320, 400
COLUMNS = ("a", "b", "c")
CYCLE = {"name": "tokens", "parts": 3, "width": 8, "feed_forward": 8, "encoder_layers": 1}
INFORMER = {"name": "informer", "width": 8, "heads": 2, "feed_forward": 8}
both = pytest.mark.parametrize("model", [CYCLE, INFORMER], ids=["cycle", "informer"])


def values():
    random = np.random.default_rng(0)
    steps = np.arange(ROWS)[:, None]
    cycles = np.sin(steps * np.pi / 6) + np.sin(steps * np.pi / 8)
    noise = random.normal(size=(ROWS, 3))
    return 20 + cycles * [1.0, 5.0, 0.2] + 0.3 * noise + 0.02 * noise.cumsum(axis=0)


def splits(data, model=CYCLE, features="M"):
    config = RunConfig.model_validate({
        "window": {"past": 36, "horizon": 14},
        "model": model,
        "attn": {"name": "prob", "factor": 1},
        "train": {"epochs": 2, "batch": 16, "lr": 3e-3, "schedule": "constant"},
        "data": {"features": features},
    })  # fmt: skip
    times = pd.date_range("2020-01-01", periods=ROWS, freq="h", unit="us")
    series = Series(data, times, COLUMNS, "h", "generated")
    reading = Reading(time="date", targets=COLUMNS, freq="h", seasons=(12,), timezone="naive")
    targets = COLUMNS if features == "M" else ("b",)
    dataset = Dataset(
        name="small", reading=reading, series=series, targets=targets, features="M",
        main_target="b", said=(), counts={}, split=SplitRule(rows=(TRAIN, VALIDATION, TEST)),
    )  # fmt: skip
    return make_splits(make_plan(config, dataset))


def blending(posed, name):
    """The same windows, for a forecast of one part."""
    return small.planned(posed, config=posed.plan.config.model_copy(update={"blend": name}))


def blended(posed):
    """Everything that was tried, the served blend, and every choice, tensor and weight as bytes."""
    model, _ = train_network(posed, "cpu")
    tried, served, found = make_blend(posed, model, "cpu", lambda said: None)
    weighed = {name: own.to_dict() for name, own in found.items()}
    kept = [json.dumps([part.settings for part in tried] + [weighed, served.names]).encode()]
    for part in [*tried, served]:
        kept += [value.numpy().tobytes() for value in part.state_dict().values()]
    return tried, served, [*kept, served.weights.numpy().tobytes()]


@both
def test_only_what_stops_training_chooses(model):
    """Parts, penalties, cycles, weights and the network; the calibrating half chooses nothing."""
    posed = splits(values(), model)
    stop, calibrate = posed.stopping("cpu"), posed.calibrating("cpu")
    assert (stop.first, stop.last, calibrate.first) == (TRAIN, 280, 280)
    scaler, known = Scaler.fit(values()[:TRAIN]), posed.schema.scaler
    assert [*known.mean, *known.std] == pytest.approx([*scaler.mean, *scaler.std], rel=1e-12)
    found = []
    for first, last in ((ROWS, ROWS), (280, ROWS), (TRAIN, 280)):
        noisy = values()
        random = np.random.default_rng(1)
        noisy[first:last] = 1000 * random.normal(size=(last - first, 3))
        found.append(blended(splits(noisy, model))[2])
    assert found[1] == found[0]
    assert found[2] != found[0]


def test_no_part_sees_more_than_the_look_back():
    posed = splits(values())
    past = posed.plan.config.window.lengths()[0]
    tried, served, _ = blended(posed)
    assert served.needs <= past
    assert all(part.past <= past and part.needs <= past for part in tried)
    older = values()[:TEST]
    older[: VALIDATION - past] = 1000.0
    scaler = posed.schema.scaler
    scaled = torch.from_numpy(scaler.transform(older).astype(np.float32))
    test = posed.test("cpu")
    batches = [each.batch(torch.tensor([0])) for each in (test, replace(test, values=scaled))]
    with torch.inference_mode():
        for part in [*tried, served]:
            one, other = (forecast_of(part, batch) for batch in batches)
            assert torch.equal(one, other)


def test_without_a_blend_the_network_is_the_forecast_bit_for_bit():
    posed = splits(values())
    tried, served, _ = blended(posed)
    alone = blending(posed, "none")
    same, network, _ = blended(alone)
    assert (network.names, len(same)) == (("network",), len(tried))
    batch = posed.test("cpu").batch(torch.arange(9))
    with torch.inference_mode():
        assert torch.equal(network(*batch.inputs), tried[-1](*batch.inputs))
    given = (posed, served, tried), (alone, network, same)
    found = (judge(each, model, "cpu", parts=parts).backtest for each, model, parts in given)
    mixed, own = (backtest.to_dict() for backtest in found)
    assert own["mse"] == own["network"]["mse"] == mixed["network"]["mse"] != mixed["mse"]
    ridges = [each["floors"]["ridge, 36"] for each in (mixed, own)]
    assert (ridges[0]["mse"], ridges[1]["weight"]) == (ridges[1]["mse"], 0)


def test_one_part_by_its_name_is_the_forecast_and_the_others_are_judged():
    posed = splits(values())
    named = small.planned(
        posed, config=posed.plan.config.model_copy(update={"blend": "level ridge"})
    )
    tried, served, _ = blended(named)
    ridges = [part.name for part in tried if part.name.startswith("level ridge")]
    errors = {name: score(forecast_with(own), posed.stopping("cpu")).mse for name, own in
              zip((part.name for part in tried), tried, strict=True) if name in ridges}  # fmt: skip
    assert served.names == (min(errors, key=lambda name: errors[name]),)
    found = judge(named, served, "cpu", parts=tried).backtest
    assert found.mse == found.floors[served.names[0]].mse
    assert found.network.verdict.startswith("The network has no share")
    other = small.planned(
        posed, config=posed.plan.config.model_copy(update={"blend": "weekly drift"})
    )
    with pytest.raises(UsageError, match=r"--blend 'weekly drift': these data"):
        blended(other)


@pytest.mark.parametrize("features", ["M", "S", "MS"])
@both
def test_every_test_window_is_scored_at_any_batch_size(model, features):
    posed = splits(values(), model, features)
    network = posed.build_model().eval()
    judged = judge(posed, Blend.alone(Network(network)), "cpu").backtest.to_dict()
    assert judged["windows"] == TEST - VALIDATION - 14 + 1
    assert list(judged["columns"]) == (list(COLUMNS) if features == "M" else ["b"])
    scores = [score(forecast_with(network), posed.test("cpu"), size) for size in (1, 32, 2048)]
    for got in scores:
        assert got.windows == judged["windows"]
        assert got.squared.shape == (14, 3 if features == "M" else 1)
        assert (got.mse, got.mae) == pytest.approx((judged["mse"], judged["mae"]), abs=1e-6)
        np.testing.assert_allclose(got.by_window, scores[0].by_window, atol=1e-6)


@both
def test_columns_that_never_change_are_no_trouble(model):
    for still in ([0], [0, 1, 2]):
        data = values()
        data[:, still] = 7.0
        posed = splits(data, model)
        network, fitted = train_network(posed, "cpu")
        assert math.isfinite(fitted.validation_mse)
        report = judge(posed, Blend.alone(Network(network)), "cpu").backtest.to_dict()
        json.dumps(report, allow_nan=False)
        assert report["columns"]["a"]["mase"] is None
