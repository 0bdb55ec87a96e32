"""Real processes that train together, without a command around them."""

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forecaster.base.errors import DivergedError, UnavailableError
from forecaster.base.workers import each
from forecaster.datasets.windows import Windows
from forecaster.train import ranks
from forecaster.train.launch import MEETING
from forecaster.train.ranks import ALONE, Team
from tests.train.small import FULL, TRAIN, Constant, cycle, informer, level, train

COUNT = 2


def together(work: Any, folder: Path, *shared: Any, seconds: float = 60.0) -> dict[int, Any]:
    """What `work(team, *shared)` returns on each of COUNT ranks, or the error."""
    given = (work, str(folder / "ranks"), seconds, shared)
    return dict(each(as_rank, given, range(COUNT), COUNT))


def as_rank(given: Any, rank: int) -> Any:
    work, meeting, seconds, shared = given
    torch.set_num_threads(1)
    os.environ |= {
        MEETING: meeting, "TORCHELASTIC_RUN_ID": "test", "GLOO_SOCKET_IFNAME": "lo",
        "RANK": str(rank), "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(COUNT), "LOCAL_WORLD_SIZE": str(COUNT),
    }  # fmt: skip
    with ranks.joined("cpu", seconds) as team:
        found = work(team, *shared)
        if team.rank:
            assert team.share() == b"", "rank 0 says that nothing follows"
    return found


def missing(windows: Windows) -> Windows:
    """The same with a third of the values missing, most of them in the first rows."""
    values = windows.values.clone()
    values[:100][torch.rand(100, 2, generator=torch.Generator().manual_seed(1)) < 0.6] = math.nan
    return replace(windows, values=values)


def plain() -> Any:
    """Without dropout, and without the draws of prob, which each part of a step repeats."""
    return cycle(FULL, dropout=0.0)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "prob": (lambda: cycle(dropout=0.0), {}),
    "unequal shares": (plain, {"batch": 9, "windows": 65}),
    "checks": (plain, {"checks": 3, "tolerance": 0.1, "clip": 0.5, "schedule": "halve"}),
    "missing values": (plain, {"on": missing(TRAIN), "accumulate": 2}),
    "without a gradient": (lambda: Constant(0.0), {}),
    "few checks": (plain, {"validation": level(1.0, 1)}),
    "without validation": (plain, {"validation": None}),
}


def curve(build: Any, options: dict[str, Any], team: Team = ALONE) -> tuple[Any, Any]:
    """The metrics of each epoch of a training, and its weights."""
    model, told = build(), []
    train(
        model, team=team, **options,
        report=lambda figures, epoch: told.append(
            [figures.get("train_loss"), figures.get("validation_mse")]
        ),
    )  # fmt: skip
    return told, [weight.tolist() for weight in model.state_dict().values()]


def curves(team: Team) -> dict[str, Any]:
    return {name: curve(build, dict(options), team) for name, (build, options) in CASES.items()}


def close(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == other or abs(one - other) <= 1e-6 * max(1, abs(one))


def test_the_loss_curve_is_that_of_one_process(tmp_path: Path) -> None:
    found = together(curves, tmp_path)
    assert found[0] == found[1], "every rank has the same figures and weights"
    for name, (build, options) in CASES.items():
        figures, _ = curve(build, dict(options))
        assert figures[-1][0] is not None
        assert close(figures, found[0][name][0]), name


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_the_others_notice_within_the_timeout(tmp_path: Path, how: str) -> None:
    found = together(lost, tmp_path, how, seconds=2.0)
    assert str(found[0]).startswith("raised LostError")


def lost(team: Team, how: str) -> None:
    def report(figures: Any, epoch: int) -> None:
        if epoch == 1 and team.rank:
            if how == "dies":
                os._exit(3)
            time.sleep(5)

    begun = time.monotonic()
    try:
        train(cycle(), team=team, epochs=30, report=report)
    finally:
        assert time.monotonic() - begun < 20


def diverging(team: Team) -> tuple[list[float], str]:
    """What a rank draws after a training, and the error of one that only some windows break."""
    train(informer(), team=team, epochs=1)
    drawn = torch.rand(1).tolist()
    try:
        values = TRAIN.values.clone()
        values[5] = 3e38  # of the first windows only
        train(cycle(), replace(TRAIN, values=values), team=team, epochs=3, batch=60)
    except DivergedError as error:
        return drawn, str(error)
    return drawn, "went on"


def test_what_diverges_on_one_rank_ends_all_of_them(tmp_path: Path) -> None:
    (drawn, one), (others, other) = together(diverging, tmp_path).values()
    assert "training loss" in one
    assert one == other
    assert drawn != others, "each rank drops out other values"


def of_ranks(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": count}.items():
        monkeypatch.setenv(name, str(value))
        monkeypatch.setenv(f"LOCAL_{name}", str(value))


def test_a_gpu_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    of_ranks(99, monkeypatch)
    refused = pytest.raises(UnavailableError, match=r"99 processes .* --devices")
    with refused, ranks.joined("cuda"):
        pass


def test_alone_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    of_ranks(1, monkeypatch)
    values = torch.rand(3)
    with ranks.joined("cpu") as team:
        assert team == ALONE
        assert team.share(b"word") == b"word"
        assert team.total(values) is team.least(values) is values
        team.as_first([values])
        team.gather()
    with pytest.raises(RuntimeError, match=r"^not ours$"), ranks.talking():
        raise RuntimeError("not ours")
