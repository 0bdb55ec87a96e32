"""Track a run while it lasts: it never waits for MLflow, and nothing fails because of MLflow.

All that is recorded is on disk at once (`notes`), and a thread publishes it. MLflow's own
asynchronous logging does not do: a process whose server hangs could not end for minutes.
"""

import io
import itertools
import json
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from forecaster.tracking import store  # before mlflow, which it silences

# isort: split
from mlflow import environment_variables
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor
from mlflow.tracking.context.registry import resolve_tags
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS, MLFLOW_RUN_NOTE
from mlflow.version import VERSION as MLFLOW

from forecaster import signals
from forecaster.errors import ForecasterError, Stopped, StorageError
from forecaster.progress import Say
from forecaster.resources import PACKAGE, TRAINING, tracking_uri, ui, without_password
from forecaster.tracking import notes
from forecaster.tracking.notes import Data, Model, Noted, Notes, Points, Version
from forecaster.tracking.publish import OWN_ID, SYSTEM, Publisher
from forecaster.tracking.registry import Registration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecaster.config import RunConfig

REQUIREMENTS = (
    *("mlflow", "torch", "numpy", "pandas", "pydantic", "pyyaml", "safetensors"),
    *("jaxtyping", "platformdirs"),
)
"""The packages that a bundle needs to run; the code of forecaster itself is logged with the model,
since a package index may have another package of that name."""
DIGITS = 6
"""The significant digits of final figures, as many as a column shows."""
PICTURE, PICTURE_DPI = "picture.png", 60
"""The picture in a description, which MLflow's page shows in its original size."""
PLOTS, TABLES = "plots", "tables"
"""The folders of pictures and tables among the artefacts of a run."""
SYNC = "forecaster sync"
SAMPLING_SECONDS = 5
"""The time between two readings of processor, memory and disk."""

FIRST, LAST, CUT_SHORT = range(3)
Limits = tuple[float, float, int]
"""How long a run waits: seconds without progress, total seconds, failures."""
LIMITS: tuple[Limits, ...] = ((5.0, 5.0, 2), (15.0, 60.0, 3), (3.0, 3.0, 2))
"""The limits for a server at the start of a run, at its end, and when it is stopped."""
LOCAL_LIMITS: tuple[Limits, ...] = ((inf, inf, 1), (60.0, inf, 3), (3.0, 3.0, 2))
"""The same limits if MLflow's store is a file."""
BRIEF: Limits = (1.0, 1.0, 1)
"""The limits after the store kept an earlier run of this process waiting: a grid has hundreds of
runs."""
_silent: set[str] = set()
LOOKS = 0.2
"""Seconds between two looks for progress or a signal."""
PAUSES = 1.0, 30.0
"""Seconds from a failure to the next try: the first and the longest pause; pauses double."""


class Background(threading.Thread):
    """Calls `publish` when there is something new, and again after failures until it succeeds.

    `publish` raises when the tracker fails. `progress` grows while it goes on. `ended` is called
    when the thread ends.
    """

    def __init__(
        self,
        publish: Callable[[], None],
        progress: Callable[[], int] = lambda: 0,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="forecaster-tracker", daemon=True)
        self._publish, self._progress, self._ended = publish, progress, ended
        self.error: BaseException | None = None
        self._change = threading.Condition()
        self._news, self._told = 1, 0
        """How often there was something new, and how many of these are published."""
        self._failures = 0
        self._hurry = self._closed = False

    def run(self) -> None:
        pause, longest = PAUSES
        rest: float | None
        while not self._closed:
            news, self._hurry = self._news, False
            try:
                self._publish()
            except Exception as error:  # a tracker may raise anything
                self.error, self._failures = error, self._failures + 1
                rest, pause = pause, min(2 * pause, longest)
            else:
                self.error, self._told = None, news
                rest, pause = None, PAUSES[0]
            with self._change:
                self._change.notify_all()
                self._change.wait_for(self._is_due, rest)
        self._ended()

    def _is_due(self) -> bool:
        is_new = self.error is None and self._news > self._told
        return self._hurry or self._closed or is_new

    def wake(self) -> None:
        """Publish what is new. Returns at once; a failing tracker keeps its pause."""
        with self._change:
            self._news += 1
            self._change.notify_all()

    def settle(self, limits: Limits, patience: float = 0.0) -> bool:
        """Wait until all is published, and return whether it is.

        Gives up at the limits, and when a signal comes. A tracker that is not there yet, since
        nobody listens, is tried again for `patience` seconds.
        """
        end = time.monotonic() + patience
        while not (whole := self._settle(*limits)):
            is_absent = self.error is not None and store.is_absent(self.error)
            if not is_absent or time.monotonic() >= end or signals.waiting():
                break
            time.sleep(PAUSES[0])
        return whole

    def _settle(self, still: float, total: float, failures: int) -> bool:
        begun = moved = time.monotonic()
        with self._change:
            progress, news = self._progress(), self._news
            # one failure is enough if the last try failed
            allowed = self._failures + (1 if self.error else failures)
            self._hurry = True  # also during the pause after a failure
            self._change.notify_all()
            while self._told < news:
                now = time.monotonic()
                if self._progress() != progress:
                    progress, moved = self._progress(), now
                if (
                    self._closed
                    or self._failures >= allowed
                    or min(moved + still, begun + total) <= now
                    or 0 < signals.waiting() < now - begun
                ):
                    return False
                self._change.wait(LOOKS)
        return True

    def close(self) -> None:
        """End the thread; one that hangs ends with the process."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self.join(1)


class Run:
    """A run in progress; made by `start`.

    Only `register` and `settle` wait for MLflow. Raises StorageError when the disk is full.
    """

    def __init__(
        self,
        own: Notes,
        publisher: Publisher,
        background: Background,
        patience: float = 0.0,
        say: Say = lambda text: None,
    ) -> None:
        self._own, self._publisher, self._background = own, publisher, background
        self._patience, self._say = patience, say
        self.uri = publisher.uri

    @property
    def id(self) -> str:
        """MLflow's id, or ours if MLflow was away at the start; it then knows the run by both."""
        return self._own.about.id

    @property
    def ui_command(self) -> str:
        """The command to type if no server runs, and the address of the runs, one per line."""
        return ui_command(self.uri, self._publisher.experiment)

    def params(self, values: Mapping[str, str]) -> None:
        """Log parameters; names become valid for MLflow, values are cut at 6000 characters."""
        fit = {_key(key): _cut(value, 6000) for key, value in values.items()}
        self._note(params={**self._own.about.params, **fit})

    def report(self, figures: Mapping[str, float], epoch: int) -> None:
        """Log figures of an epoch; if a metric has several values at a step, the first counts."""
        self._add(Points(at=store.now(), step=epoch, values=_valid(figures)))

    def metrics(self, values: Mapping[str, float]) -> None:
        """Log final figures, rounded to DIGITS; those of a run with a model are also the model's,
        if they come after it."""
        rounded = {key: _rounded(value) for key, value in _valid(values).items()}
        self._add(Points(at=store.now(), step=0, values=rounded, final=True))

    def figure(
        self, name: str, figure: "Figure", dpi: float | Literal["figure"] = "figure"
    ) -> None:
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=dpi)
        self._write(f"{_key(name).replace('/', '_')}.png", picture.getvalue(), PLOTS)

    def text(self, name: str, text: str, folder: str = "") -> None:
        self._write(name, text.encode(errors="replace"), folder)

    def tables(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Save tables by name, each a list of rows, as files that MLflow's page shows as tables."""
        for name, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            data = [[row.get(key) for key in columns] for row in rows]
            self.text(f"{name}.json", json.dumps({"columns": columns, "data": data}), TABLES)
        known = [{"path": f"{TABLES}/{name}.json", "type": "table"} for name in tables]
        self._tag(MLFLOW_LOGGED_ARTIFACTS, json.dumps(known))

    def describe(self, first: str, rest: str = "", picture: "Figure | None" = None) -> None:
        """Set the description on the run's page: two Markdown texts with a picture between them.

        If `rest` is too long, only as many whole lines as MLflow takes are kept.
        """
        if picture is not None:
            self.figure(PICTURE.removesuffix(".png"), picture, PICTURE_DPI)
            first += f"\n\n![forecast](get-artifact?path=plots%2F{PICTURE}&run_uuid={OWN_ID})"
        self._tag(MLFLOW_RUN_NOTE, _cut_lines(f"{first}\n\n{rest}".strip(), 7000))

    def dataset(self, name: str, digest: str, source: str) -> None:
        """Record which data the run used; `source` is an address or a path and is not read."""
        digest = digest.removeprefix("sha256:")[:36]
        own = Data(name=_cut(name), digest=digest, source=_cut(source))
        self._note(data=(*self._own.about.data, own))

    def log_model(
        self,
        folder: Path,
        name: str,
        example: "pd.DataFrame",
        forecast: "pd.DataFrame",
        horizon: int,
        tags: Mapping[str, str],
    ) -> None:
        """Log a bundle as a model that `mlflow models serve` can serve.

        `example` is a history that the model accepts and `forecast` its answer; they determine the
        signature. The model contains the code of forecaster, and nothing is pickled.
        """
        path = self._own.folder / notes.MODEL
        shutil.rmtree(path, ignore_errors=True)  # of a process that died
        with (
            _written(path),
            tempfile.TemporaryDirectory(prefix="forecaster-") as temporary,
            warnings.catch_warnings(),
            store.settings(),
        ):
            warnings.simplefilter("ignore")  # MLflow's warnings about its own type hints and pandas
            from mlflow.pyfunc import save_model

            bundle = Path(temporary, "bundle")
            shutil.copytree(folder, bundle)
            params = [
                ParamSpec("horizon", DataType.long, default=horizon),
                ParamSpec("quantile_levels", DataType.double, default=[], shape=(-1,)),
            ]
            save_model(
                path,
                python_model=str(PACKAGE / "pyfunc_model.py"),
                artifacts={"bundle": str(bundle)},
                code_paths=[str(PACKAGE)],
                signature=ModelSignature(_schema(example), _schema(forecast), ParamSchema(params)),
                input_example=example,
                pip_requirements=[f"{each}=={_version(each)}" for each in REQUIREMENTS],
            )
        self._note(model=Model(name=re.sub(r"[^\w-]+", "-", name), tags=_tags(tags)))

    def register(
        self,
        name: str,
        errors: Sequence[float],
        task: Mapping[str, str],
        about: str = "",
        about_version: str = "",
    ) -> Registration:
        """Register the model as a version of `name`.

        `about` describes a new name, `about_version` the version, both in Markdown. The rule of
        `contest` decides whether it becomes the champion: `errors` are its `stretches`, and `task`
        makes them comparable. If MLflow does not answer, all of this happens later.
        """
        texts = {"about": _cut(about, 5000), "about_version": _cut_lines(about_version, 4500)}
        self._note(version=Version(name=name, errors=tuple(errors), task=dict(task), **texts))
        self.settle()
        return self._publisher.registered or Registration(
            name, "", False, f"{name} will be registered when MLflow has the run: {SYNC}"
        )

    def settle(self) -> bool:
        """Wait until MLflow has everything, while there is progress; returns whether it has.

        The wait for a server that does not listen yet happens once, for `track.wait_seconds`.
        """
        return self._settle(LAST)

    def _settle(self, stage: int) -> bool:
        patience = self._patience if stage == LAST and self.uri not in _silent else 0.0
        if patience and self.error is not None and store.is_absent(self.error):
            shown = without_password(self.uri)
            self._say(f"nothing listens at {shown} yet: waiting up to {patience:g} s for MLflow")
        whole = self._background.settle(_limits(self.uri, stage), patience)
        if not whole:
            self._patience = 0.0
        return whole

    def end(self, status: str, stage: int) -> bool:
        """Record the end of the run; returns whether MLflow has everything. The rest stays on disk.

        A signal shortens the wait to that of a stopped run.
        """
        self._note(status=status, ended=store.now())
        whole = not signals.waiting() and self._settle(stage)
        if not whole and signals.waiting():
            whole = self._settle(CUT_SHORT)
        if whole:
            self._own.remove()  # while it is held
        self._background.close()
        return whole

    @property
    def folder(self) -> Path:
        """The folder with what MLflow is to have."""
        return self._own.folder

    @property
    def error(self) -> BaseException | None:
        """MLflow's last error."""
        return self._background.error

    @property
    def begun(self) -> int:
        return self._own.about.begun

    def _note(self, **values: Any) -> None:
        self._own.note(**values)
        self._background.wake()

    def _tag(self, key: str, value: str) -> None:
        self._note(tags={**self._own.about.tags, key: value})

    def _add(self, points: Points) -> None:
        self._own.add(points)
        self._background.wake()

    def _write(self, name: str, content: bytes, folder: str) -> None:
        self._own.write(name, content, folder)
        self._background.wake()


@contextmanager
def start(
    config: "RunConfig",
    name: str,
    tags: Mapping[str, str],
    *,
    key: str | None = None,
    parent: str | None = None,
    again: str | None = None,
    say: Say = lambda text: None,
) -> Iterator[Run]:
    """Start a run; it ends as FINISHED, FAILED (an exception) or KILLED (a signal).

    `key` is our id for it, since MLflow's own id exists only after sending. With `parent`, the id
    of a run in progress, it is a child of that run; a run without a parent has system metrics, if
    the configuration asks for them. `again` is the id of an earlier run to continue, if the store
    has it. If a server does not answer, the run is sent later, and `say` reports it; raises
    UnavailableError within seconds if a store cannot be used at all.
    """
    uri = config.track.uri or tracking_uri()
    run: Run | None = None
    gauges: _Gauges | None = None

    def end(run: Run, status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        if gauges:
            gauges.stop()
        if run.end(status, LAST if status == "FINISHED" else CUT_SHORT):
            _silent.discard(uri)
        else:
            _silent.add(uri)
            say(
                f"MLflow at {without_password(uri)} does not have all of this run yet"
                f"{_because(run.error)}. The rest is kept in {run.folder}; upload it with "
                f"`{SYNC}`."
            )

    with ExitStack() as ending:
        try:
            with signals.orderly():  # a run created in MLflow is then known here, too
                run = _begin(config, name, tags, key, parent, again, say)
            signals.check()
            if parent is None and (others := notes.waiting()):
                runs = "an earlier run is" if others == 1 else f"{others} earlier runs are"
                say(f"{runs} not all in MLflow: {SYNC}")
            gauges = _Gauges(run) if config.track.system_metrics and parent is None else None
            yield run
            ending.enter_context(signals.orderly())  # a later signal ends only the wait
        except BaseException as error:
            left = isinstance(error, Stopped | KeyboardInterrupt | BrokenPipeError)
            if run is not None:
                with signals.orderly(), suppress(ForecasterError):  # report the first error
                    end(run, "KILLED" if left else "FAILED")
            raise
        end(run, "FINISHED")
    signals.check()


def _begin(
    config: "RunConfig",
    name: str,
    tags: Mapping[str, str],
    key: str | None,
    parent: str | None,
    again: str | None,
    say: Say,
) -> Run:
    uri = config.track.uri or tracking_uri()
    earlier = notes.take_up(again) if again else None
    if earlier:
        own = earlier
    else:
        key = again or key or uuid4().hex
        with store.settings():
            tags = resolve_tags(_tags(tags))
        about = Noted(
            key=key, id=key, name=_cut(name), again=again is not None, parent=parent,
            uri=without_password(store.absolute(uri)), experiment=config.track.experiment,
            tags=tags, begun=store.now(), process=notes.process(),
        )  # fmt: skip
        own = notes.begin(about)
    publisher = Publisher(own, uri, training=True)
    background = Background(publisher, lambda: publisher.progress, own.release)
    background.start()
    try:
        background.settle(_limits(uri, FIRST))
        if publisher.run:
            if not again or not publisher.found:
                own.note(id=publisher.run)
        elif background.error is not None and not store.is_away(uri, background.error):
            with store.explained(uri):
                raise background.error
        elif not signals.waiting():
            say(
                f"MLflow at {without_password(uri)} does not answer{_because(background.error)}. "
                f"The run is kept in {own.folder} and uploaded when it does."
            )
    except BaseException:
        if not earlier:
            own.remove()
        background.close()
        raise
    return Run(own, publisher, background, config.track.wait_seconds, say)


class _Gauges(threading.Thread):
    """Records the processor, memory and disk of the machine every few seconds."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="forecaster-gauges", daemon=True)
        self._tracked = run
        self._every = (
            environment_variables.MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or SAMPLING_SECONDS
        )
        self._first = int((store.now() - run.begun) / 1000 / self._every)  # continued runs count on
        self._over = threading.Event()
        self._monitors: list[BaseMetricsMonitor] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        for kind in (GPUMonitor, ROCMMonitor):
            with suppress(Exception), store.settings():  # the machine has no such device
                self._monitors.append(kind())
                break
        self.start()

    def run(self) -> None:
        with suppress(ForecasterError, OSError), store.settings():  # training reports a full disk
            for step in itertools.count(self._first):
                for monitor in self._monitors:
                    monitor.collect_metrics()
                if self._over.wait(self._every):
                    return
                values: dict[str, float] = {}
                for monitor in self._monitors:
                    values |= monitor.aggregate_metrics()
                    monitor.clear_metrics()
                named = {f"{SYSTEM}{key}": value for key, value in values.items()}
                self._tracked.report(named, step)

    def stop(self) -> None:
        self._over.set()
        self.join(1)


def _limits(uri: str, stage: int) -> Limits:
    """How long to wait for MLflow, as `Background.settle` takes it."""
    if store.is_local(uri):
        return LOCAL_LIMITS[stage]
    return BRIEF if uri in _silent else LIMITS[stage]


def _because(error: BaseException | None) -> str:
    return f" ({store.reason(error)})" if error else ""


def ui_command(uri: str, experiment: str) -> str:
    """As `resources.ui`, for the table of runs; `experiment` is empty if MLflow does not answer."""
    if not experiment:
        return f"{without_password(uri)} after {SYNC}"
    return ui(uri, f"/#/experiments/{experiment}/runs?{TRAINING}&viewStateShareKey={store.VIEW}")


@contextmanager
def _written(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, MlflowException) as error:
        if isinstance(error, MlflowException) and not isinstance(error.__cause__, OSError):
            raise
        raise StorageError(f"{file} could not be written: {store.reason(error)}") from error


def _schema(frame: "pd.DataFrame") -> Schema:
    """The MLflow schema of a frame: numbers are doubles, stamps have type any.

    JSON holds stamps as text, with or without a zone. MLflow's type datetime refuses zones, even
    those in the answers of its own server.
    """
    return Schema(
        [
            ColSpec(DataType.double, name)
            if frame[name].dtype.kind == "f"
            else ColSpec(AnyType(), name, required=False)
            for name in frame.columns
        ]
    )


def _version(package: str) -> str:
    """The installed version of a package; for MLflow, possibly that of the slim one."""
    return MLFLOW if package == "mlflow" else version(package).partition("+")[0]


def _rounded(value: float) -> float:
    """The value with DIGITS significant digits; a whole number keeps all of its own."""
    return value if value.is_integer() else float(f"{value:.{DIGITS}g}")


def _valid(figures: Mapping[str, float]) -> dict[str, float]:
    return {_key(key): float(value) for key, value in figures.items()}


def _tags(values: Mapping[str, str]) -> dict[str, str]:
    return {_key(key): _cut(value, 8000) for key, value in values.items()}


def _key(name: str) -> str:
    """The name with characters replaced that MLflow refuses in keys, such as brackets of units."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]


def _cut_lines(text: str, longest: int) -> str:
    """As many whole lines of a text as fit."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= longest else f"{text[:longest].rpartition(chr(10))[0]}\n\n…"


def _cut(text: str, longest: int = 8000) -> str:
    """As much of a text as fits, without what UTF-8 cannot hold, as names of files may."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
