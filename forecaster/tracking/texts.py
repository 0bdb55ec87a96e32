"""What MLflow is told of a run, and what its pages show of it: about ten figures, a dozen
parameters, tables, a description.

All other facts about a run are in the tables and files among its artefacts.
"""

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.base import atomic, installation
from forecaster.evaluate import display
from forecaster.evaluate.cutoffs import COVERED
from forecaster.record import Record
from forecaster.record.folder import PLOTS, make_folder
from forecaster.report import tables
from forecaster.report.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.config.run_config import Loaded, RunConfig
    from forecaster.forecast.bundle import Bundle
    from forecaster.tracking.notes import Notes

FIRST = "network_test_mse"
"""The figure that compares attentions. MLflow's page for comparing runs draws the figure that a run
logged first."""
PARAMS = (
    "attn.name", "data.name", "data.features", "window.past", "window.horizon", "model.name",
    "model.width", "model.encoder_layers", "train.epochs", "train.batch", "train.lr", "blend",
    "seed",
)  # fmt: skip
"""The values of its configuration that every run shows, if its model has them."""

PICTURE, PICTURE_DPI = "picture.png", 60
"""The picture in a description, which MLflow's page shows in its original size."""
NESTED = {"steps", "network", "floors", "weights"}
"""What a cut-off's row has no room for."""


def params(config: "RunConfig", chosen: Iterable[str]) -> dict[str, str]:
    """PARAMS and the `chosen` values of a configuration, by dotted names.

    A chosen name may be that of a section. The address of the tracker is not a parameter of a run.
    """
    shown = (*PARAMS, *chosen)
    return {
        key: value
        for key, value in config.flat().items()
        if any(f"{key}.".startswith(f"{name}.") for name in shown) and not key.startswith("track.")
    }


def tags(config: "RunConfig") -> dict[str, str]:
    data, horizon = config.data.label, str(config.window.horizon)
    return {"attn": config.attn.name, "data": data, "horizon": horizon}


def chosen(loaded: "Loaded") -> list[str]:
    """The values that the user chose: neither defaults nor values of a file in configs/."""
    shipped = str(installation.configs())
    return [key for key, origin in loaded.origins.items() if not origin.startswith(shipped)]


def headline(record: Record) -> dict[str, float]:
    """The figures by which runs are compared; errors are of scaled values on the test split."""
    test, train = record.judged, record.train
    assert train
    network, covered = test.network, test.band(COVERED)
    spread = record.cutoffs.mse if record.cutoffs else None
    numbers = {
        FIRST: network["mse"] if network else None,
        "network_test_mae": network["mae"] if network else None,
        "network_weight": network.weight if network else None,
        "test_mse": test["mse"],
        "test_mae": test["mae"],
        "skill": test.bar.skill,
        f"coverage_{COVERED}": covered["coverage"] if covered else None,
        "train_seconds": train.seconds,
        "best_epoch": train.best_epoch,
        "peak_mib": train.peak_mib,
        "parameters": record.parameters,
        "cutoffs/mse_mean": spread.mean if spread else None,
        "cutoffs/mse_sd": spread.sd if spread else None,
    }
    return {key: float(value) for key, value in numbers.items() if value is not None}


def tables_of(bundle: "Bundle") -> dict[str, list[Row]]:
    """The other facts in rows: figures by part, column, step, interval, and the configuration."""
    record = bundle.record
    test, cutoffs = record.judged, record.cutoffs
    by_name: dict[str, list[Row]] = {
        "parts": tables.parts(record, bundle.config.attn.name),
        "kinds": tables.kinds(test),
        "columns": tables.columns(test),
        "steps": tables.steps(test),
        "intervals": tables.intervals(test),
        "cutoffs": [cut.model_dump(exclude=NESTED) for cut in (cutoffs.each if cutoffs else ())],
        "config": [
            {"key": key, "value": value, "from": record.origins.get(key, "")}
            for key, value in bundle.config.flat().items()
        ],
    }
    return {name: rows for name, rows in by_name.items() if rows}


def figures(bundle: "Bundle") -> "dict[str, Figure]":
    """The pictures of a run: one forecast of the test split, and the error by step."""
    test, freq = bundle.record.judged, bundle.schema.freq
    curves = display.by_step(test)
    pictures = {"error_by_step": display.step_figure(curves, test.best_floor, test.windows)}
    if median := bundle.record.examples.get("median"):
        pictures["forecast"] = display.example_figure(median, freq, test)
    return pictures


def draw(folder: Path, bundle: "Bundle") -> None:
    """Write the pictures of a run to its folder. Raises StorageError, and errors of matplotlib."""
    plots, drawn = folder / PLOTS, figures(bundle)
    make_folder(plots)
    small = {PICTURE: drawn["forecast"]} if "forecast" in drawn else {}
    drawn = {f"{name}.png": picture for name, picture in drawn.items()} | small
    for name, figure in drawn.items():
        into = io.BytesIO()
        figure.savefig(into, format="png", dpi=PICTURE_DPI if name == PICTURE else "figure")
        atomic.write(plots / name, into.getvalue())


def tell(notes: "Notes", bundle: "Bundle", folder: Path) -> None:
    """Note what MLflow is to have of a finished run, from its bundle and its folder."""
    record = bundle.record
    notes.describe(*describe(bundle), PICTURE if (folder / PLOTS / PICTURE).exists() else "")
    notes.metrics(headline(record))
    notes.tables(tables_of(bundle))
    notes.text("metrics.json", json.dumps(record.to_dict(), indent=1))
    notes.log_model(folder)
    if bundle.config.track.register_model and record.contest is not None:
        about = describe_model(bundle)
        notes.register(bundle.name, record.contest.errors, task(bundle), about)


def task(bundle: "Bundle") -> dict[str, str]:
    """The tags of a version that must agree for its errors to be compared."""
    contest, about = bundle.record.contest, bundle.about
    return {
        "data.digest": about["data_digest"], "borders": str(about["borders"]),
        "windows": contest.windows if contest else "",
    }  # fmt: skip


def describe(bundle: "Bundle") -> tuple[str, str]:
    """A description in Markdown: the verdicts in words, and a table of all parts tried."""
    test = bundle.record.test
    table = tables.made_of(bundle)
    parts = tables.in_markdown(table.head, table.rows, numbers=range(1, len(table.head) - 1))
    return "\n\n".join(test.verdicts) if test else "", parts


def describe_model(bundle: "Bundle") -> str:
    """A description in Markdown of what the versions of a registered name have in common."""
    return (
        f"Forecasts of {bundle.config.data.label}, {bundle.horizon} steps of {bundle.schema.freq} "
        "ahead. `champion` is the version that is served, `challenger` one that is better but not "
        f"measurably, or that was judged on other data.\n\n`forecaster serve --model {bundle.name}`"
    )
