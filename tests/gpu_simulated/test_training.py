"""Steps of training on a simulated GPU."""

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
import torch

from forecaster.attention import AttentionPlan
from forecaster.config.run_config import load
from forecaster.datasets.calendar import calendar_features, phase_weights
from forecaster.datasets.windows import Windows
from forecaster.model import Task, TokenInformer
from forecaster.model.normalise import phase_of
from forecaster.train.fit import fit
from tests.gpu_simulated.device import Simulated
from tests.train.small import FULL, PROB, TASK, TRAIN, VALIDATION, cycle, train

STEPS = {  # launches of a step of the default recipe; they may only become fewer
    "full": 127, "prob": 148, "logsparse": 138, "lsh": 225, "strided": 126, "fixed": 126,
    "topk": 190, "single": 148, "fastformer": 189, "gau": 206, "flash": 220, "diff": 181,
    "aft-full": 180, "aft-local": 192, "aft-simple": 154, "aft-conv": 201, "static": 135,
    "mean": 121, "none": 105,
}  # fmt: skip


@pytest.mark.parametrize("plan", [FULL, PROB], ids=["full", "prob"])
@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_no_line_waits_in_each_step(precision: str, plan: AttentionPlan) -> None:
    waits = []
    for epochs in (1, 3):
        with Simulated() as gpu:
            on, validation = TRAIN.to("cuda"), VALIDATION.to("cuda")
            options = {"epochs": epochs, "patience": 99, "precision": precision, "graphs": False}
            fitted = train(cycle(plan), on, validation, device="cuda", **options)
            waits.append(Counter(place for _, place in gpu.waits if place != "?"))
    steps = fitted.steps * 2 // 3
    more = {place: count for place, count in (waits[1] - waits[0]).items() if count >= steps}
    assert not more, "these lines wait in every step"


def test_the_place_in_a_season_is_exact_in_bf16() -> None:
    times = pd.date_range("2021-01-01", periods=1400, freq="15min")
    calendar = torch.from_numpy(calendar_features(times, "15min"))
    weights = torch.tensor(phase_weights("15min", 672))
    wanted = phase_of(calendar, weights, 672)
    assert torch.equal(wanted.diff() % 672, torch.ones(1399, dtype=torch.long))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(phase_of(calendar, weights, 672), wanted)


def test_the_mean_cycle_is_computed_where_the_rows_are() -> None:
    task, sizes = replace(TASK, phase=(6.0,)), {"parts": 3, "width": 4, "feed_forward": 4}
    here = TokenInformer(task, FULL, prior=True, **sizes)
    train(here, epochs=1)
    with Simulated():
        there = TokenInformer(task, FULL, prior=True, **sizes)
        train(there, TRAIN.to("cuda"), VALIDATION.to("cuda"), device="cuda", epochs=1)
        assert here.prior is not None
        assert there.prior is not None
        table = there.prior.table.cpu()
    assert table.any()
    torch.testing.assert_close(table, here.prior.table)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_the_default_recipe_takes_no_more_launches_than_it_did(name: str) -> None:
    config = load("default", [f"attn={name}"], environment={}).config
    task = Task(7, tuple(range(7)), past=504, start=252, horizon=336, calendar=4, season=24)
    rows = torch.randn(1000, 7, generator=torch.Generator().manual_seed(0))
    launches = []
    for steps in (2, 4):
        with Simulated() as gpu:
            values, calendar = rows.to("cuda"), torch.zeros(1000, 4).to("cuda")
            windows = Windows(values, calendar, 504, 336, 0, 1000, task.targets)
            batches = {"batch": 8, "stride": 1, "windows": 8 * steps, "graphs": False}
            model, of_step = config.build_model(task), config.train.model_copy(update=batches)
            gpu.clear()
            fit(model, windows, None, of_step, device="cuda", seed=0, epochs=1)
            launches.append(gpu.launches)
    assert (launches[1] - launches[0]) / 2 <= STEPS[name]
