"""Steps of training on a simulated GPU."""

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
import torch

from forecaster.datasets.calendar import calendar_features, phase_weights
from forecaster.model import TokenInformer
from forecaster.model.normalise import phase_of
from tests.gpu_simulated.device import Simulated
from tests.train.small import FULL, TASK, TRAIN, VALIDATION, cycle, train


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_no_line_waits_in_each_step(precision: str) -> None:
    waits = []
    for epochs in (1, 3):
        with Simulated() as gpu:
            on, validation = TRAIN.to("cuda"), VALIDATION.to("cuda")
            options = {"epochs": epochs, "patience": 99, "precision": precision}
            fitted = train(cycle(FULL), on, validation, device="cuda", **options)
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
