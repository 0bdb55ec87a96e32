"""Track a run while it lasts: it never waits for MLflow, and nothing fails because of MLflow.

All that is recorded is on disk at once (`notes`), and a thread publishes it. MLflow's own
asynchronous logging does not do: a process whose server hangs could not end for minutes.
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
        track: "TrackConfig",
        say: Say,
    ) -> None:
        self._own, self._publisher, self._background = own, publisher, background
        self._patience, self._say, self.uri = track.wait_seconds, say, publisher.uri
        is_watched = track.system_metrics and own.about.parent is None
        self._gauges = _Gauges(self, own.about.begun) if is_watched else None

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
        self._own.add(Points(at=store.now(), step=epoch, values=_valid(figures)))
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
            signature = ModelSignature(_schema(example), _schema(forecast), ParamSchema(params))
            try:
                shutil.copytree(folder, bundle)
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

    def settle(self, stage: int = LAST) -> bool:
        """Wait until MLflow has everything, while there is progress; returns whether it has.

        The wait for a server that does not listen yet happens once, for `track.wait_seconds`.
        """
        patience = self._patience if stage == LAST and self.uri not in _silent else 0.0
        error = self._background.error
        if patience and error is not None and store.is_absent(error):
            shown = without_password(self.uri)
            self._say(f"nothing listens at {shown} yet: waiting up to {patience:g} s for MLflow")
        whole = self._background.settle(_limits(self.uri, stage), patience)
        if not whole:
            self._patience = 0.0
        return whole

    def end(self, status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        """Record the end of the run, and wait for MLflow; what it does not have stays on disk.

        A signal shortens the wait to that of a stopped run.
        """
        if self._gauges:
            self._gauges.stop()
        self._note(status=status, ended=store.now())
        stage = LAST if status == "FINISHED" else CUT_SHORT
        whole = not signals.waiting() and self.settle(stage)
        if not whole and signals.waiting():
            whole = self.settle(CUT_SHORT)
        if whole:
            self._own.remove()  # while it is held
            _silent.discard(self.uri)
        else:
            _silent.add(self.uri)
        self._background.close()
        if not whole:
            self._say(
                f"MLflow at {without_password(self.uri)} does not have all of this run yet"
                f"{_because(self._background.error)}. The rest is kept in {self._own.folder}; "
                f"upload it with `{SYNC}`."
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
                run = _begin(about, uri, config.track, again, say)
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


def _begin(about: Noted, uri: str, track: "TrackConfig", again: str | None, say: Say) -> Run:
    earlier = notes.take_up(again) if again else None
    own = earlier or notes.begin(about)
    publisher = Publisher(own, uri, training=True)
    background = Background(publisher, publisher.sent.total, own.release)
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
    return Run(own, publisher, background, track, say)


class _Gauges(SystemMetricsMonitor):  # type: ignore[misc]  # MLflow is not type-checked here
    """Records the processor, memory and disk of the machine every few seconds, as MLflow does,
    but in a run that never waits for MLflow. A step is a second since the run began."""

    def __init__(self, run: Run, begun: int) -> None:
        with store.settings():
            uri = store.absolute(run.uri)
            super().__init__(run.id, sampling_interval=SAMPLING_SECONDS, tracking_uri=uri)
            self._report, self._begun = run.report, begun
            self.start()

    def monitor(self) -> None:
        with suppress(ForecasterError, OSError), store.settings():  # training reports a full disk
            while True:
                self.collect_metrics()
                if self._shutdown_event.wait(self.sampling_interval):
                    return
                step = (store.now() - self._begun) // 1000
                values = self.aggregate_metrics()
                self._report({f"{self._metrics_prefix}{key}": values[key] for key in values}, step)
                for each in self.monitors:
                    each.clear_metrics()

    def stop(self) -> None:
        self._shutdown_event.set()
        self._process.join(1)


def _limits(uri: str, stage: int) -> Limits:
    """How long to wait for MLflow, as `Background.settle` takes it."""
    if store.is_local(uri):
        return LOCAL_LIMITS[stage]
    return BRIEF if uri in _silent else LIMITS[stage]


def _because(error: BaseException | None) -> str:
    return f" ({store.reason(error)})" if error else ""


def ui_command(uri: str, experiment: str) -> str:
    """As `installation.ui`, for the table of runs; without `experiment`, MLflow does not answer."""
    if not experiment:
        return f"{without_password(uri)} after {SYNC}"
    return ui(uri, f"/#/experiments/{experiment}/runs?{TRAINING}&viewStateShareKey={store.VIEW}")


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


def _fit(values: Mapping[str, str], longest: int) -> dict[str, str]:
    return {_key(key): value[:longest] for key, value in values.items()}


def _key(name: str) -> str:
    """The name with characters replaced that MLflow refuses in keys, such as brackets of units."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]
