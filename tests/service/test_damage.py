"""Damaged tensors of a bundle, one at a time: any damage that changes a forecast is refused.

FORECASTER_DAMAGES=all tries every recipe, and every type of attention in both skeletons.
"""

import os
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.attention import ATTENTIONS
from forecaster.base.errors import BundleError, ForecasterError
from forecaster.base.installation import configs
from forecaster.config.run_config import load as load_config
from forecaster.datasets.known import Attribute, KnownInputs
from forecaster.datasets.reading import Reading
from forecaster.datasets.scaling import Scaler
from forecaster.forecast import golden
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import Predictor, keep
from forecaster.forecast.question import Question
from forecaster.plan.schema import Schema
from forecaster.record import Record
from tests.bundles import blended
from tests.service.toy import make_bundle

PAST, HORIZON, COLUMNS = 96, 24, ("load", "wind")
SEEN, MOVED = 32, 1e-3
"""Validation windows, and the change of one of their forecasts, in standard deviations, from which
on a damage must be refused."""
KNOWN = KnownInputs(
    ("holiday", "price"), Scaler((0.0, 20.0), (1.0, 5.0)), (Attribute("kind", ("in", "out")),)
)
HOURS, QUARTERS = ("h", (24, 168)), ("15min", (96, 672))
SMALL = {"model.width": 16, "model.heads": 2, "model.feed_forward": 16}

EVERY = [
    *((file.stem, "prob") for file in sorted(configs().glob("*.yaml"))),
    *(
        (recipe, name)
        for recipe in ("default", "informer")
        for name in ATTENTIONS
        if name != "prob"
    ),
]
SHORT = [("epf", "prob"), ("default", "lsh")]
CASES = EVERY if os.environ.get("FORECASTER_DAMAGES") == "all" else SHORT


@pytest.fixture(autouse=True)
def _drawn_once(monkeypatch):
    """The same histories for every damage."""
    found = {}

    def question(*asked):
        key = (id(asked[0]), *asked[1:3], *asked[3])
        if key not in found:
            found[key] = make(*asked)
        return found[key]

    make = golden.question
    monkeypatch.setattr(golden, "question", question)


def made(recipe, attention="prob"):
    """A bundle of a recipe at a small size, with all weights far from their initial values."""
    small = [f"{name}={value}" for name, value in SMALL.items() if recipe.startswith("informer")]
    past = 2 * PAST if recipe == "ETTm1-96" else PAST  # two days: one has nothing to average
    lengths = [f"window.past={past}", f"window.start={PAST // 2}", f"window.horizon={HORIZON}"]
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
        model = config.build_model(schema.task(past, PAST // 2, HORIZON))
    weights = {
        name: tensor + 0.2 * torch.randn(tensor.shape, generator=generator)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in model.state_dict().items()
    }
    about = {"name": f"forecaster-{recipe}", "run_id": "0" * 32, "intervals": "made up"}
    return Bundle(config, schema, weights, Record(), about)


def validation(bundle):
    """Windows like those of real data: a daily wave and noise."""
    schema, past, width = bundle.schema, bundle.past, len(bundle.schema.columns)
    random, steps = np.random.default_rng(5), past + bundle.horizon
    time = np.arange(SEEN + steps)[:, None]
    noise = 0.3 * random.normal(size=(len(time), width))
    values = schema.scaler.inverse(np.sin(2 * np.pi / 24 * time + np.arange(width)) + noise)
    asked = Question(
        np.stack([values[n : n + past] for n in range(SEEN)]),
        pd.date_range("2024-05-01", periods=7 * SEEN, freq=schema.freq)[::7],
    )
    if (scaler := schema.known.scaler) is None:
        return asked
    covariates = scaler.inverse(random.normal(size=(SEEN, steps, 2)))
    return replace(asked, covariates=covariates, static={"kind": ["in", "out"] * (SEEN // 2)})


def damages(tensor):
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
    yield "zero", torch.zeros_like(tensor)
    yield "noise", tensor + noise * tensor.std(correction=0).clamp(min=0.1)
    if tensor.numel() > 1:
        order = torch.randperm(tensor.numel(), generator=generator)
        yield "permutation", tensor.flatten()[order].reshape(tensor.shape)


class Ahead:
    """The forecasts of validation windows by several models in turn, with quantiles, scaled."""

    def __init__(self, bundle):
        self.windows, self.std = validation(bundle), bundle.schema.target_scaler.std[:, None]
        self.found = []  # whether a damage moved one of them

    def __call__(self, forecaster):
        point, quantiles = forecaster.forecast_quantiles(self.windows, forecaster.levels)
        return np.concatenate([point[..., None], quantiles], axis=-1) / self.std

    def through(self, forecaster, before):
        """How far a damage that is not refused moves a forecast, or "" for one that is or that
        moves none."""
        moved = np.inf
        with suppress(ForecasterError):
            moved = float(np.abs(self(forecaster) - before).max())
        self.found.append(moved > MOVED)
        with suppress(BundleError):
            golden.check(forecaster)
            return f"moves {moved:.2g}" if moved > MOVED else ""
        return ""


def check_network(recipe, attention, folder):
    bundle = keep(made(recipe, attention), folder)
    forecaster = Predictor.load(folder, "cpu")
    ahead, through = Ahead(bundle), []
    tensors = dict(forecaster.model.named_buffers()) | dict(forecaster.model.named_parameters())
    before = ahead(forecaster)
    for name in [name for name, each in bundle.weights.items() if each.is_floating_point()]:
        tensor = tensors[f"parts.0.model.{name}"].data
        whole = tensor.clone()
        for kind, damaged in damages(whole):
            tensor.copy_(damaged)
            if told := ahead.through(forecaster, before):
                through.append(f"{name}: {kind} {told}")
        tensor.copy_(whole)
    assert through == []
    assert np.mean(ahead.found) > 0.5, "most damages move a forecast"
    golden.check(forecaster)


def test_what_moves_a_forecast_is_refused(tmp_path):
    check_network("default", "prob", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("recipe", "attention"), CASES)
def test_so_it_is_of_every_recipe_and_type(recipe, attention, tmp_path):
    check_network(recipe, attention, tmp_path)


def others(bundle):
    """The tensors outside of the network: the name of each, and how to replace it."""
    for place, share in enumerate(bundle.parts):
        for name, tensor in share.tensors.items():

            def put(new, place=place, name=name):
                parts, own = [*bundle.parts], bundle.parts[place]
                parts[place] = replace(own, tensors={**own.tensors, name: new})
                return replace(bundle, parts=tuple(parts))

            if tensor.is_floating_point():
                yield f"{share.name}: {name}", put, tensor
    intervals = bundle.intervals
    assert intervals is not None

    def change(new):
        return replace(bundle, intervals=replace(intervals, offsets=new.numpy()))

    yield "intervals: offsets", change, torch.from_numpy(intervals.offsets)


def test_so_it_is_of_parts_and_intervals(tmp_path):
    bundle = blended(make_bundle(tmp_path), network=0.5, cycle=0.3, last=0.2)
    keep(bundle, tmp_path)
    forecaster = Predictor.load(tmp_path, "cpu")
    ahead, through = Ahead(forecaster.bundle), []
    before = ahead(forecaster)
    for name, put, tensor in others(forecaster.bundle):
        for kind, damaged in damages(tensor):
            with suppress(BundleError):  # refused as it is built
                if told := ahead.through(Predictor(put(damaged), "cpu"), before):
                    through.append(f"{name}: {kind} {told}")
    assert through == []
    assert np.mean(ahead.found) > 0.5
