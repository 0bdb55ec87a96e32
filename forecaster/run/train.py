"""RunConfig -> Result: load, train, judge, keep, track; the sequence behind `train`."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch

from forecaster.base import installation, machine, signals
from forecaster.base.errors import DataError, DivergedError, UsageError
from forecaster.base.names import quoted
from forecaster.base.progress import Say, detail, lasting
from forecaster.base.spelling import rounded, spelled
from forecaster.config.run_config import Loaded, RunConfig
from forecaster.datasets.card import is_generated, load_card
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.oddities import sentences
from forecaster.datasets.windows import Windows, described
from forecaster.evaluate import newcomers
from forecaster.evaluate.cutoffs import cut, roll
from forecaster.evaluate.judge import contested, example, judge, picked, validate
from forecaster.evaluate.metrics import Score
from forecaster.forecast import effects
from forecaster.forecast.bundle import Bundle, Share
from forecaster.forecast.composition import in_words
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.predictor import Predictor, keep
from forecaster.forecast.unusual import Ranges
from forecaster.model import ForecastModel
from forecaster.model.base import parameters
from forecaster.parts import Blend, Network, Part, Weights, fit_forms, weigh_forms
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits
from forecaster.record import NETWORK, Backtest, Record, Training, Weighed
from forecaster.record.folder import RunFolder, begin
from forecaster.run import resuming
from forecaster.tracking import texts
from forecaster.train.checkpoint import Checkpoints

if TYPE_CHECKING:
    from forecaster.tracking.run import Run
    from forecaster.train.fit import Fit, Report


@dataclass(frozen=True)
class Result:
    """The outcome of a run."""

    name: str
    run_id: str
    bundle: Bundle
    folder: Path
    registered: str
    ui_command: str

    @property
    def record(self) -> Record:
        """What the run found."""
        return self.bundle.record

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "run_id": self.run_id,
            "folder": str(self.folder),
            "model": self.bundle.name,
            "digest": self.bundle.digest,
            "registered": self.registered,
            "ui": self.ui_command,
            "config": self.bundle.config.to_dict(),
            "about": self.bundle.about,
            **self.record.to_dict(),
        }


def run(
    loaded: Loaded,
    say: Say,
    show: Callable[[Backtest], None],
    cutoffs: int | None = None,
    resume: str | None = None,
    force: bool = True,
    data: tuple[RunConfig, Dataset] | None = None,
    called: str | None = None,
) -> Result:
    """Train, judge, keep and track one configuration; `show` gets the metrics of the test split.

    If `cutoffs` is given, models trained at that many cut-offs are judged, too. `resume` is the
    name of an unfinished run to continue, or "auto" for the newest one of this configuration and
    these data, if there is any. Without `force`, a finished run with the same configuration, data
    and code is shown again instead. The configuration names the data unless they are given as
    `data`. The model has the name `called`, if given.
    """
    plan = make_plan(*(data or find_data(loaded, say)), say)
    splits = make_splits(replace(plan, called=called))
    config, digest = splits.plan.config, plan.dataset.digest
    begun = None if resume is None else _begun(resume, config, digest, say)
    if begun is not None:
        cutoffs = cutoffs or begun.about.cutoffs
        begun.note(cutoffs=cutoffs)
    elif not force:
        if (done := resuming.finished(config, digest, cutoffs)) is not None:
            return _show_again(*done, say, show)
        if resume is None and (other := resuming.newest(config, digest)):
            with other:
                say(
                    f"{other.folder} is the same run, unfinished: --resume auto would continue "
                    "it; this is a new one"
                )
    if config.data.is_file:  # a card's file has known oddities
        for sentence in sentences(splits.plan.oddities):
            say(sentence)
    if cutoffs:
        cut(splits, cutoffs)  # refuses too many before training
    ready = prepare(splits, say)
    with _under_way(loaded, ready, begun, cutoffs, data is not None, say) as (own, tracked):
        assert own.folder is not None
        keeper = partial(Checkpoints, own.checkpoints, say=say)
        try:
            made = make(ready, say, show, cutoffs, tracked.report, keeper)
        except DivergedError:
            own.note(resumable=False)  # it would diverge again
            raise
        signals.check()
        about = {**made.about, "run_id": tracked.id}
        record = made.record.model_copy(update={"origins": loaded.origins})
        bundle = replace(made, about=about, record=record)
        try:
            texts.draw(own.folder, bundle)
        except Exception as error:  # no picture costs a run its model
            say(f"no pictures: {type(error).__name__}: {error}")
        bundle = keep(bundle, own.folder)
        own.finish()
        detail(say, f"bundle written to {own.folder}")
        texts.tell(tracked, bundle, own.folder)
    for oddity in splits.plan.oddities if config.data.is_file else ():
        if oddity.kind == "unfinished":
            say(f"warning: {oddity.text}")
    registered, where = tracked.registered, tracked.ui_command
    return Result(own.about.name, tracked.id, bundle, own.folder, registered, where)


@dataclass(frozen=True)
class Ready:
    """The windows of a plan and the model to train on them, which fit into memory together.

    `expected` is the memory that training is expected to take, in bytes.
    """

    name: str
    splits: Splits
    model: ForecastModel
    device: str
    train: Windows
    stopping: Windows
    expected: int


def prepare(splits: Splits, say: Say) -> Ready:
    """Build the model for some windows and announce what will be trained.

    Raises UnavailableError for a model that is too large for the memory.
    """
    from forecaster.train.fit import takes_bf16
    from forecaster.train.memory import Alive, ensure_it_fits

    config, device = splits.plan.config, machine.device(splits.plan.config.device)
    train, stopping = splits.training(device), splits.stopping(device)
    with Alive(machine.memory_left("cpu")):
        model = splits.build_model()
    name = f"{config.data.label}-{config.window.horizon}-{config.attn.name}-s{config.seed}"
    _announce(name, splits, model, device, say)
    bf16 = takes_bf16(config.train, model, device)
    memory = ensure_it_fits(model, train, config.train, device, say, bf16=bf16)
    return Ready(name, splits, model, device, train, stopping, memory)


def make(
    ready: Ready,
    say: Say,
    show: Callable[[Backtest], None],
    cutoffs: int | None = None,
    report: "Report" = lambda figures, epoch: None,
    checkpoints: Callable[[str], Checkpoints | None] = lambda stage: None,
) -> Bundle:
    """Train, blend, calibrate, judge, and refit if requested; nothing is written.

    `report` gets the figures of each epoch and its number; `checkpoints` returns the keeper of
    checkpoints for the stages "fit" and "refit". Raises DivergedError.
    """
    from forecaster.train.fit import fit

    splits, model, device = ready.splits, ready.model, ready.device
    config, about = splits.plan.config, _about(ready)
    fitted = fit(
        model, ready.train, ready.stopping, config.train,
        device=device, seed=config.seed, report=report,
        checkpoints=checkpoints("fit"),
    )  # fmt: skip
    tried, served, weighed = make_blend(splits, model, device, say)
    validation, intervals, about["intervals"], done = validate(splits, served, device)
    contest = contested(splits, validation, served, device)
    trained = _training(fitted, ready, say)
    validated = _validation(splits, validation, device, say)
    detail(say, f"intervals: {about['intervals']}")
    signals.check()
    judged = judge(splits, served, device, intervals, tried, done)
    show(judged.backtest)
    rolling = None
    if cutoffs:
        again = partial(train_anew, device=device, say=say)
        rolling = roll(splits, cutoffs, again, device, say, took=fitted.seconds).cutoffs
    record = Record(
        parameters=parameters(model),
        train=trained,
        parts=weighed,
        contest=contest,
        test=judged.backtest,
        cutoffs=rolling,
        **validated,
    )
    signals.check()
    try:
        shown = {
            name: example(splits, served, intervals, judged.model, number, device)
            for name, number in picked(judged.model.by_window).items()
        }
        record = record.model_copy(update={"examples": shown})
    except Exception as error:  # no example is worth a model that is trained and judged
        say(f"no examples: {type(error).__name__}: {error}")
    if judged.recalibrated is not None:
        intervals = judged.recalibrated
        about["intervals"] += f"; then again with the {judged.model.windows:,} test windows"
        detail(say, "the served intervals are calibrated again with the errors of the test split")

    def bundle_of(splits: Splits, served: Blend, intervals: Intervals | None) -> Bundle:
        weights = {} if served.network is None else dict(served.network.state_dict())
        parts = Share.of(served)
        return Bundle(config, splits.schema, weights, record, about, intervals, parts)

    measured = bundle_of(splits, served, intervals)
    later = checkpoints("refit")
    final, served, intervals = settle(splits, served, intervals, fitted, device, say, later)
    borders = splits.plan.borders
    last = -1 if config.train.refit or borders.each else borders.validation - 1
    about["seen_until"] = splits.plan.series.times[last].isoformat()
    about["ranges"] = Ranges.fit(final.training("cpu").whole).to_dict()
    bundle = bundle_of(final, served, intervals)
    try:
        if (stand := newcomers.rehearse(measured, splits, final.schema, device)) is not None:
            about["newcomers"] = stand.effects.tolist()
            record = record.model_copy(update={"newcomers": stand.measured})
            bundle = replace(bundle, record=record)
    except Exception as error:  # no word on new series is worth a model
        say(f"forecasts of new series were not measured: {type(error).__name__}: {error}")
    try:
        found = effects.measure(Predictor(bundle, device), final.plan.series)
    except Exception as error:  # nor is what is said of it
        say(f"the effects of inputs were not measured: {type(error).__name__}: {error}")
        return bundle
    bundle = replace(bundle, record=record.model_copy(update={"effects": found}))
    for sentence in effects.sentences(bundle):
        detail(say, sentence)
    return bundle


def _show_again(folder: Path, bundle: Bundle, say: Say, show: Callable[[Backtest], None]) -> Result:
    """Show a finished run as if it had just ended."""
    say(
        f"{folder} has the same configuration, data and code, and is shown instead; "
        "--force trains anew"
    )
    show(bundle.record.judged)
    where = installation.ui(bundle.config.track.uri or installation.tracking_uri())
    return Result(folder.name, bundle.about["run_id"], bundle, folder, "", where)


def _begun(resume: str, config: RunConfig, digest: str, say: Say) -> RunFolder | None:
    if resume != "auto":
        return resuming.take_up(resume, config, digest)
    found = resuming.newest(config, digest)
    if found is None:
        say("--resume auto: no unfinished run has this configuration and these data; starts anew")
    return found


@contextmanager
def _under_way(
    loaded: Loaded,
    ready: "Ready",
    begun: RunFolder | None,
    cutoffs: int | None,
    given: bool,
    say: Say,
) -> Iterator[tuple[RunFolder, "Run"]]:
    """The folder of a run and its run in the tracker, new or continued.

    A run that ends early says how to continue it, unless its data were `given`: they are in no
    file, and nothing is kept.
    """
    from forecaster.tracking.run import start

    splits, key = ready.splits, uuid4().hex
    config = splits.plan.config
    own = begun or begin(
        f"{ready.name}-{key[:8]}", key, config=config.to_dict(), cutoffs=cutoffs,
        data=config.data.label, data_digest=splits.plan.dataset.digest,
        source=splits.plan.series.source,
    )  # fmt: skip
    with (
        start(config, own.about.name, _tags(loaded, ready), held=own, say=say) as tracked,
        signals.orderly(),
    ):
        if begun is None:
            own.note(resumable=not given)
            tracked.report({texts.FIRST: math.nan}, -1)  # unknown yet, but it comes first
        try:
            tracked.params(texts.params(config, texts.chosen(loaded)))
            yield own, tracked
        except BaseException as error:
            wrong = isinstance(error, UsageError | DataError)  # it would end the same again
            if own.about.resumable and not own.finished and not wrong:
                with suppress(BrokenPipeError):
                    again = f"forecaster train --resume {own.about.name}"
                    say(f"to continue from its last checkpoint: {again}")
            raise


def _announce(name: str, splits: Splits, model: ForecastModel, device: str, say: Say) -> None:
    """Report what will be trained, and what is known about it beforehand."""
    config, series = splits.plan.config, splits.plan.series
    count = len(splits.schema.needs)
    size = f"{len(series.values):,} rows of {count} column" + "s" * (count > 1)
    if series.items is not None:
        size = f"{len(series.items):,} series, {size}"
    say(
        f"{name}: {config.data.label} ({size} every {splits.schema.freq}), "
        f"look back {config.window.past}, forecast {config.window.horizon}; "
        f"{config.model.name} with {parameters(model):,} parameters on {device}"
    )
    if series.items is not None:
        past, _, horizon = config.window.lengths()
        used = {
            part: int((series.items.windows(past, horizon, *steps)[1] > 0).sum())
            for part, steps in splits.plan.borders.parts.items()
        }
        if min(used.values()) < len(series.items):
            parts = ", ".join(f"{part} {number:,}" for part, number in used.items())
            say(f"of the {len(series.items):,} series, some are too short for every part: {parts}")
    amounts = at_these_lengths(model.effective())
    detail(say, f"attention {config.attn.name} at these lengths: {amounts}")


def _about(ready: Ready) -> dict[str, Any]:
    splits, borders = ready.splits, ready.splits.plan.borders
    return {
        "name": splits.plan.name,
        "data_digest": splits.plan.dataset.digest,
        "borders": [borders.train, borders.validation, borders.test],
        "commit": installation.commit(),
        "attn_effective": summarise(ready.model.effective()),
        "refit": splits.plan.config.train.refit,
        "hardware": machine.hardware(ready.device),
        "threads": torch.get_num_threads(),
    }


def _tags(loaded: Loaded, ready: Ready) -> dict[str, str]:
    config, data = ready.splits.plan.config, loaded.config.data
    named = config.data.is_file or is_generated(data.name)
    wanted = config.data.name if named else load_card(data.name).name
    tags = {
        **texts.tags(config),
        "attn.effective": summarise(ready.model.effective()),
        "data.digest": ready.splits.plan.dataset.digest,
        "data.instead_of": wanted if wanted != config.data.name else "",
        "config": loaded.file,
        "device": ready.device,
        "git.commit": installation.commit(),
    }
    return {key: value for key, value in tags.items() if value}


def _training(fitted: "Fit", ready: Ready, say: Say) -> Training:
    where = f"after {_epochs(fitted.best_epoch)}" if fitted.best_epoch else "from before training"
    why = "" if fitted.late or fitted.epochs == fitted.limit else ", as it no longer got better"
    say(
        f"training ended after {_epochs(fitted.epochs)} of at most {fitted.limit}{why}, in "
        f"{lasting(fitted.seconds)}; the network is the one {where}, the best on validation"
    )
    for sentence in fitted.sentences:
        say(sentence)
    return Training(
        windows=len(ready.train),
        peak_mib=machine.peak_mib(ready.device),
        expected_mib=ready.expected / 2**20,
        epochs=fitted.epochs,
        seconds=fitted.seconds,
        best_epoch=fitted.best_epoch,
        steps=fitted.steps,
        windows_per_second=fitted.windows_per_second,
        still_falling=fitted.still_falling,
    )


def _epochs(count: float) -> str:
    return f"{rounded(count)} epoch{'s' * (count != 1)}"


def train_network(splits: Splits, device: str) -> tuple[ForecastModel, "Fit"]:
    """Train the network of a plan alone, in this process."""
    from forecaster.train.fit import fit

    model, config = splits.build_model(), splits.plan.config
    windows = splits.training(device), splits.stopping(device)
    return model, fit(model, *windows, config.train, device=device, seed=config.seed)


def train_anew(splits: Splits, device: str, say: Say) -> tuple[list[Part], Blend]:
    """Train the network and fit the parts of a plan; return all tried parts, and the model."""
    model, fitted = train_network(splits, device)
    for sentence in fitted.sentences:
        say(sentence)
    tried, served, _ = make_blend(splits, model, device, say)
    return tried, served


def make_blend(
    splits: Splits, model: ForecastModel, device: str, say: Say
) -> tuple[list[Part], Blend, dict[str, Weighed]]:
    """Fit the closed forms and weigh them with the network, on the windows that stop training.

    If those are few, closed forms are also chosen and weighed on later training rows.

    Returns all tried parts, the model that is served, and the weight and error of each part. A part
    without any weight is not served. A `blend` other than "all" makes one part the whole forecast:
    of those with that name, the one with the smallest error. Raises UsageError if there is none.
    """
    network = Network(model.to(device).eval())
    began, fold = time.monotonic(), splits.fold(device)
    tried, found = weigh_forms(fold, splits.forms or fit_forms(fold), network)
    verb = "weighed" if splits.forms else "fitted and weighed"
    detail(
        say,
        f"{verb} {len(tried) - 1} closed forms with the network on {len(fold.choose)} windows in "
        f"{lasting(time.monotonic() - began)}",
    )
    if (wanted := splits.plan.config.blend) != "all":
        name = NETWORK if wanted == "none" else wanted
        able = [i for i, part in enumerate(tried) if part.name.partition(",")[0] == name]
        if not able:
            raise UsageError(
                f"{spelled('blend', wanted)}: these data have no such part; they have "
                f"{quoted([part.name for part in tried])}"
            )
        alone = torch.zeros_like(found.common)
        alone[min(able, key=lambda i: float(found.mse[i]))] = 1
        found = Weights(alone, found.mse)
    served = Blend.weighed(tried, found)
    say(f"the forecast is made of {in_words(served.shares)}")
    parts = {
        part.name: Weighed(
            weight=float(found.common[i].mean()),
            validation_mse=float(found.mse[i]),
            chosen=part.chosen,
        )
        for i, part in enumerate(tried)
    }
    return tried, served.to(device).eval(), parts


def _validation(splits: Splits, found: Score, device: str, say: Say) -> dict[str, Any]:
    """The error on every window of validation, which decides between models of one task."""
    windows, stopping = splits.validation(device), len(splits.stopping(device))
    few = "" if stopping == len(windows) else f"; {stopping} of them decided when training stopped"
    detail(say, f"validation MSE {found.mse:.4f} on {described(windows)}{few}")
    return {
        "validation_mse": found.mse,
        "validation_windows": found.windows,
        "validation_every": windows.every,
        "stopping_windows": stopping,
    }


def settle(
    splits: Splits,
    served: Blend,
    intervals: Intervals | None,
    fitted: "Fit",
    device: str,
    say: Say,
    checkpoints: Checkpoints | None = None,
) -> tuple[Splits, Blend, Intervals | None]:
    """The model to keep after the evaluation: the judged one, or one that is refitted.

    A refit fits every part once more on all rows, with a new scaler. The network trains for the
    epochs that validation chose; the choices of the closed forms, and all weights, stay.
    """
    from forecaster.train.fit import fit

    config = splits.plan.config
    if not config.train.refit:
        return splits, served, intervals
    final = splits.refitted()
    windows, epochs = final.training(device), fitted.best_epoch
    say(f"refit on all {len(final.plan.series.values):,} rows for {_epochs(epochs)}")
    fold = replace(splits.fold(device), train=windows)
    parts: dict[str, Part] = {}
    for name, part in zip(served.names, served.members, strict=True):
        if isinstance(part, Network):
            model = final.build_model()
            fit(
                model, windows, None, config.train,
                device=device, seed=config.seed, epochs=epochs, checkpoints=checkpoints,
            )  # fmt: skip
            parts[name] = Network(model)
        else:
            parts[name] = part.refit(fold)
    if intervals is not None:
        old, new = splits.schema.target_scaler, final.schema.target_scaler
        intervals = intervals.rescaled(old.std / new.std)
    blend = Blend(served.task, parts, served.weights, served.of_series)
    return final, blend.to(device).eval(), intervals


def at_these_lengths(effective: dict[str, str]) -> str:
    """The effective attention in words for people, without the names of modules."""
    texts = dict.fromkeys(effective.values())
    if all(text.partition(":")[0] == "full" for text in texts):
        return "full attention, every token sees all others"
    return "; ".join(texts)


def summarise(effective: dict[str, str]) -> str:
    """The effective attention in words, with equal places joined."""
    grouped: dict[str, list[str]] = {}
    for place, text in effective.items():
        grouped.setdefault(text, []).append(place)
    return "; ".join(f"{', '.join(places)}: {text}" for text, places in grouped.items())
