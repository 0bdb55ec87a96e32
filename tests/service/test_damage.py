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
from forecaster.forecast.questions import Question
from forecaster.forecast.schema import Schema
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
SMALL = ["model.width=16", "model.heads=2", "model.feed_forward=16"]

EVERY = [(file.stem, "prob") for file in sorted(configs().glob("*.yaml"))]
EVERY += [
    (recipe, name) for recipe in ("default", "informer") for name in ATTENTIONS if name != "prob"
]
SHORT = [("epf", "prob"), ("default", "lsh")]
CASES = EVERY if os.environ.get("FORECASTER_DAMAGES") == "all" else SHORT


@pytest.fixture(autouse=True)
def _drawn_once(monkeypatch):
    """The same histories for every damage."""
    found, make = {}, golden.question

    def question(*asked):
        key = (id(asked[0]), *asked[1:3], *asked[3])
        if key not in found:
            found[key] = make(*asked)
        return found[key]

    monkeypatch.setattr(golden, "question", question)


def made(recipe, attention="prob"):
    """A bundle of a recipe at a small size, with all weights far from their initial values."""
    past = 2 * PAST if recipe == "ETTm1-96" else PAST  # two days: one has nothing to average
    lengths = [f"window.past={past}", f"window.start={PAST // 2}", f"window.horizon={HORIZON}"]
    sets = [*lengths, f"attn.name={attention}", *(SMALL if "informer" in recipe else ())]
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


def others(bundle):
    """The name of each tensor, itself, and how to get a bundle with another one in its place; those
    of the network where it is alone."""
    for name, tensor in () if bundle.parts else bundle.weights.items():

        def weight(new, name=name):
            return replace(bundle, weights={**bundle.weights, name: new})

        yield name, tensor, weight
    for place, own in enumerate(bundle.parts):
        for name, tensor in own.tensors.items():

            def part(new, place=place, own=own, name=name):
                changed = replace(own, tensors={**own.tensors, name: new})
                parts = (*bundle.parts[:place], changed, *bundle.parts[place + 1 :])
                return replace(bundle, parts=parts)

            yield f"{own.name}: {name}", tensor, part
    if (intervals := bundle.intervals) is not None:

        def offset(new):
            return replace(bundle, intervals=replace(intervals, offsets=new.numpy()))

        yield "intervals: offsets", torch.from_numpy(intervals.offsets), offset


def check_all(bundle, folder):
    keep(bundle, folder)
    bundle = Predictor.load(folder, "cpu").bundle
    windows, std = validation(bundle), bundle.schema.target_scaler.std[:, None]

    def ahead(forecaster):
        """The forecasts of validation windows, with quantiles, scaled."""
        point, quantiles = forecaster.forecast_quantiles(windows, forecaster.levels)
        return np.concatenate([point[..., None], quantiles], axis=-1) / std

    before, found, through = ahead(Predictor(bundle, "cpu")), [], []
    for name, tensor, put in others(bundle):
        for kind, damaged in damages(tensor) if tensor.is_floating_point() else ():
            moved = np.inf
            with suppress(BundleError):
                forecaster = Predictor(put(damaged), "cpu")
                with suppress(ForecasterError):
                    moved = float(np.abs(ahead(forecaster) - before).max())
                found.append(moved > MOVED)
                forecaster.check()
                if moved > MOVED:
                    through.append(f"{name}: {kind} moves {moved:.2g}")
    assert through == []
    assert np.mean(found) > 0.5, "most damages move a forecast"


def test_what_moves_a_forecast_is_refused(tmp_path):
    check_all(made("default"), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("recipe", "attention"), CASES)
def test_so_it_is_of_every_recipe_and_type(recipe, attention, tmp_path):
    check_all(made(recipe, attention), tmp_path)


def test_so_it_is_of_parts_and_intervals(tmp_path):
    check_all(blended(make_bundle(tmp_path), network=0.5, cycle=0.3, last=0.2), tmp_path)
