"""Renew a model: train it anew on newer rows, and compare both on rows that neither has seen.

A second kind of contest beside that of `challenge`, by the same arithmetic: the squared errors of
the last horizons of a file, one stretch after another. Both models answer there as they would have
been served.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.base.errors import UsageError
from forecaster.base.progress import Say
from forecaster.config.flags import Device
from forecaster.config.run_config import Loaded, RunConfig
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.scaling import Scaler
from forecaster.forecast import historical
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import Predictor, keep
from forecaster.plan.data import open_data
from forecaster.record import Backtest
from forecaster.record.challenge import Decision, Entry, decide, stretches, tags_of
from forecaster.run import train
from forecaster.run.train import Result

ORIGINS = 24
"""From how many origins for each horizon they forecast."""
MOST = 100_000
"""The most forecasts in a contest, or one a horizon: of many series, origins are further apart."""


@dataclass(frozen=True)
class Judgement:
    """Squared errors of both on the same rows, from `first` to `last`, by stretches, in standard
    deviations of each series before them, and what follows from them."""

    first: str
    last: str
    horizons: int
    champion: tuple[float, ...]
    challenger: tuple[float, ...]
    decision: Decision


@dataclass(frozen=True)
class Renewal:
    """The challenger, the contest, what `became` of it in a sentence, its `folder`, and whether it
    is served now."""

    challenger: Result
    contest: Judgement
    became: str
    folder: Path
    served: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "outcome": "renewed" if self.served else "kept",
            "became": self.became,
            "folder": str(self.folder),
            "contest": asdict(self.contest),
            "challenger": self.challenger.to_dict(),
        }


def renew(
    champion: Bundle,
    file: str,
    say: Say,
    show: Callable[[Backtest], None],
    *,
    horizons: int,
    whole: bool = False,
    to: Path | None = None,
    device: Device = "auto",
) -> Renewal:
    """Train the champion's configuration on all rows of a file before its last horizons, and let
    the better one be served from there on.

    The challenger is refitted to those rows, as it would be served. A winner is trained once more
    on the whole file if asked for as `whole`, which is not judged. In the registry it becomes the
    champion if the champion came from there; it is written `to` a folder, such as that of a
    service, if one is given. Raises UsageError if the file has no horizon that the champion has not
    seen.
    """
    config, data = _data(champion, file, device)
    for sentence in data.said:
        say(sentence)
    series, horizon = data.series, champion.horizon
    steps = len(series.times)
    seen = champion.about.get("seen_until")
    new = steps if seen is None else int((series.times > pd.Timestamp(seen)).sum())
    if new < horizon:
        raise UsageError(
            f"{file} has {new} rows after those that the model has seen, until {seen}: expected "
            f"at least one horizon of {horizon}"
        )
    if new // horizon < horizons:
        say(f"only {new // horizon} of the last {horizons} horizons are new to the champion")
        horizons = new // horizon
    cut = steps - horizons * horizon
    if series.items is not None and not series.items.rows_before(cut).any():
        raise UsageError(f"{file} has no rows before its last {horizons} horizons")
    say(f"the challenger trains on the rows before {series.times[cut]}")
    before = replace(data, series=series.before(cut), whole=None)
    trained = _train(config, before, champion, say, show)
    count = len(series.layout)
    contest = _contest(champion, trained.bundle, file, horizons, cut, count, device, say)
    say(contest.decision.reason)
    served = trained
    if contest.decision.wins and whole:
        say("the winner trains on all rows; that is not judged")
        served = _train(config, data, champion, say, lambda _: None)
    return Renewal(trained, contest, *_serve(champion, served, contest, whole, to))


def _data(champion: Bundle, file: str, device: str) -> tuple[RunConfig, Dataset]:
    config = champion.config.model_copy(update={"device": device}).changed(
        data={"name": str(Path(file).absolute()), "path": None},
        track={"register_model": False},
        train={"refit": True},
    )
    return config, open_data(config.data, champion.schema.reading)


def _train(
    config: RunConfig, data: Dataset, champion: Bundle, say: Say, show: Callable[[Backtest], None]
) -> Result:
    return train.run(Loaded(config, {}), say, show, data=(config, data), called=champion.name)


def _contest(
    champion: Bundle,
    challenger: Bundle,
    file: str,
    horizons: int,
    cut: int,
    count: int,
    device: Device,
    say: Say,
) -> Judgement:
    """Compare both on `count` series, from the step `cut` of the grid on."""
    say(f"both forecast the last {horizons} horizons, which neither has seen")
    task, horizon = (file, str(cut), str(horizons)), champion.horizon
    stride = min(max(horizon // ORIGINS, horizons * horizon * count // MOST, 1), horizon)
    entries, grid = [], pd.DatetimeIndex([])
    for bundle in (champion, challenger):
        model, newest = Predictor(bundle, device), horizons * horizon
        history, answer = historical.replay(model, file, horizon, stride, newest=newest)
        origins, series = historical.origins(history), history.series
        late, grid = origins >= cut - 1, series.times
        if series.items is None:
            scale = Scaler.fit(series.values[:cut], series.columns).std[None]
        else:
            scale = Scaler.fit_items(series.values, series.items, cut, champion.past).std
        scale = scale[history.chosen][:, None, list(bundle.schema.target_positions)]
        off = (answer.forecasts - historical.came(history)) / scale
        known = np.isfinite(off)
        with np.errstate(invalid="ignore"):  # a window without any value
            errors = np.where(known, off**2, 0).sum(axis=(1, 2)) / known.sum(axis=(1, 2))
        each = stretches(errors[late], horizon, origins[late])
        name = bundle.origin.get("version", bundle.digest[:15])
        entries.append(Entry(name, tuple(each), task))
    other, own = entries
    decision = decide(own, other, f"the last {horizons} horizons")
    first, last = grid[cut].isoformat(), grid[-1].isoformat()
    return Judgement(first, last, horizons, other.errors, own.errors, decision)


def _serve(
    champion: Bundle, served: Result, contest: Judgement, whole: bool, to: Path | None
) -> tuple[str, Path, bool]:
    """Let a winner be served; returns a sentence on what became of it, its folder, and whether it
    is served."""
    why = {**asdict(contest), "judged": not whole, "before": champion.digest}
    became, folder, wins = contest.decision.reason, served.folder, contest.decision.wins
    if champion.origin.get("name"):
        from forecaster.tracking import registry, texts
        from forecaster.tracking.notes import NewVersion

        record = served.bundle.record
        tags = tags_of(record.contest.errors if record.contest else (), texts.task(served.bundle))
        tags[registry.CONTEST] = json.dumps(why)
        own = NewVersion(champion.name, tags)
        before = champion.origin["version"]
        became, wins = registry.renew(champion.name, before, served.run_id, own, contest.decision)
    if wins and to is not None:
        about = {**served.bundle.about, "renewed": why}
        keep(replace(served.bundle, about=about), to)
        became, folder = f"{became}; written to {to}", to
    return became, folder, wins
