"""A tiny bundle with random weights, and a client of a service that has it loaded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient

from forecaster.bundle import Bundle, Schema
from forecaster.config import load_dict
from forecaster.datasets import Scaler
from forecaster.intervals import Intervals
from service.app import create_app
from service.settings import Settings

NAME = "forecaster-toy-M-all-6"
PAST, HORIZON = 24, 6
COLUMNS = ("load", "wind", "Zürich °C")


def make_bundle(
    folder: Path,
    columns: tuple[str, ...] = COLUMNS,
    freq: str = "h",
    timezone: str = "naive",
    loss: str = "mse",
) -> Bundle:
    """An Informer with ProbSparse attention that nobody trained.

    Its quantiles at 0.1, 0.5, 0.9 lie -1, 0 and 2 times the number of the step from the forecast.
    """
    config = load_dict(
        {
            "window": {"past": PAST, "start": 12, "horizon": HORIZON},
            "model": {"name": "informer", "width": 16, "heads": 2, "feed_forward": 16},
            "attn": {"name": "prob", "factor": 1},
            "train": {"loss": loss},
            "intervals": {"levels": [0.1, 0.5, 0.9]},
        },
        "the test",
    )
    steps = np.arange(1.0, HORIZON + 1).repeat(len(columns)).reshape(HORIZON, -1)
    intervals = Intervals((0.1, 0.5, 0.9), steps[..., None] * [-1.0, 0.0, 2.0], steps, 99)
    scaler = Scaler(tuple(10.0 * i + 1 for i in range(len(columns))), (2.0,) * len(columns))
    schema = Schema(columns, columns, "time", timezone, freq, (24, 168), scaler)
    torch.manual_seed(0)
    model = config.build_model(schema.task(PAST, 12, HORIZON))
    about = {"name": NAME, "run_id": "0" * 32, "attn_effective": "sparse", "intervals": "made up"}
    metrics = {"test": {"mse": 0.5, "mae": 0.4, "windows": 10}}
    return Bundle(config, schema, dict(model.state_dict()), metrics, about, intervals).save(folder)


def wait_until_loaded(client: TestClient) -> None:
    """Until the service has a model or has given up."""
    while "being loaded" in client.get("/readyz").text:
        time.sleep(0.02)


@contextmanager
def start(**settings: Any) -> Iterator[TestClient]:
    """A client of a service in this process."""
    app = create_app(Settings(**settings))
    with TestClient(app, base_url="http://localhost") as client:
        wait_until_loaded(client)
        yield client
