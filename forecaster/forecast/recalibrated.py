"""A model whose intervals follow the values in a ledger (`forecaster.record.adapting`)."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pandas as pd

from forecaster.base.errors import StorageError, UsageError
from forecaster.base.progress import Say
from forecaster.forecast import kept
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import keep
from forecaster.record import adapting, ledger, live


def recalibrate(bundle: Bundle, folder: Path, to: Path, say: Say) -> Bundle:
    """Write a model whose intervals have followed the values in a ledger, which keeps the widths;
    the model as it is if they have not changed.

    Raises UsageError for a model without intervals, and where no value came.
    """
    if bundle.intervals is None:
        raise UsageError(f"this model has no intervals: {bundle.about['intervals']}")
    model, targets = kept.trained(bundle), bundle.schema.targets
    forecasts = ledger.read(folder, "forecasts", say, model=model)
    first = live.match(forecasts, ledger.read(folder, "actuals", say), first=True).rows
    if first.empty:
        raise UsageError(f"{folder} has no value of a step that this model forecast")
    known = ledger.read(folder, "calibrations", say, model=model)
    before = bundle.about.get("calibration", {"widths": {}})["widths"]
    said = {model: {target: dict[str, float]() for target in targets}}
    if before:  # also where the ledger could not keep it
        said[bundle.digest] = before
    for digest, target, band, width in zip(
        *(known[name] for name in ("digest", "target", "band", "width") if len(known)), strict=True
    ):
        said.setdefault(digest, {each: {} for each in targets})[target][band] = width
    paths = adapting.follow(first, said)
    widths = adapting.newest(paths)
    if widths == before:
        say("the intervals stay as they are")
        return bundle
    until = max(path.index[-1] for path in paths.values())
    told = bundle.about["intervals"].partition("; widths follow")[0]
    about = {
        **bundle.about, "intervals": f"{told}; widths follow the values until {until}",
        "calibration": {"model": model, "until": until.isoformat(), "widths": widths},
    }  # fmt: skip
    intervals = bundle.intervals.widened(targets, widths, before)
    made = keep(replace(bundle, intervals=intervals, about=about), to)
    rows = [(t, band, width) for t, own in widths.items() for band, width in own.items()]
    table = pd.DataFrame(rows, columns=["target", "band", "width"])
    writer = ledger.Ledger(folder)
    writer.add(
        "calibrations",
        table.assign(model=model, digest=made.digest, made=pd.Timestamp.now(UTC).tz_convert(None)),
    )
    if not writer.flush():
        raise StorageError(f"{folder} cannot be written: the widths are not kept")
    return made
