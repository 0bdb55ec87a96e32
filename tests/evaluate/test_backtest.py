import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.datasets.dataset import Items
from forecaster.datasets.scaling import Scaler
from forecaster.datasets.windows import Windows
from forecaster.evaluate import backtest
from forecaster.evaluate.backtest import Evaluation
from forecaster.evaluate.metrics import Score, interval_text, scores

HORIZON, BORDER = 4, 100


def constant(value):
    return lambda batch: torch.full_like(batch.target, value)


def share(factor):
    return lambda batch: factor * batch.target


zero, half, better, worse = constant(0.0), constant(0.5), share(0.5), share(-0.5)


def level(batch):
    """Half the windows are better than zero, half worse by the same amount."""
    factor = (1 + 0.5 * batch.past[:, 0, 0].sign()).sqrt()
    return (1 - factor)[:, None, None] * batch.target


def together(*forecasts):
    return lambda batch: [forecast(batch) for forecast in forecasts]


def evaluate(forecasts, test, targets, scaler, naive, *, floors, network=False, without=(), **more):
    """The forecasts of a batch are those of the model, of the floors, of the network alone, and of
    the model without each of some kinds."""
    model, *others = scores(forecasts, test)
    alone, rests = others[: len(floors)], others[len(floors) + network :]
    return Evaluation(
        model=model, every=test.every, floors=dict(zip(floors, alone, strict=True)), chosen=floors,
        targets=targets, scaler=scaler, naive=naive, items=test.items and test.items.names,
        network=others[len(floors)] if network else None,
        without=dict(zip(without, rests, strict=True)), **more,
    )  # fmt: skip


def judged(model, *others, rows=300, scale=1.0, naive=(0.5, 2.0), **blend):
    """`model` on random columns beside two floors, of which "zero" is the better one."""
    values = scale * torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))
    test = Windows(values, torch.zeros(rows, 1), 8, HORIZON, BORDER, rows, (2, 0))
    scaler, forecasts = Scaler((0.0, 1.0), (10.0, 3.0)), together(model, zero, half, *others)
    blend["floors"] = {"zero": "", "half": ""}
    return evaluate(forecasts, test, ("OT", "load"), scaler, np.array(naive), **blend)


@pytest.mark.parametrize(
    ("model", "outcome", "than", "lost_to"),
    [
        (better, "better", "than", []),
        (worse, "worse", "than", ["zero", "half"]),
        (level, "no measurable difference", "from", []),
        (zero, "no measurable difference", "from", []),
    ],
)
def test_the_verdict_says_what_was_measured(model, outcome, than, lost_to):
    got = judged(model)
    text, (low, high) = got.verdict(), got.against_best
    assert got.backtest.outcome == outcome
    opening = f"{outcome.capitalize()} {than} the best floor, zero: MSE {got.model.mse:.3f}"
    assert text.startswith(f"{opening} against {got.floors['zero'].mse:.3f}")
    assert text.endswith(f"{interval_text(low, high)}.")
    # zero is the best on both halves, so that only a gap of a horizon between them is left out
    assert (low, high) == pytest.approx(got.model.against(got.floors["zero"]), rel=0.15, abs=0.01)
    assert got.backtest.lost_to == tuple(lost_to)


def test_the_best_of_many_floors_is_not_compared_where_it_was_chosen():
    """A model as good as each of twenty floors is measurably worse in few of many test splits."""
    horizon, blank, found = 4, np.ones((4, 1)), Counter()
    random, got = np.random.default_rng(0), judged(zero)
    for _ in range(200):
        errors = random.exponential(size=(21, 60)).repeat(horizon, axis=1)
        model, *floors = (Score(240, blank, blank * each.mean(), each) for each in errors)
        model, *floors = (replace(x, squared=x.absolute) for x in (model, *floors))
        named = {f"floor {i}": floor for i, floor in enumerate(floors)}
        made = replace(got, model=model, floors=named)
        found["as chosen"] += model.against(named[made.best_floor])[0] > 0
        found[made.outcome] += 1
    assert found["as chosen"] > 60
    assert found["worse"] <= 15
    assert found["better"] <= 15


@pytest.mark.parametrize(
    ("model", "rest", "weight", "words"),
    [
        (better, zero, 0.25, r"The network is 25% of the model; the rest alone is worse: with the "
                             r"network the MSE is 0\.\d{4} lower, paired .* \[-.*, -.*\]\."),
        (worse, zero, 0.25, r".* would be BETTER: .* higher, paired .* \[\+.*, \+.*\]\."),
        (level, zero, 0.25, r".*; the rest alone is not measurably different: .*"),
        (better, None, 1.0, r"The network is the whole model\."),
        (better, None, 0.0, r"The network has no share in the model: validation gave it none\."),
    ],
)  # fmt: skip
def test_what_the_network_adds_is_said(model, rest, weight, words):
    weights = {"network": weight, "zero": 1 - weight}
    without = {} if rest is None else {"network": rest, "ridge": half}
    others = (half, *without.values())
    record = judged(model, *others, weights=weights, network=True, without=[*without])
    record = record.backtest.to_dict()
    found = record["network"]
    assert re.fullmatch(words, found["verdict"])
    assert found["weight"] == weight
    assert [*record["adds"]] == [*without]
    assert record["adds"].get("network") == found["adds"]


def test_too_few_windows_are_told():
    got = judged(better, rows=BORDER + 10)
    assert got.backtest.outcome == "no measurable difference"
    assert got.verdict().endswith(
        "; the windows span 1.8 horizons, and fewer than 10 are too few to measure one."
    )
    assert got.backtest.to_dict()["floors"]["zero"]["paired_low"] is None


def test_a_panel_is_measured_item_by_item(monkeypatch):
    """Every figure is a plain mean over what is observed."""
    lengths, places = [30, 20, 25, 8], [0, 10, 0, 22]
    values = torch.randn(83, 2, generator=torch.Generator().manual_seed(0))
    values[[13, 25, 40, 60], [0, 1, 1, 0]] = torch.nan
    items = Items(tuple("abcd"), np.cumsum([0, *lengths]), np.array(places))
    test = Windows(values, torch.zeros(30, 1), 6, HORIZON, 12, 30, (1, 0), items)
    std = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    naive = np.array([[0.5, 0.25], [1.0, np.nan], [2.0, 1.0], [1.0, 1.0]])
    forecasts, floors = together(better, zero, half), {"zero": "", "half": "by its own look-back"}
    scaler = Scaler(np.zeros_like(std), std)
    got = evaluate(forecasts, test, ("OT", "load"), scaler, naive, floors=floors)
    report = got.backtest.to_dict()
    item, row, _ = np.array([test.origin(number) for number in range(len(test))]).T
    errors = 0.5 * values[:, [1, 0]].double().numpy()[row[:, None] + np.arange(HORIZON)]

    def means(own):
        return {"mse": np.nanmean(np.square(own)), "mae": np.nanmean(np.abs(own))}

    assert report["windows"] == len(test)
    assert report["mse"] == pytest.approx(means(errors)["mse"])
    for metric, by_step in report["by_step"].items():
        assert by_step == pytest.approx([means(errors[:, t])[metric] for t in range(HORIZON)])
    for k, name in enumerate(("OT", "load")):
        own, off = errors[..., k], means(errors[..., k] * std[item, k, None])
        mases = [means(own[item == i])["mae"] / naive[i, k] for i in range(3)]
        units = {"mae_units": off["mae"], "rmse_units": off["mse"] ** 0.5}
        wanted = {**means(own), **units, "mase": np.nanmean(mases)}
        assert report["columns"][name] == pytest.approx(wanted)
    mases = [column["mase"] for column in report["columns"].values()]
    assert report["mase"] == pytest.approx(np.mean(mases))
    found, floor = report["items"], report["floors"]["zero"]
    assert (found["count"], found["tested"], found["shown"]) == (4, 3, "all tested")
    for i, name in enumerate("abc"):
        for metric, mean in means(errors[item == i]).items():
            assert found["errors"][name][metric] == pytest.approx(mean)
    mses = [own["mse"] for own in found["errors"].values()]
    assert mses == sorted(mses)
    assert (floor["mse"], floor["skill"]) == pytest.approx((4 * report["mse"], 0.75))
    assert plain(report)
    assert "the windows span 3.8 horizons" in got.verdict()
    monkeypatch.setattr(backtest, "SHOWN_ITEMS", 2)
    fewer = replace(got).backtest.to_dict()["items"]
    assert fewer["shown"] == "the best 1 and the worst 1"
    assert list(fewer["errors"]) == [*found["errors"]][::2]


def test_a_column_without_values_is_left_out():
    values = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    values[40:, 1] = torch.nan
    test = Windows(values, torch.zeros(60, 1), 8, HORIZON, 42, 60, (0, 1))
    scaler, forecasts = Scaler((0.0, 1.0), (10.0, 3.0)), together(better, zero)
    got = evaluate(forecasts, test, ("a", "b"), scaler, np.ones(2), floors={"zero": ""})
    report = got.backtest.to_dict()
    assert set(report["columns"]["b"].values()) == {None}
    for metric in ("mse", "mase"):
        assert report[metric] == pytest.approx(report["columns"]["a"][metric])
    assert report["items"] is None
    assert plain(report)


def plain(report):
    return json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_report_is_plain_json():
    for got in (
        judged(half, scale=0.0),  # floors without error
        judged(better, naive=(np.nan, 1.0)),  # a column that never changes
        judged(better, naive=(np.nan, np.nan)),
        judged(better, rows=BORDER + HORIZON),  # one window
    ):
        assert plain(got.backtest.to_dict())
        assert list(got.backtest.rows) == ["model", "zero", "half"]
