"""Damaged tensors of a bundle, one at a time: any damage that changes a forecast is refused.

The short form uses the recipes and types of attention that differ most; FORECASTER_DAMAGES=all
uses every recipe, and every type in both skeletons.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from forecaster.attention import ATTENTIONS
from forecaster.base.errors import BundleError, ForecasterError
from forecaster.base.installation import configs
from forecaster.config.run_config import load as load_config
from forecaster.config.run_config import load_dict
from forecaster.datasets.calendar import phase_weights
from forecaster.datasets.known import Attribute, KnownInputs
from forecaster.datasets.reading import Reading
from forecaster.datasets.scaling import Scaler
from forecaster.datasets.windows import Windows
from forecaster.forecast import golden
from forecaster.forecast.bundle import Bundle, Share
from forecaster.forecast.intervals import Conditions, Intervals
from forecaster.forecast.predictor import Predictor, keep
from forecaster.forecast.questions import Question
from forecaster.forecast.schema import Schema
from forecaster.parts import KINDS, Blend, Fold, Network, Part
from forecaster.record import Record
from forecaster_service.metrics import Metrics
from forecaster_service.settings import Settings
from forecaster_service.store import Store

PAST, HORIZON, COLUMNS = 96, 24, ("load", "wind")
SEEN, MOVED = 32, 1e-3
"""Validation windows, and the change of one of their forecasts, in standard deviations, from which
on a damage must be refused."""
ROUNDING = 1e-5
"""A smaller change of a forecast counts as none."""
KNOWN = KnownInputs(
    ("holiday", "price"), Scaler((0.0, 20.0), (1.0, 5.0)), (Attribute("kind", ("in", "out")),)
)
HOURS, QUARTERS = ("h", (24, 168)), ("15min", (96, 672))
SMALL = {"model.width": 16, "model.heads": 2, "model.feed_forward": 16}

SELF = r"(?:encoder|encoders|decoder)\..*attention\."
CROSS = r"decoder\.\d+\.cross\."
IDLE = {
    # the same for all keys of a query, it cancels in the softmax, or in a mean by exponentials
    **dict.fromkeys(
        ("full", "prob", "logsparse", "strided", "fixed", "topk", "aft-full", "aft-local",
         "aft-simple", "aft-conv"),
        SELF + r"key_projection\.bias",
    ),
    # the same for all places that are weighed
    "fastformer": SELF + r"(?:key|query)_score\.bias",
    # no attention reads the output of the norm before it
    "none": r"encoder\.\d+\.norm_attention\..*",
}  # fmt: skip
"""By the type of self-attention, the tensors that can move no forecast, and why. Cross-attention,
where there is one, is full."""


def idle(name: str, recipe: str, attention: str) -> bool:
    """Whether a tensor can move no forecast."""
    # the authors' code treats keys that it has not sampled as zeros, so that a bias has an effect
    own = IDLE.get("" if recipe == "informer2020" else attention)
    # of a look-back of one cycle the mean is that cycle, whatever the weights of the cycles are
    one = r"(?!window|linear|prior|average\.mixture).*" if recipe == "ETTm1-96" else None
    # a kernel that reaches all tokens works equally with another offset
    wide = SELF + "kernel_offset" if (recipe, attention) == ("default", "aft-conv") else None
    kinds = [each for each in (own, one, wide, CROSS + r"key_projection\.bias") if each]
    return any(re.fullmatch(each, name) for each in kinds)


EVERY = [
    *((file.stem, "prob") for file in sorted(configs().glob("*.yaml"))),
    *(
        (recipe, name)
        for recipe in ("default", "informer")
        for name in ATTENTIONS
        if name != "prob"
    ),
]
SHORT = [
    ("ETTh1-96", "prob"), ("epf", "prob"), ("informer2020", "prob"), ("default", "lsh"),
    ("default", "fastformer"), ("default", "aft-conv"), ("default", "none"),
]  # fmt: skip
CASES = EVERY if os.environ.get("FORECASTER_DAMAGES") == "all" else SHORT


@pytest.fixture(autouse=True)
def _drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same histories for every damage."""
    found: dict[Any, Question] = {}

    def question(*asked: Any) -> Question:
        key = (id(asked[0]), *asked[1:3], *asked[3])
        if key not in found:
            found[key] = make(*asked)
        return found[key]

    make = golden.question
    monkeypatch.setattr(golden, "question", question)


def made(recipe: str, attention: str = "prob") -> Bundle:
    """A bundle of a recipe at a small size, with all weights far from their initial values."""
    small = [f"{name}={value}" for name, value in SMALL.items() if recipe.startswith("informer")]
    lengths = [f"window.past={PAST}", f"window.start={PAST // 2}", f"window.horizon={HORIZON}"]
    sets = [*lengths, *small, f"attn.name={attention}"]
    config = load_config(recipe, sets, environment={}).config
    known = KNOWN if recipe == "epf" else KnownInputs()
    freq, seasons = QUARTERS if recipe == "ETTm1-96" else HOURS
    reading = Reading(
        time="time", targets=COLUMNS, freq=freq, seasons=seasons, panel=False, timezone="naive",
        future_covariates=known.columns, static=tuple(each.name for each in known.attributes),
    )  # fmt: skip
    schema = Schema(COLUMNS, COLUMNS, reading, Scaler((10.0, -300.0), (2.0, 50.0)), (), known)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = config.build_model(schema.task(PAST, PAST // 2, HORIZON))
    weights = {
        name: tensor + 0.2 * torch.randn(tensor.shape, generator=generator)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in model.state_dict().items()
    }
    about = {"name": f"forecaster-{recipe}", "run_id": "0" * 32, "intervals": "made up"}
    return Bundle(config, schema, weights, Record(), about)


def validation(schema: Schema) -> Question:
    """Windows like those of real data: a daily wave and noise."""
    random, steps = np.random.default_rng(5), PAST + HORIZON
    time = np.arange(SEEN + steps)[:, None]
    wave = np.sin(2 * np.pi / 24 * time + [0.0, 1.0]) + 0.3 * random.normal(size=(len(time), 2))
    values = schema.scaler.inverse(wave)
    asked = Question(
        np.stack([values[n : n + PAST] for n in range(SEEN)]),
        pd.date_range("2024-05-01", periods=7 * SEEN, freq=schema.freq)[::7],
    )
    if (scaler := schema.known.scaler) is None:
        return asked
    covariates = scaler.inverse(random.normal(size=(SEEN, steps, 2)))
    return replace(asked, covariates=covariates, static={"kind": ["in", "out"] * (SEEN // 2)})


def damages(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
    yield "zero", torch.zeros_like(tensor)
    yield "noise", tensor + noise * tensor.std(correction=0).clamp(min=0.1)
    if tensor.numel() > 1:
        order = torch.randperm(tensor.numel(), generator=generator)
        yield "permutation", tensor.flatten()[order].reshape(tensor.shape)


class Ahead:
    """The forecasts of validation windows by several models in turn, with quantiles, scaled."""

    def __init__(self, schema: Schema) -> None:
        self.windows, self.std = validation(schema), schema.target_scaler.std[:, None]

    def __call__(self, forecaster: Predictor) -> np.ndarray:
        point, quantiles = forecaster.forecast_quantiles(self.windows, forecaster.levels)
        found: np.ndarray = np.concatenate([point[..., None], quantiles], axis=-1) / self.std
        return found

    def moved(self, forecaster: Predictor, before: np.ndarray) -> float:
        """The largest change of one of them."""
        try:
            return float(np.abs(self(forecaster) - before).max())
        except ForecasterError:
            return np.inf


def refused(forecaster: Predictor) -> bool:
    try:
        forecaster.check()
    except BundleError:
        return True
    return False


def judge(forecaster: Predictor, names: set[str]) -> tuple[dict[str, float], list[str]]:
    """For each tensor of a network, how far damages change a forecast at most, and the damages
    that change one and are not refused."""
    ahead = Ahead(forecaster.schema)
    tensors = dict(forecaster.model.named_buffers()) | dict(forecaster.model.named_parameters())
    before, moves, through = ahead(forecaster), {}, []
    for name in sorted(names):
        tensor = tensors[f"parts.0.model.{name}"].data
        whole, moves[name] = tensor.clone(), 0.0
        for kind, damaged in damages(whole.cpu()):
            tensor.copy_(damaged)
            moved = ahead.moved(forecaster, before)
            moves[name] = max(moves[name], moved)
            if moved > MOVED and not refused(forecaster):
                through.append(f"{name}: {kind} moves {moved:.2g}")
        tensor.copy_(whole)
    return moves, through


def of_floats(bundle: Bundle) -> set[str]:
    return {name for name, tensor in bundle.weights.items() if tensor.is_floating_point()}


def check_network(recipe: str, attention: str, folder: Path) -> None:
    bundle = keep(made(recipe, attention), folder)
    forecaster = Predictor.load(folder, "cpu")
    moves, through = judge(forecaster, of_floats(bundle))
    assert through == []
    still = {name for name, moved in moves.items() if moved <= ROUNDING}
    assert still == {name for name in moves if idle(name, recipe, attention)}
    forecaster.check()


def test_what_moves_a_forecast_is_refused(tmp_path: Path) -> None:
    check_network("default", "prob", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("recipe", "attention"), CASES)
def test_so_it_is_of_every_recipe_and_type(recipe: str, attention: str, tmp_path: Path) -> None:
    check_network(recipe, attention, tmp_path)


def blended(folder: Path) -> Bundle:
    """A bundle of the default recipe with every closed form as a part, and with intervals."""
    bundle = made("default")
    schema, rows = bundle.schema, 600
    task = schema.task(PAST, PAST // 2, HORIZON)
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    time, random = np.arange(rows)[:, None], np.random.default_rng(3)
    values = np.sin(2 * np.pi / 24 * time + [0.0, 1.0]) + 0.3 * random.normal(size=(rows, 2))
    known = torch.from_numpy(schema.calendar(times))

    def windows(first: int, last: int) -> Windows:
        return Windows(
            torch.from_numpy(values).float(), known, past=PAST, horizon=HORIZON,
            first=first, last=last, targets=task.targets,
        )  # fmt: skip

    seasons = schema.reading.seasons
    phases = tuple(phase_weights("h", each) for each in seasons)
    fold = Fold(task, windows(PAST, 400), windows(400, 560), seasons, phases)
    fitted = [part for kind in KINDS.values() for part in kind.fit(fold) if part.weighed]
    parts: list[Part] = [Network(bundle.build_network(task)), *fitted]
    shares = torch.full((len(parts), HORIZON), 1 / len(parts))
    blend = Blend(task, {part.name: part for part in parts}, shares)
    levels, wide = (0.1, 0.5, 0.9), 0.1 + random.random((HORIZON, 2))
    offsets = wide[..., None] * [-1.0, 0.0, 2.0] + 0.1 * random.normal(size=(HORIZON, 2, 3))
    conditions = Conditions(24, phases[0], np.array([0.3, 0.4]), 0.5 + random.random((6, 2)))
    intervals = Intervals(levels, offsets, wide, 99, conditions)
    settings = {**bundle.config.to_dict(), "intervals": {"levels": list(levels)}}
    config = load_dict(settings, "the test")
    return keep(replace(bundle, config=config, parts=Share.of(blend), intervals=intervals), folder)


def others(bundle: Bundle) -> Iterator[tuple[str, Callable[[Tensor], Bundle], Tensor]]:
    """The tensors outside of the network: the name of each, and how to replace it."""
    for place, share in enumerate(bundle.parts):
        for name, tensor in share.tensors.items():

            def put(new: Tensor, place: int = place, name: str = name) -> Bundle:
                parts, own = [*bundle.parts], bundle.parts[place]
                parts[place] = replace(own, tensors={**own.tensors, name: new})
                return replace(bundle, parts=tuple(parts))

            if tensor.is_floating_point():
                yield f"{share.name}: {name}", put, tensor
    intervals = bundle.intervals
    assert intervals is not None
    assert intervals.conditions is not None
    for name in ("offsets", "scale", "usual", "phases"):
        inner = name in ("usual", "phases")
        array = getattr(intervals.conditions if inner else intervals, name)

        def change(new: Tensor, name: str = name, inner: bool = inner) -> Bundle:
            assert intervals.conditions is not None
            changed = {name: new.numpy()}
            if inner:
                changed = {"conditions": replace(intervals.conditions, **changed)}
            return replace(bundle, intervals=replace(intervals, **changed))

        yield f"intervals: {name}", change, torch.from_numpy(array)


STILL = {
    "intervals: scale": "it tells how large errors were, for the online form; no forecast reads it",
}


def test_so_it_is_of_parts_and_intervals(tmp_path: Path) -> None:
    bundle = blended(tmp_path)
    whole = Predictor.load(tmp_path, "cpu")
    ahead = Ahead(bundle.schema)
    before, through, still = ahead(whole), [], set()
    for name, put, tensor in others(bundle):
        most = 0.0
        for kind, damaged in damages(tensor):
            try:
                forecaster = Predictor(put(damaged), "cpu")
            except BundleError:
                most = np.inf
                continue
            moved = ahead.moved(forecaster, before)
            most = max(most, moved)
            if moved > MOVED and not refused(forecaster):
                through.append(f"{name}: {kind} moves {moved:.2g}")
        if most <= ROUNDING:
            still.add(name)
    assert through == []
    assert still == set(STILL)
    assert len({share.kind for share in bundle.parts}) > 4


def test_so_it_is_on_load_and_on_swap(tmp_path: Path) -> None:
    """The service refuses it, from files with a correct manifest."""
    served, other = tmp_path / "served", tmp_path / "other"
    whole = keep(made("default"), served)
    names = ("encoder.0.attention.value_projection.weight", "linear.weight", "window.shrink")
    store = Store(Settings(model=str(served), poll_seconds=1000), Metrics())
    store.load()
    try:
        for name in names:
            tensor = whole.weights[name]
            damaged = replace(whole, weights={**whole.weights, name: torch.zeros_like(tensor)})
            damaged.save(other)
            with pytest.raises(BundleError, match="does not reproduce the forecasts"):
                Predictor.load(other, "cpu")
            broken = Store(Settings(model=str(other), poll_seconds=1000), Metrics())
            broken.load()
            assert broken.status == "failed"
            assert "does not reproduce the forecasts" in broken.slots[0].reason
            broken.close()
            damaged.save(served)
            store.poll()
            assert store.get(None).identity.digest == whole.digest
        again = replace(whole, record=Record(validation_mse=0.5)).save(served)
        store.poll()
        assert store.get(None).identity.digest == again.digest
    finally:
        store.close()


@pytest.mark.gpu
@pytest.mark.parametrize(("recipe", "attention"), [("default", "prob"), ("informer", "prob")])
def test_so_it_is_on_a_gpu(recipe: str, attention: str, tmp_path: Path) -> None:
    """A model saved on a CPU passes there, and a forecast that is off by ten times the tolerance
    does not."""
    bundle = keep(made(recipe, attention), tmp_path)
    forecaster = Predictor.load(tmp_path, "cuda")
    ahead = Ahead(bundle.schema)
    tensors = dict(forecaster.model.named_parameters())
    before, through = ahead(forecaster), []
    for name in sorted(of_floats(bundle)):
        tensor = tensors[f"parts.0.model.{name}"].data
        whole = tensor.clone()
        for kind, damaged in damages(whole.cpu()):
            tensor.copy_(damaged)
            if ahead.moved(forecaster, before) > 10 * MOVED and not refused(forecaster):
                through.append(f"{name}: {kind}")
        tensor.copy_(whole)
    assert through == []
