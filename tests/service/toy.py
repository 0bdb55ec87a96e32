"""A tiny bundle with random weights, and a client of a service that has it loaded."""

import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient

from forecaster.base.errors import UnavailableError, UsageError
from forecaster.config.run_config import load_dict
from forecaster.datasets.known import Attribute, KnownInputs
from forecaster.datasets.reading import Reading
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.predictor import keep
from forecaster.plan.schema import Schema
from forecaster.record import Record
from forecaster_service.app import create_app
from forecaster_service.registry import Found
from forecaster_service.settings import Settings
from tests.bundles import judged, whole_errors

NOTHING_KNOWN = KnownInputs()
NAME = "forecaster-toy-M-all-6"
PAST, HORIZON = 24, 6
COLUMNS = ("load", "wind", "Zürich °C")
MODELS = {
    "informer": {"name": "informer", "width": 16, "heads": 2, "feed_forward": 16},
    "tokens": {"name": "tokens", "parts": 2, "width": 4, "feed_forward": 4},
}
AHEAD = KnownInputs(("holiday", "target"), Scaler((0.0, 20.0), (1.0, 5.0)))
STATIC = KnownInputs(
    attributes=(Attribute("size", mean=100.0, std=20.0), Attribute("kind", ("in", "out")))
)
WORDS = {"mood": ("bad", "good"), "sky": ("clear", "rain")}
SKY = KnownInputs(("sky=clear", "sky=rain", "holiday"), Scaler((0.5, 0.5, 0.0), (0.5, 0.5, 1.0)))
ITEMS = ("Bern", "None", "../c d")
METRICS = {
    "mse": 0.5, "mae": 0.4, "windows": 10,
    "floors": {"last value": {"mse": 0.9, "mae": 0.7, "skill": 0.44}},
    "best_floor": "last value", "verdict": "The model beats the best floor, last value.",
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "holidays": {"columns": ("load",), "holidays": "AU-VIC"},
    "past": {"targets": ("Zürich °C",)},
    "ahead": {"columns": ("load",), "known": AHEAD},
    "words": {
        "columns": ("load", "mood=bad", "mood=good"), "targets": ("load",), "known": SKY,
        "categories": WORDS,
    },
    "panel": {"columns": ("load",), "id": ("town",), "items": ITEMS},
    "attributes": {"columns": ("load",), "id": ("town",), "items": ITEMS, "known": STATIC},
    "two ids": {
        "columns": ("load",), "id": ("region", "town"), "items": ("North / Bern", "South / Bern"),
    },
    "wide": {"columns": ("y",), "items": ITEMS, "wide": True},
    "wide, past": {"columns": ("y", "wind"), "targets": ("y",), "items": ITEMS, "wide": True},
    "all": {
        "targets": ("wind", "load"), "id": ("town",), "items": ITEMS,
        "known": KnownInputs(AHEAD.columns, AHEAD.scaler, STATIC.attributes), "holidays": "AU-VIC",
    },
}  # fmt: skip
"""The kinds of bundles that a service may be given."""


def make_bundle(
    folder,
    columns=COLUMNS,
    freq="h",
    timezone="naive",
    loss="mse",
    *,
    targets=(),
    items=(),
    model="informer",
    id=(),
    wide=False,
    known=NOTHING_KNOWN,
    holidays=None,
    categories=None,
):
    """An untrained Informer with ProbSparse attention, or our own model.

    Each column of each item has std 2. Its quantiles at 0.1, 0.5, 0.9 are -1, 0 and 2 times the
    step number away from the forecast.
    """
    config = load_dict(
        {
            "window": {"past": PAST, "start": 12, "horizon": HORIZON},
            "model": MODELS[model],
            "attn": {"name": "prob", "factor": 1},
            "train": {"loss": loss},
            "intervals": {"levels": [0.1, 0.5, 0.9]},
        },
        "the test",
    )
    targets = targets or columns
    steps = np.arange(1.0, HORIZON + 1).repeat(len(targets)).reshape(HORIZON, -1)
    scale = steps / 2
    errors = whole_errors(max(1, len(items)), HORIZON, len(targets))
    offsets = scale[..., None] * [-1.0, 0.0, 2.0]
    intervals = Intervals((0.1, 0.5, 0.9), offsets, scale, 99, errors=errors, apart=5.0)
    mean = 10.0 * np.arange(len(columns)) + 1
    if items:
        mean = mean + 100 * np.arange(len(items))[:, None]
    reading = Reading(
        time="time", id=id, targets=items if wide else targets,
        categories=categories or {},
        static=tuple(attribute.name for attribute in known.attributes),
        freq=freq, seasons=(24, 168), panel=wide, timezone=timezone,
    )  # fmt: skip
    past_only = [name for name in columns if name not in targets]
    reading = replace(
        reading, past_covariates=reading.read_from(past_only),
        future_covariates=reading.read_from(known.columns),
    )  # fmt: skip
    scaler = Scaler(mean, np.full_like(mean, 2))
    schema = Schema(columns, targets, reading, scaler, items, known, holidays)
    torch.manual_seed(0)
    built = config.build_model(schema.task(PAST, 12, HORIZON))
    about = {"name": NAME, "run_id": "0" * 32, "attn_effective": "sparse", "intervals": "made up"}
    record = Record(test=judged(**METRICS, by_step={"mse": [0.5] * HORIZON}))
    return keep(Bundle(config, schema, dict(built.state_dict()), record, about, intervals), folder)


def rename(bundle, folder, name):
    """The same model under another name, in that folder."""
    return replace(bundle, about={**bundle.about, "name": name}).save(folder)


class Registry(Found):
    """Stands in for the registry of a service: models by their names there.

    `asked` are the names that were resolved; nobody answers while it is `away`, or
    asks once it is `closed`.
    """

    def __init__(self):
        super().__init__(Path())
        self.models = {}
        self.asked = []
        self.away = self.closed = False

    def put(self, reference, folder, **origin):
        """Let a reference resolve to the bundle in a folder."""
        self.models[reference] = folder, {**origin, "source": str(folder)}

    def state(self, name):
        self._check()
        self.asked.append(name)
        if name not in self.models:
            raise UsageError("no such model")
        return self.models[name][1]

    def fetch(self, name, folder):
        self._check()
        there, origin = self.models[name]
        shutil.copytree(there, folder, dirs_exist_ok=True)
        return origin

    def close(self):
        self.closed = True

    def _check(self):
        if self.away:
            raise UnavailableError("nobody answers")


def wait_until_loaded(client):
    """Wait until the service has a model or has given up."""
    while "being loaded" in client.get("/readyz").text:
        time.sleep(0.02)


@contextmanager
def start(**settings):
    """A client of a service in this process."""
    app = create_app(Settings(**{"max_batch": 64, **settings}))
    with TestClient(app, base_url="http://localhost") as client:
        wait_until_loaded(client)
        yield client


def refused(client, body, status=422, path="/predict", **headers):
    """The problem with a body, or with the text of one: short, and with the right status."""
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    headers = {"Content-Type": "application/json", **headers}
    answer = client.post(path, content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 6000
    problem = answer.json()
    assert problem["status"] == status
    return problem


def mean(client, body, number=0):
    """The forecast of one series of a request to /predict."""
    answer = client.post("/predict", json=body)
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["predictions"][number]["mean"])
