"""Train and measure one cell of a grid, and keep it in its own folder.

    cell.json            its definition and its results
    arrays.safetensors   by_window (n,): the squared error of each test window, in float64
    model.safetensors    the weights

A folder is either complete or absent.
"""

import contextlib
import io
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import save as save_weights

from forecaster.base import atomic
from forecaster.base.errors import StorageError, UsageError
from forecaster.base.machine import device as find_device
from forecaster.base.machine import hardware, memory_rise, threads
from forecaster.datasets.seasons import mean_correlation
from forecaster.datasets.windows import Windows
from forecaster.evaluate.figures import measure
from forecaster.evaluate.judge import errors_of
from forecaster.evaluate.metrics import forecast_with, score, scores
from forecaster.model import ForecastModel
from forecaster.model.base import parameters
from forecaster.parts import fit_forms
from forecaster.parts.base import forecast_of
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits
from forecaster.run.train import summarise
from forecaster.study.compare.grid import Cell, Data, amounts_to_full, tokens
from forecaster.study.compare.record import CellRecord

TRIED = 10
"""Steps from which `seconds_of` tells how long a cell takes."""
CALLS = 30
"""The forecasts of one window whose median time is kept: a few slow ones do not move it."""
IDENTITY = ("attn", "data", "horizon", "regime", "linear", "seed")
FACTS, ARRAYS, WEIGHTS = "cell.json", "arrays.safetensors", "model.safetensors"


@dataclass(frozen=True)
class Finished:
    """A finished cell: its folder, and the contents of cell.json."""

    folder: Path
    facts: CellRecord

    def by_window(self) -> np.ndarray:
        """The squared error of each test window, (n,); nan where nothing is observed."""
        return self.arrays()["by_window"]

    def steps(self) -> np.ndarray | None:
        """The steps at which the test windows begin, (n,); None if they are one apart."""
        return self.arrays().get("steps")

    def arrays(self) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = load_arrays(self.folder / ARRAYS)
        return arrays

    def note(self, **facts: Any) -> "Finished":
        """The cell with more facts, which are also written to disk."""
        noted = Finished(self.folder, self.facts.model_copy(update=facts))
        write_json(self.folder / FACTS, noted.facts.to_dict())
        return noted


def read(folder: Path) -> Finished:
    file = folder / FACTS
    try:
        return Finished(folder, CellRecord.read(read_json(file)))
    except ValueError as error:
        raise StorageError(f"{file} is no cell: {error}. Remove {folder}.") from error


def read_json(file: Path) -> dict[str, Any]:
    """A document that `write_json` wrote. Raises StorageError."""
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return document
    except (OSError, ValueError) as error:
        raise StorageError(f"{file} cannot be read: {error}. Remove {file.parent}.") from error


def seconds_of(cell: Cell, data: Data) -> float:
    """About how long `train` takes for a cell, from a few steps of it."""
    from forecaster.train.fit import fit
    from forecaster.train.loaders import EpochOrder

    splits = make_splits(make_plan(cell.config, data[cell.data]), known=None)
    config, device = splits.plan.config, find_device(cell.config.device)
    train, steps = splits.training(device), min(TRIED, cell.steps)
    order = EpochOrder(len(train), config.train.batch, config.train.stride, cell.seed)
    with contextlib.redirect_stderr(io.StringIO()), threads(1):
        fitted = fit(
            splits.build_model(), train, None, config.train,
            device=device, seed=cell.seed, epochs=steps / len(order),
        )  # fmt: skip
    checks = cell.steps / max(1, len(order) // config.train.checks)
    scored = checks * len(splits.validation(device)) + len(splits.test(device))
    forward = scored / config.train.batch / 3  # a step is three times a forward pass
    return fitted.seconds / steps * (cell.steps + forward)


def train(shared: tuple[Data, str, str], cell: Cell) -> dict[str, bytes]:
    """Train and measure a cell on one thread; returns the files of its folder.

    All cells of a grid share the data, the commit and the command.
    """
    data, commit, command = shared
    from forecaster.train.fit import fit
    from forecaster.train.loaders import EpochOrder

    torch.set_num_threads(1)
    start = time.monotonic()
    splits = make_splits(make_plan(cell.config, data[cell.data]), known=None)
    config = splits.plan.config
    device = find_device(config.device)
    train = splits.training(device)
    validation = splits.validation(device).looking_back(train.past)
    order = EpochOrder(len(train), config.train.batch, config.train.stride, cell.seed)
    between = max(1, len(order) // config.train.checks)
    if cell.steps < between:
        raise UsageError(
            f"{cell.steps} steps end before the first check, which comes after {between}: train "
            f"for more steps, or raise train.checks (now {config.train.checks})"
        )
    model = splits.build_model()
    effective = summarise(model.effective()) or "the linear path alone"
    full = amounts_to_full(cell.attn, model)
    spent = time.process_time()
    with contextlib.redirect_stderr(io.StringIO()):  # a line for each epoch
        fitted = fit(
            model, train, validation, config.train,
            device=device, seed=cell.seed, epochs=cell.steps / len(order),
        )  # fmt: skip
    seconds = time.process_time() - spent if device == "cpu" else fitted.seconds
    windows = cell.steps * order.windows / order.stride / len(order)
    test = splits.test(device).looking_back(train.past)
    scored = score(forecast_with(model), test)
    errors = errors_of(splits, train, scored)
    together = None  # for a panel
    if train.items is None:
        together = mean_correlation(train.values.cpu().numpy(), splits.plan.dataset.seasons)
    facts = {
        **{key: getattr(cell, key) for key in IDENTITY},
        "config": config.to_dict(),
        "config_digest": cell.digest,
        "data_digest": splits.plan.dataset.digest,
        "tokens": tokens(model),
        "together": together,
        "parameters": parameters(model),
        "budget_parameters": cell.parameters,
        "within_budget": cell.within_budget,
        "effective": effective,
        "is_full": full,
        "steps": cell.steps,
        "best_step": round(fitted.best_epoch * len(order)),
        "train_seconds": seconds,
        "windows_per_second": windows / seconds,
        "validation_mse": fitted.validation_mse,
        "windows": scored.windows,
        **measure(errors),
        "by_step": measure(errors, "step"),
        "floors": _floors(splits, train, test),
        **_costs(model, train, test, config.train.batch, device),
        "hardware": hardware(device, 1),
        "commit": commit,
        "command": command,
        "seconds": time.monotonic() - start,
    }
    weights = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    arrays = {"by_window": scored.by_window}
    if scored.steps is not None:
        arrays["steps"] = scored.steps
    return {
        FACTS: _json(CellRecord.read(facts).to_dict()),
        ARRAYS: save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()}),
        WEIGHTS: save_weights(weights),
    }


def keep(folder: Path, contents: dict[str, bytes]) -> Finished:
    """Write the folder of a cell, completely or not at all. Raises StorageError."""
    temporary = folder.with_name(f".{folder.name}-{os.getpid()}")
    with atomic.storing(f"the cell could not be written to {folder}"):
        temporary.mkdir(parents=True)
        for name, content in contents.items():
            (temporary / name).write_bytes(content)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    return read(folder)


_known_floors: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}


def _floors(splits: Splits, train: Windows, test: Windows) -> dict[str, dict[str, Any]]:
    """The metrics of each floor on the test windows, computed once for the same splits."""
    config = splits.plan.config.model_dump_json(include={"data", "window", "intervals"})
    key = (splits.plan.dataset.digest, splits.plan.borders, config)
    if key not in _known_floors:
        fold = splits.fold(str(test.values.device))
        parts = fit_forms(fold)[0]
        test = test.looking_back(fold.task.past)
        errors = scores(lambda batch: [forecast_of(part, batch) for part in parts], test)
        _known_floors[key] = {
            part.name: measure(errors_of(splits, train, scored), "all", "terminal")
            for part, scored in zip(parts, errors, strict=True)
        }
    return _known_floors[key]


def _costs(
    model: ForecastModel, train: Windows, test: Windows, size: int, device: str
) -> dict[str, float | None]:
    """The median time of a forecast of one window: processor time, on a GPU wall time; and how far
    a training step of `size` windows raises the peak of memory, None if it cannot be measured."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    one, several = test.batch(torch.tensor([0])), train.batch(torch.arange(min(size, len(train))))
    times = []
    with torch.inference_mode():
        for _ in range(CALLS + 3):
            start = clock()
            forecast_with(model)(one)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(clock() - start)

    def step() -> None:
        (model(*several.inputs) - several.target).square().mean().backward()

    model.train()
    _, rise = memory_rise(step, device)
    model.eval()
    peak = None if rise is None else rise / 2**20
    return {"inference_ms": 1e3 * median(times[3:]), "peak_mib": peak}


def write_json(file: Path, document: dict[str, Any]) -> None:
    """Replace a file atomically with a JSON document. Raises StorageError."""
    atomic.write(file, _json(document))


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
