"""Track a run while it lasts: it never waits for MLflow, and nothing fails because of MLflow.

A thread publishes what is noted (`notes`). MLflow's own asynchronous logging does not do: its
threads are joined at the end, so a process whose server hangs could not end for minutes.
"""

import io
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
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.tracking.context.registry import resolve_tags
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS, MLFLOW_RUN_NOTE
from mlflow.version import VERSION as MLFLOW

from forecaster.base import signals
from forecaster.base.errors import ForecasterError, Stopped, StorageError
from forecaster.base.installation import PACKAGE, TRAINING, tracking_uri, ui, without_password
from forecaster.base.progress import Say
from forecaster.record import challenge
from forecaster.tracking import notes
from forecaster.tracking.notes import Data, NewVersion, Noted, Notes, Points
from forecaster.tracking.publish import OWN_ID, Publisher

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecaster.config.run_config import RunConfig, TrackConfig

REQUIREMENTS = (
    *("mlflow", "torch", "numpy", "pandas", "pydantic", "pyyaml", "safetensors"),
    *("jaxtyping", "platformdirs"),
)
"""The packages that a bundle needs to run; the code of forecaster itself is logged with the model,
since a package index may have another package of that name."""
DIGITS = 6
"""The significant digits of final figures, as many as a column shows."""
LONGEST = 4500
"""The most characters of a description; that of a version of a model may have 5000."""
PICTURE_DPI = 60
"""Of the picture in a description, which MLflow's page shows in its original size."""
SYNC = "forecaster sync"
SAMPLING_SECONDS = 5
"""The time between two readings of processor, memory and disk."""

START, END, STOPPED = 5.0, 7.0, 3.0
"""Seconds that a run waits for MLflow without progress: at its start, at its end, and when it is
stopped. A store in a file is opened at the start, however long that takes."""
BRIEF = 1.0
"""The same after the store kept this process waiting in vain: a grid has hundreds of runs."""
_silent: set[str] = set()
LOOKS = 0.1
"""Seconds between two looks for progress or a signal."""


class Background:
    """Calls `publish` in a thread, one call at a time, so that nobody waits for it.

    `publish` raises when the tracker fails. `progress` grows while it goes on. `release` is called
    after `close`, when no call is under way.
    """

    def __init__(
        self,
        publish: Callable[[], None],
        progress: Callable[[], int] = lambda: 0,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._publish, self._progress, self._release = publish, progress, release
        self.error: Exception | None = None
        self._thread = threading.Thread()
        self._news, self._told = 1, 0
        """How often there was something new, and how many of these are published."""

    def wake(self) -> None:
        """Publish what is new, unless a call is under way. Returns at once."""
        self._news += 1
        if not self._thread.is_alive():
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._call, args=[self._news], daemon=True)
        self._thread.start()

    def _call(self, news: int) -> None:
        try:
            self._publish()
        except Exception as error:  # a tracker may raise anything
            self.error = error
        else:
            self.error, self._told = None, news

    def settle(self, seconds: float) -> bool:
        """Wait until all is published, and return whether it is.

        Gives up after `seconds` without progress, when a signal comes, and when a call fails that
        knew of all.
        """
        begun = moved = time.monotonic()
        progress, news, tried = self._progress(), self._news, False
        while self._told < news:
            if not self._thread.is_alive():
                if tried:
                    return self._told >= news
                self._start()
                tried = True
            self._thread.join(LOOKS)
            now = time.monotonic()
            if self._progress() != progress:
                progress, moved = self._progress(), now
            if now - moved >= seconds or 0 < signals.waiting() < now - begun:
                return self._told >= news
        return True

    def close(self) -> None:
        """Release as soon as no call is under way; one that hangs ends with the process."""

        def wait() -> None:
            if self._thread.is_alive():
                self._thread.join()
            self._release()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(1)


class Run:
    """A run in progress; made by `start`.

    Only `register` and `settle` wait for MLflow. Raises StorageError when the disk is full.
    """

    def __init__(self, own: Notes, uri: str, say: Say) -> None:
        self._own, self.uri, self._say = own, uri, say
        self._publisher = Publisher(own, uri, training=True)
        self._background = Background(self._publisher, lambda: self._publisher.sent, own.release)
        self._wait = BRIEF if uri in _silent else END
        self._gauges: _Gauges | None = None

    def begin(self, again: bool, watched: bool) -> None:
        """Find or make the run in MLflow; its system metrics are `watched` from now on.

        Raises UnavailableError for a store that cannot be used at all.
        """
        seconds = inf if store.is_local(self.uri) else min(START, self._wait)
        self._background.settle(seconds)
        error = self._background.error
        if self._publisher.run:
            if not again or not self._publisher.found:
                self._own.note(id=self._publisher.run)
        elif error is not None and not store.is_away(self.uri, error):
            with store.explained(self.uri):
                raise error
        elif not signals.waiting():
            self._say(
                f"MLflow at {without_password(self.uri)} does not answer{_because(error)}. "
                "The run is uploaded when it does."
            )
        if watched:
            self._gauges = _Gauges(self._own, self.uri)

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
        self._note(params={**self._own.about.params, **_fit(values, 6000)})

    def report(self, figures: Mapping[str, float], epoch: int) -> None:
        """Log figures of an epoch; if a metric has several values at a step, the first counts."""
        self._own.points.append(Points(at=store.now(), step=epoch, values=_valid(figures)))
        self._background.wake()

    def metrics(self, values: Mapping[str, float]) -> None:
        """Log final figures, rounded to DIGITS; those of a run with a model are also the model's,
        if they come after it."""
        rounded = {key: _rounded(value) for key, value in _valid(values).items()}
        before = self._own.about.figures or Points(at=store.now(), step=0, values={})
        figures = before.model_copy(update={"values": {**before.values, **rounded}})
        self._note(figures=figures)

    def figure(
        self, name: str, figure: "Figure", dpi: float | Literal["figure"] = "figure"
    ) -> None:
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=dpi)
        self._write(f"plots/{_key(name).replace('/', '_')}.png", picture.getvalue())

    def text(self, name: str, text: str) -> None:
        self._write(name, text.encode(errors="replace"))

    def tables(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Save tables by name, each a list of rows, as files that MLflow's page shows as tables."""
        for name, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            data = [[row.get(key) for key in columns] for row in rows]
            self.text(f"tables/{name}.json", json.dumps({"columns": columns, "data": data}))
        known = [{"path": f"tables/{name}.json", "type": "table"} for name in tables]
        self._tag(MLFLOW_LOGGED_ARTIFACTS, json.dumps(known))

    def describe(self, first: str, rest: str = "", picture: "Figure | None" = None) -> None:
        """Set the description of the run and of its model's version: two Markdown texts with a
        picture between them.

        If `rest` is too long, only as many whole lines as MLflow takes are kept.
        """
        if picture is not None:
            self.figure("picture", picture, PICTURE_DPI)
            first += f"\n\n![forecast](get-artifact?path=plots%2Fpicture.png&run_uuid={OWN_ID})"
        text = f"{first}\n\n{rest}".strip()
        if len(text) > LONGEST:
            text = f"{text[:LONGEST].rpartition(chr(10))[0]}\n\n…"
        self._tag(MLFLOW_RUN_NOTE, text)

    def dataset(self, name: str, digest: str, source: str) -> None:
        """Record which data the run used; `source` is an address or a path and is not read."""
        digest = digest.removeprefix("sha256:")[:36]
        self._note(data=Data(name=name, digest=digest, source=source))

    def log_model(
        self, folder: Path, example: "pd.DataFrame", forecast: "pd.DataFrame", horizon: int
    ) -> None:
        """Log a bundle as a model that `mlflow models serve` can serve, with the run's name.

        `example` is a history that the model accepts and `forecast` its answer; they determine the
        signature. The model contains the code of forecaster, and nothing is pickled.
        """
        path = self._own.folder / notes.MODEL
        shutil.rmtree(path, ignore_errors=True)  # of a process that died
        with (
            tempfile.TemporaryDirectory(prefix="forecaster-") as temporary,
            warnings.catch_warnings(),
            store.settings(),
        ):
            warnings.simplefilter("ignore")  # MLflow's warnings about its own type hints and pandas
            from mlflow.pyfunc import save_model

            bundle = Path(temporary, "bundle")
            params = [
                ParamSpec("horizon", DataType.long, default=horizon),
                ParamSpec("quantile_levels", DataType.double, default=[], shape=(-1,)),
            ]
            signature = ModelSignature(_inputs(example), _outputs(forecast), ParamSchema(params))
            try:
                shutil.copytree(folder, bundle, ignore=shutil.ignore_patterns(notes.OWN))
                save_model(
                    path,
                    python_model=str(PACKAGE / "tracking" / "pyfunc_model.py"),
                    artifacts={"bundle": str(bundle)},
                    code_paths=[str(PACKAGE)],
                    signature=signature,
                    input_example=example,
                    pip_requirements=[f"{each}=={_version(each)}" for each in REQUIREMENTS],
                )
            except (OSError, MlflowException) as error:
                why = store.reason(error)
                raise StorageError(f"{path} could not be written: {why}") from error
        self._note(has_model=True)

    def register(
        self, name: str, errors: Sequence[float], task: Mapping[str, str], about: str = ""
    ) -> str:
        """Register the model as a version of `name`, which `about` describes in Markdown; returns a
        sentence on the outcome.

        The rule of `challenge` decides whether it becomes the champion: `errors` are its
        `stretches`, and `task` makes them comparable. If MLflow does not answer, all of this
        happens later.
        """
        self._note(version=NewVersion(name=name, tags=challenge.tags_of(errors, task), about=about))
        self.settle()
        later = f"{name} will be registered when MLflow has the run: {SYNC}"
        return self._publisher.registered or later

    def settle(self, seconds: float = inf) -> bool:
        """Wait until MLflow has everything, while there is progress; returns whether it has.

        Without progress it waits for END or these `seconds`, the less of the two, and for a store
        that fails not at all. It waits in vain only once.
        """
        whole = self._background.settle(min(seconds, self._wait))
        if not whole and not signals.waiting():
            self._wait = BRIEF
        return whole

    def end(self, status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        """Record the end of the run, and wait for MLflow; a run that it lacks stays on disk.

        A signal shortens the wait to that of a stopped run.
        """
        if self._gauges:
            self._gauges.stop()
        self._note(status=status, ended=store.now())
        seconds = inf if status == "FINISHED" and not signals.waiting() else STOPPED
        whole = self.settle(seconds)
        if not whole and seconds > STOPPED and signals.waiting():
            whole = self.settle(STOPPED)
        if whole:
            self._own.remove()
            _silent.discard(self.uri)
            return
        _silent.add(self.uri)
        try:
            self._own.save()
        finally:
            self._background.close()
        folder = self._own.folder
        self._say(
            f"MLflow at {without_password(self.uri)} does not have all of this run yet"
            f"{_because(self._background.error)}. The rest is kept in {folder}; upload it with "
            f"`{SYNC} {folder.parent.name}`."
        )

    def _note(self, **values: Any) -> None:
        self._own.note(**values)
        self._background.wake()

    def _tag(self, key: str, value: str) -> None:
        self._note(tags={**self._own.about.tags, key: value})

    def _write(self, name: str, content: bytes) -> None:
        self._own.write(name, content)
        self._background.wake()


@contextmanager
def start(
    config: "RunConfig",
    name: str,
    tags: Mapping[str, str],
    *,
    key: str | None = None,
    folder: Path | None = None,
    parent: str | None = None,
    again: str | None = None,
    say: Say = lambda text: None,
) -> Iterator[Run]:
    """Start a run; it ends as FINISHED, FAILED (an exception) or KILLED (a signal).

    `key` is our id for it, since MLflow's own id exists only after sending, and `folder` that of
    its own, by default one in `runs` with its name. With `parent`, the id of a run in progress, it
    is a child of that run; a run without a parent has system metrics, if
    the configuration asks for them. `again` is the id of an earlier run to continue, if the store
    has it. If a server does not answer, the run is sent later, and `say` reports it; raises
    UnavailableError within seconds if a store cannot be used at all.
    """
    uri, key = config.track.uri or tracking_uri(), again or key or uuid4().hex
    with store.settings():
        tags = resolve_tags(_fit(tags, 8000))
    about = Noted(
        key=key, id=key, name=name, uri=without_password(store.absolute(uri)), parent=parent,
        experiment=config.track.experiment, begun=store.now(), process=notes.process(), tags=tags,
    )  # fmt: skip
    run: Run | None = None
    with ExitStack() as ending:
        try:
            with signals.orderly():  # a run created in MLflow is then known here, too
                run = _begin(about, folder, uri, config.track, again, say)
            signals.check()
            if parent is None and (others := notes.waiting()):
                runs = "an earlier run is" if others == 1 else f"{others} earlier runs are"
                say(f"{runs} not all in MLflow: {SYNC}")
            yield run
            ending.enter_context(signals.orderly())  # a later signal ends only the wait
        except BaseException as error:
            left = isinstance(error, Stopped | KeyboardInterrupt | BrokenPipeError)
            if run is not None:
                with signals.orderly(), suppress(ForecasterError):  # report the first error
                    run.end("KILLED" if left else "FAILED")
            raise
        run.end("FINISHED")
    signals.check()


def _begin(
    about: Noted, folder: Path | None, uri: str, track: "TrackConfig", again: str | None, say: Say
) -> Run:
    own = notes.begin(about, folder)
    run = Run(own, uri, say)
    try:
        run.begin(again is not None, track.system_metrics and about.parent is None)
    except BaseException:
        notes.clear(own.folder)
        raise
    if again:
        notes.forget(again)
    return run


class _Gauges(SystemMetricsMonitor):  # type: ignore[misc]  # MLflow is not type-checked here
    """Records the processor, memory and disk of the machine every few seconds, as MLflow does,
    but in a run that never waits for MLflow. A step is a second since the run began."""

    def __init__(self, own: Notes, uri: str) -> None:
        with store.settings():
            seconds, uri = SAMPLING_SECONDS, store.absolute(uri)
            super().__init__(own.about.id, sampling_interval=seconds, tracking_uri=uri)
        self._own = own
        self.start()

    def monitor(self) -> None:
        with suppress(OSError), store.settings():
            while True:
                self.collect_metrics()
                if self._shutdown_event.wait(self.sampling_interval):
                    return
                at, found = store.now(), self.aggregate_metrics()
                values = {f"{self._metrics_prefix}{key}": found[key] for key in found}
                step = (at - self._own.about.begun) // 1000
                self._own.points.append(Points(at=at, step=step, values=values))
                for each in self.monitors:
                    each.clear_metrics()

    def stop(self) -> None:
        self._shutdown_event.set()
        self._process.join(1)


def _because(error: BaseException | None) -> str:
    return f" ({store.reason(error)})" if error else ""


def ui_command(uri: str, experiment: str) -> str:
    """As `installation.ui`, for the table of runs; without `experiment`, MLflow does not answer."""
    if not experiment:
        return f"{without_password(uri)} after {SYNC}"
    return ui(uri, f"/#/experiments/{experiment}/runs?{TRAINING}&viewStateShareKey={store.VIEW}")


def _inputs(frame: "pd.DataFrame") -> Schema:
    """The MLflow schema of histories such as this one: any type, for the reader checks them.

    MLflow's doubles refuse whole numbers, as pandas reads them from many files, and its stamps
    those with a zone, even those in the answers of its own server.
    """
    return Schema([ColSpec(AnyType(), name, required=False) for name in frame.columns])


def _outputs(frame: "pd.DataFrame") -> Schema:
    """The MLflow schema of forecasts such as this one: numbers are doubles."""
    numbers = {name: frame[name].dtype.kind == "f" for name in frame.columns}
    return Schema(
        [
            ColSpec(DataType.double, name) if number else ColSpec(AnyType(), name, required=False)
            for name, number in numbers.items()
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


def _fit(values: Mapping[str, str], longest: int) -> dict[str, str]:
    return {_key(key): value[:longest] for key, value in values.items()}


def _key(name: str) -> str:
    """The name with characters replaced that MLflow refuses in keys, such as brackets of units."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]
