"""Record runs in MLflow, and fetch bundles from its registry.

The store is `track.uri` of the configuration, else $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db
in the working directory. Everything goes through a client with that address, so MLflow's global
state does not change, nor does the environment: our settings hold in our calls alone (`_settings`).

    python -m forecaster.track download MODEL FOLDER    copy the bundle of MODEL to FOLDER and
                                                        print its origin as JSON
    python -m forecaster.track champions                registered names that have a champion
    python -m forecaster.track watch FOLDER SECONDS MODEL...
                                                        keep in FOLDER what names resolve to

`watch` asks every SECONDS, with 0 once, and ends with its input, as does FOLDER. found.json has for
each name its "state", as `resolve` gives it, and the "folder" with its bundle; or the last "error"
with the "status" of a command that ends with it, beside what was found before.
"""

import ctypes
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from random import uniform
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from filelock import FileLock

from forecaster import contest, extras, signals, spools
from forecaster.errors import ForecasterError, Stopped, StorageError, UnavailableError, UsageError
from forecaster.files import write
from forecaster.lookup import did_you_mean, model_reference
from forecaster.progress import Say
from forecaster.resources import (
    PACKAGE,
    TRACKING,
    TRAINING,
    tracking_uri,
    ui,
    without_password,
)
from forecaster.spools import END, Sender, Spool

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecaster.config import RunConfig


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """In this block, the environment has these values; those of the user stay."""
    own = {name: value for name, value in values.items() if name not in os.environ}
    os.environ |= own
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


with _environment({"MLFLOW_DISABLE_TELEMETRY": "true"}):
    from mlflow import MlflowClient, environment_variables
    from mlflow.artifacts import download_artifacts, list_artifacts
    from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param
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
    from mlflow.utils import request_utils
    from mlflow.utils.logging_utils import suppress_logs_in_thread
    from mlflow.utils.mlflow_tags import (
        MLFLOW_DATASET_CONTEXT,
        MLFLOW_LOGGED_ARTIFACTS,
        MLFLOW_PARENT_RUN_ID,
        MLFLOW_RUN_NOTE,
    )
    from mlflow.version import VERSION as MLFLOW

PREFIX = "forecaster-"
"""The prefix of forecaster's registered names."""
CHAMPION, CHALLENGER = "champion", "challenger"
DECISION, PROMOTED = "decision", "promoted"
"""Tags of a version: the outcome of its challenge to the champion, and who promoted it when."""
LOOKS = 9
"""How often the champion is checked again at most, when runs of a server end at the same time."""
BUNDLE = "artifacts/bundle"
"""The path of the bundle within a logged model."""
REQUIREMENTS = (
    *("mlflow", "torch", "numpy", "pandas", "pydantic", "pyyaml", "safetensors"),
    *("jaxtyping", "platformdirs"),
)
"""The packages that a bundle needs to run; the code of forecaster itself is logged with the model,
since a package index may have another package of that name."""
KEY, PROCESS = "forecaster.run", "forecaster.process"
"""Tags of a run: our own id for it, and the process that trains (`spools.process`)."""
VIEW = "attention"
"""The default view of an experiment's runs: the table that compares attentions."""
VIEWS = "mlflow.sharedViewState."
"""The prefix of an experiment's tags in which MLflow's page keeps saved views."""
COLUMNS = {
    "tags.`attn`": 110, "metrics.`network_test_mse`": 150, "metrics.`test_mse`": 100,
    "metrics.`skill`": 100, "tags.`data`": 100, "tags.`horizon`": 80,
    "metrics.`test_mae`": 100, "metrics.`coverage_80`": 110, "metrics.`train_seconds`": 120,
    "metrics.`windows_per_second`": 160, "metrics.`peak_mib`": 100,
}  # fmt: skip
"""The columns of that table, and their widths; the first fit into a narrow window."""
DIGITS = 6
"""The significant digits of final figures, as many as a column shows."""
OWN_ID = "%run%"
"""A placeholder in descriptions for MLflow's id of the run, which is unknown until it is sent."""
PICTURE, PICTURE_DPI = "picture.png", 60
"""The picture in a description, which MLflow's page shows in its original size."""
TABLES = "tables"
"""The folder of tables among the artefacts of a run."""
SYNC = "forecaster sync"
SYSTEM = "system/"
"""The prefix of the machine's metrics."""
SAMPLING_SECONDS = 5
"""The time between two readings of processor, memory and disk."""

FIRST, LAST, CUT_SHORT = range(3)
LIMITS = ((5.0, 5.0, 2), (15.0, 60.0, 3), (3.0, 3.0, 2))
"""How long a run waits for a server at its start, at its end, and when it is stopped: seconds
without an advance, total seconds, failures."""
LOCAL_LIMITS = ((None, None, 1), (60.0, None, 3), (3.0, 3.0, 2))
"""The same limits if MLflow's store is a file."""
BRIEF = (1.0, 1.0, 1)
"""The limits after the store kept an earlier run of this process waiting: a grid has hundreds of
runs."""
_silent: set[str] = set()

NICE = 5
"""The niceness of a process that watches for a service."""
LOOKING, LOADING = 120, 600
"""Seconds that MLflow may take to resolve names, and to download a bundle."""
OLD = 600.0
"""Seconds after which the bundle of an older model is deleted; until then it may be loaded."""
NO_NEW_PRIVILEGES = 38
"""PR_SET_NO_NEW_PRIVS of prctl(2)."""

PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": (0, 2),
    "MLFLOW_HTTP_REQUEST_TIMEOUT": (5, 30),
}
"""MLflow's settings for a server, at the first contact and later. Values set by the user stay."""
SILENT = {
    "MLFLOW_DISABLE_TELEMETRY": True,
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": True,
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": False,
}
FIRST_CONTACT = {name: first for name, (first, _) in PATIENCE.items() if name not in os.environ}
AFTERWARDS = {name: later for name, (_, later) in PATIENCE.items() if name not in os.environ}
TELLING = {name: 0 if name.endswith("RETRIES") else later for name, later in AFTERWARDS.items()}
"""The settings while a run is sent: the sender itself retries, after asking what has arrived."""
_current: ContextVar[Mapping[str, int]] = ContextVar(
    "settings of MLflow", default=MappingProxyType({})
)


@contextmanager
def _settings(patience: Mapping[str, int] = AFTERWARDS) -> Iterator[None]:
    """In this block, and in this thread alone, MLflow is silent and has this patience."""
    silent = {name: value for name, value in SILENT.items() if name not in os.environ}
    before = _current.set({**silent, **patience})
    try:
        with suppress_logs_in_thread():
            yield
    finally:
        _current.reset(before)


def _look_here_first(variable: Any) -> None:
    """Let a variable of MLflow's environment have the value of `_settings`, if it has one."""
    plain = variable.get
    variable.get = lambda: plain() if (own := _current.get().get(variable.name)) is None else own


for _name in (*SILENT, *PATIENCE):
    _look_here_first(getattr(environment_variables, _name))
_RETRYING = "urllib3.connectionpool"
"""The logger that warns at each retry."""
logging.getLogger(_RETRYING).addFilter(lambda record: not _current.get())


@dataclass(frozen=True)
class Registration:
    """A registered model version; `sentence` states who is the champion now, and why."""

    name: str
    version: str
    champion: bool
    sentence: str


class Run:
    """A run in progress; made by `start`.

    All that it records is written to disk at once and sent to MLflow in the background: only
    `register` waits, and nothing fails because of MLflow. Raises StorageError when the disk is
    full.
    """

    def __init__(
        self,
        spool: Spool,
        sender: Sender,
        uri: str,
        patience: float = 0.0,
        say: Say = lambda text: None,
    ) -> None:
        self._spool, self._sender = spool, sender
        self._patience, self._say = patience, say
        self._params: dict[str, str] = {}
        self.uri = uri

    @property
    def id(self) -> str:
        """MLflow's id, or ours if MLflow was away at the start; it then knows the run by both."""
        return str(self._spool.about["id"])

    @property
    def ui_command(self) -> str:
        """The command to type if no server runs, and the address of the runs, one per line."""
        return ui_command(self.uri, self._spool.state)

    def params(self, values: Mapping[str, str]) -> None:
        """Log parameters; names become valid for MLflow, values are cut at 6000 characters."""
        fit = {_key(key): _cut(value, 6000) for key, value in values.items()}
        self._params |= fit
        self._tell("params", values=fit)

    def report(self, figures: Mapping[str, float], epoch: int) -> None:
        """Log the figures of an epoch, except those that an earlier process has logged."""
        self.note(figures, epoch)

    def metrics(self, values: Mapping[str, float], model: str | None = None) -> None:
        """Log final figures, rounded to DIGITS, linked to the model that `log_model` returned."""
        self.note({key: _rounded(value) for key, value in values.items()}, 0, model)

    def figure(self, name: str, figure: "Figure") -> None:
        file = self._spool.file(f"{_key(name).replace('/', '_')}.png")
        with _written(file):
            figure.savefig(file)
        self._tell("file", file=self._inside(file), folder="plots")

    def text(self, name: str, text: str, folder: str | None = None) -> None:
        file = self._spool.file(name)
        with _written(file):
            file.write_text(text, encoding="utf-8")
        self._tell("file", file=self._inside(file), folder=folder)

    def tables(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Save tables by name, each a list of rows, as files that MLflow's page shows as tables."""
        for name, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            data = [[row.get(key) for key in columns] for row in rows]
            self.text(f"{name}.json", json.dumps({"columns": columns, "data": data}), TABLES)
        known = [{"path": f"{TABLES}/{name}.json", "type": "table"} for name in tables]
        self._tell("tag", key=MLFLOW_LOGGED_ARTIFACTS, value=json.dumps(known))

    def describe(self, first: str, rest: str = "", picture: "Figure | None" = None) -> None:
        """Set the description on the run's page: two Markdown texts with a picture between them.

        If `rest` is too long, only as many whole lines as MLflow takes are kept.
        """
        if picture is not None:
            file = self._spool.file(PICTURE)
            with _written(file):
                picture.savefig(file, dpi=PICTURE_DPI)
            self._tell("file", file=self._inside(file), folder="plots")
            first += f"\n\n![forecast](get-artifact?path=plots%2F{PICTURE}&run_uuid={OWN_ID})"
        self._tell("tag", key=MLFLOW_RUN_NOTE, value=_cut_lines(f"{first}\n\n{rest}".strip(), 7000))

    def dataset(self, name: str, digest: str, source: str, context: str = "training") -> None:
        """Record which data the run used; `source` is an address or a path and is not read."""
        digest = digest.removeprefix("sha256:")[:36]
        self._tell("dataset", name=name, digest=digest, source=source, context=context)

    def log_model(
        self,
        folder: Path,
        name: str,
        example: "pd.DataFrame",
        forecast: "pd.DataFrame",
        horizon: int,
        tags: Mapping[str, str],
    ) -> str:
        """Log a bundle as a model that `mlflow models serve` can serve; returns its name for
        `metrics` and `register`.

        `example` is a history that the model accepts and `forecast` its answer; they determine the
        signature. The model contains the code of forecaster, and nothing is pickled.
        """
        path = self._spool.file("model")
        with (
            _written(path),
            tempfile.TemporaryDirectory(prefix="forecaster-") as temporary,
            warnings.catch_warnings(),
            _settings(),
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
        inside = self._inside(path)
        called = re.sub(r"[^\w-]+", "-", name)
        self._tell("model", file=inside, name=called, tags=_tags(tags), params=self._params)
        return inside

    def model_id(self, model: str) -> str | None:
        """MLflow's id of the model that `log_model` returned, if MLflow has it yet."""
        return _models(self._spool).get(model)

    def register(
        self,
        model: str,
        name: str,
        errors: Sequence[float],
        task: Mapping[str, str],
        about: str = "",
        about_version: str = "",
    ) -> Registration:
        """Register what `log_model` returned, or MLflow's id of a model, as a version of `name`.

        `about` describes a new name, `about_version` the version, both in Markdown. The rule of
        `contest` decides whether it becomes the champion: `errors` are its `stretches`, and `task`
        makes them comparable. If MLflow does not answer, all of this happens later.
        """
        handle = uuid4().hex
        self._tell(
            "register", model=model, name=name, errors=[*errors], task=dict(task), handle=handle,
            about=_cut(about, 5000), about_version=_cut_lines(about_version, 4500),
        )  # fmt: skip
        self.settle()
        made = self._spool.state.get("registered", {}).get(handle)
        if made is None:
            return Registration(
                name, "", False, f"{name} will be registered when MLflow has the run: {SYNC}"
            )
        return Registration(**made)

    def settle(self) -> bool:
        """Wait until MLflow has everything, while there is progress; returns whether it has.

        The wait for a server that does not listen yet happens once, for `track.wait_seconds`.
        """
        return self._settle(LAST)

    def _settle(self, stage: int) -> bool:
        patience = self._patience if stage == LAST and self.uri not in _silent else 0.0
        if patience and self.error is not None and _absent(self.error):
            shown = without_password(self.uri)
            self._say(f"nothing listens at {shown} yet: waiting up to {patience:g} s for MLflow")
        whole = self._sender.settle(*_limits(self.uri, stage), signals.waiting, patience)
        if not whole:
            self._patience = 0.0
        return whole

    def note(self, values: Mapping[str, float], step: int, model: str | None = None) -> None:
        """Log figures at a step; if a metric has several values at a step, the first counts."""
        fit = {_key(key): float(value) for key, value in values.items()}
        self._tell("metrics", at=_now(), step=step, values=fit, model=model)

    def end(self, status: str, stage: int) -> bool:
        """Record the end of the run; returns whether MLflow has everything. The rest stays on disk.

        A signal shortens the wait to that of a stopped run.
        """
        self._spool.append(END, status=status, at=_now())
        whole = not signals.waiting() and self._settle(stage)
        if not whole and signals.waiting():
            whole = self._settle(CUT_SHORT)
        self._sender.close()
        if whole:
            self._spool.remove()
        return whole

    @property
    def folder(self) -> Path:
        """The folder with what MLflow does not have yet."""
        return self._spool.folder

    @property
    def error(self) -> BaseException | None:
        """MLflow's last error."""
        return self._sender.error

    @property
    def begun(self) -> int:
        return int(self._spool.about["begun"])

    def _tell(self, kind: str, **values: Any) -> None:
        self._spool.append(kind, **values)
        self._sender.wake()

    def _inside(self, file: Path) -> str:
        return file.relative_to(self._spool.folder).as_posix()


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
            if parent is None and (others := spools.waiting()):
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
    earlier = spools.take_up(again) if again else None
    if earlier:
        spool = earlier
    else:
        key = again or key or uuid4().hex
        with _settings():
            tags = resolve_tags(_tags(tags))
        about = {
            "id": key, "key": key, "name": name, "again": again is not None, "parent": parent,
            "uri": without_password(_absolute(uri)), "experiment": config.track.experiment,
            "tags": tags, "begun": _now(),
        }  # fmt: skip
        spool = spools.begin(about)
    teller = _Teller(spool, uri, training=True)
    sender = Sender(spool, teller, _absent)
    sender.start()
    try:
        sender.settle(*_limits(uri, FIRST), signals.waiting)
        if "run" in spool.state:
            if not again or not teller.found:
                spool.call(spool.state["run"])
        elif sender.error is not None and not _away(uri, sender.error):
            with _explained(uri):
                raise sender.error
        elif not signals.waiting():
            say(
                f"MLflow at {without_password(uri)} does not answer{_because(sender.error)}. "
                f"The run is kept in {spool.folder} and uploaded when it does."
            )
    except BaseException:
        sender.close()
        if not earlier:
            spool.remove()
        raise
    return Run(spool, sender, uri, config.track.wait_seconds, say)


@dataclass(frozen=True)
class Synced:
    """The outcome for a run that was incomplete in MLflow; `left` states why it still is, if so."""

    name: str
    told: str
    left: str
    under_way: bool = False


def sync(names: list[str]) -> Iterator[Synced]:
    """Send MLflow what it lacks of the runs in ./runs, or of those with these names.

    A run whose process died ends as KILLED. A run that a process is still sending is left alone.
    """
    for name, spool in spools.find(names):
        if spool is None:
            yield Synced(name, "", "", under_way=True)
            continue
        if isinstance(spool, StorageError):
            yield Synced(name, "", str(spool))
            continue
        told, error = _kinds(spool), None
        spool.close_for("KILLED")
        address = tracking_uri()
        same = without_password(_absolute(address)) == spool.about["uri"]
        teller = _Teller(spool, address if same else spool.about["uri"], training=False)
        try:
            while teller(lambda: None):
                pass
        except Exception as failure:  # MLflow may raise anything
            error = failure
        made = [each["sentence"] for each in spool.state.get("registered", {}).values()]
        if error is None:
            spool.remove()
        spool.release()
        yield Synced(
            spool.name,
            "; ".join(filter(None, [told, *made])) if error is None else "",
            "" if error is None else f"{spool.about['uri']}: {_reason(error)}",
        )


def _kinds(spool: Spool) -> str:
    """A list of what is left of a run, in words."""
    counts = spool.kinds()
    words = {
        "metrics": "reports of metrics", "file": "files", "model": "models",
        "register": "registrations",
    }  # fmt: skip
    return ", ".join(f"{counts[kind]} {word}" for kind, word in words.items() if kind in counts)


class _Teller:
    """Sends the lines of a spool to MLflow, each exactly once.

    If an answer may have been lost, after a failure or when another process began, MLflow is asked
    what it has before lines are sent again. A run has one value of each metric at a step.
    """

    def __init__(self, spool: Spool, uri: str, training: bool) -> None:
        self.spool, self.uri = spool, uri
        self.found = False
        """Whether the run existed before."""
        self._client: MlflowClient | None = None
        self._entered = False
        self._training = training
        self._doubt = not training or spool.about["again"]
        self._there: dict[str, set[int]] | None = None
        """The steps at which MLflow has a value, by metric; None before it was asked."""

    def __call__(self, advance: Callable[[], None]) -> bool:
        """Send some lines; returns whether there were any."""
        if self._client is None:
            self._client = _client(self.uri)
        try:
            with _settings(TELLING):
                if not self._entered:
                    self._enter(self._client)
                    return True
                return self._some(self._client, advance)
        except Exception:
            self._doubt, self._there = True, None
            raise

    def _enter(self, client: MlflowClient) -> None:
        """Find the run or create it; close runs of processes that have ended."""
        about = self.spool.about
        experiment = _experiment(client, self.uri, about["experiment"])
        run = self.spool.state.get("run")
        if run is None and self._doubt:
            run = _find_run(client, about["id"])
        if run is None:
            parent = about["parent"] and (_find_run(client, about["parent"]) or about["parent"])
            known = {**about["tags"], KEY: about["key"], PROCESS: about["process"]}
            made = client.create_run(
                experiment,
                start_time=about["begun"],
                run_name=about["name"],
                tags=known | ({MLFLOW_PARENT_RUN_ID: parent} if parent else {}),
            )
            run = made.info.run_id
        else:
            self.found = self._doubt = True
            about["begun"] = client.get_run(run).info.start_time
            if self._training:
                client.update_run(run, status="RUNNING")
                client.set_tag(run, PROCESS, about["process"])
        if self._training and not about["parent"]:
            _close_the_dead(client, experiment)
        self.spool.note(run=run, experiment=experiment)
        self._entered = True

    def _some(self, client: MlflowClient, advance: Callable[[], None]) -> bool:
        lines = self.spool.left()
        if not lines:
            return False
        run, state = self.spool.state["run"], {}
        line, told = lines[0]
        match line["kind"]:
            case "metrics":
                points: list[Metric] = []
                for other, end in lines:
                    if other["kind"] != "metrics" or len(points) + len(other["values"]) > 1000:
                        break
                    points += self._points(other)
                    told = end
                self._send(client, run, points)
            case "params":
                known = client.get_run(run).data.params if self._doubt else {}
                new = [Param(k, v) for k, v in line["values"].items() if k not in known]
                client.log_batch(run, params=new, synchronous=True)
            case "tag":
                client.set_tag(run, line["key"], line["value"].replace(OWN_ID, run))
            case "file":
                client.log_artifact(run, str(self.spool.folder / line["file"]), line["folder"])
            case "dataset":
                _log_dataset(client, run, line)
            case "model":
                self._model(client, run, line, advance)
            case "register":
                model = _models(self.spool).get(line["model"], line["model"])
                made = _register(client, self.uri, run, model, line, self._doubt)
                known = self.spool.state.get("registered", {})
                state = {"registered": {**known, line["handle"]: asdict(made)}}
            case "end":
                client.set_terminated(run, line["status"], line["at"])
        self.spool.note(told=told, **state)
        return True

    def _points(self, line: Mapping[str, Any]) -> list[Metric]:
        model = _models(self.spool).get(line["model"], line["model"])
        return [
            Metric(key, value, line["at"], line["step"], model_id=model)
            for key, value in line["values"].items()
        ]

    def _send(self, client: MlflowClient, run: str, points: list[Metric]) -> None:
        if self._doubt:
            points = self._missing(client, run, points)
        client.log_batch(run, metrics=points, synchronous=True)

    def _missing(self, client: MlflowClient, run: str, points: list[Metric]) -> list[Metric]:
        """The points that MLflow does not have, each once."""
        if self._there is None:
            self._there = {}
        unknown = {point.key for point in points} - self._there.keys()
        if unknown:
            latest = client.get_run(run).data.metrics
            for key in unknown:
                history = client.get_metric_history(run, key) if key in latest else []
                self._there[key] = {_place(point) for point in history}
        new = []
        for point in points:
            if _place(point) not in self._there[point.key]:
                self._there[point.key].add(_place(point))
                new.append(point)
        return new

    def _model(
        self, client: MlflowClient, run: str, line: Mapping[str, Any], advance: Callable[[], None]
    ) -> None:
        folder, known = self.spool.folder / line["file"], _models(self.spool)
        id = known.get(line["file"]) or (
            _find_model(client, run, line["name"], known) if self._doubt else None
        )
        if id is None:
            id = client.create_logged_model(
                self.spool.state["experiment"], name=line["name"], source_run_id=run,
                tags=line["tags"], params=line["params"],
            ).model_id  # fmt: skip
        self.spool.note(models={**known, line["file"]: id})
        outputs = client.get_run(run).outputs
        if id not in {each.model_id for each in (outputs.model_outputs if outputs else [])}:
            client.log_outputs(run, [LoggedModelOutput(id, step=0)])
        location = client.get_logged_model(id).artifact_location
        _name_model(folder / "MLmodel", run_id=run, model_id=id, artifact_path=location)
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            inside = file.parent.relative_to(folder).as_posix()
            client.log_model_artifact(id, str(file), None if inside == "." else inside)
            advance()
        client.finalize_logged_model(id, "READY")


class _Gauges(threading.Thread):
    """Records the processor, memory and disk of the machine every few seconds."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="forecaster-gauges", daemon=True)
        self._tracked = run
        self._every = (
            environment_variables.MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or SAMPLING_SECONDS
        )
        self._first = int((_now() - run.begun) / 1000 / self._every)  # continued runs count on
        self._over = threading.Event()
        self._monitors: list[BaseMetricsMonitor] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        for kind in (GPUMonitor, ROCMMonitor):
            with suppress(Exception), _settings():  # the machine has no such device
                self._monitors.append(kind())
                break
        self.start()

    def run(self) -> None:
        with suppress(ForecasterError), _settings():  # training reports a full disk, too
            for step in itertools.count(self._first):
                for monitor in self._monitors:
                    monitor.collect_metrics()
                if self._over.wait(self._every):
                    return
                values: dict[str, float] = {}
                for monitor in self._monitors:
                    values |= monitor.aggregate_metrics()
                    monitor.clear_metrics()
                self._tracked.note({f"{SYSTEM}{key}": value for key, value in values.items()}, step)

    def stop(self) -> None:
        self._over.set()
        self.join(1)


def _version(package: str) -> str:
    """The installed version of a package; for MLflow, possibly that of the slim one."""
    return MLFLOW if package == "mlflow" else version(package).partition("+")[0]


def _place(point: Metric) -> int:
    """The key of a metric's value: its step, or its time for metrics of the machine."""
    return int(point.timestamp if point.key.startswith(SYSTEM) else point.step)


def _find_run(client: MlflowClient, id: str) -> str | None:
    """MLflow's id of the run with an id, which may be MLflow's or ours."""
    with _accepting("RESOURCE_DOES_NOT_EXIST"):
        if client.get_run(id).info.lifecycle_stage == "active":
            return id
    experiments = [each.experiment_id for each in client.search_experiments()]
    found = client.search_runs(experiments, f"tags.`{KEY}` = '{id}'", max_results=1)
    return str(found[0].info.run_id) if found else None


def _find_model(client: MlflowClient, run: str, name: str, known: Mapping[str, str]) -> str | None:
    """A model that was created for the run although the answer was lost."""
    experiment = client.get_run(run).info.experiment_id
    for model in client.search_logged_models([experiment], f"source_run_id = '{run}'"):
        if model.name == name and model.model_id not in known.values():
            return str(model.model_id)
    return None


def _close_the_dead(client: MlflowClient, experiment: str) -> None:
    """End the runs whose process was on this machine and has ended."""
    running = f"attributes.status = 'RUNNING' AND tags.`{PROCESS}` LIKE '{spools.machine()} %'"
    for run in client.search_runs([experiment], running):
        if spools.is_gone(run.data.tags[PROCESS]):
            client.set_terminated(run.info.run_id, "KILLED")


def _log_dataset(client: MlflowClient, run: str, line: Mapping[str, str]) -> None:
    source = line["source"]
    web = source.startswith(("http://", "https://"))
    entity = Dataset(
        name=line["name"],
        digest=line["digest"],
        source_type="http" if web else "local",
        source=json.dumps({"url" if web else "uri": source}),
    )
    tags = [InputTag(MLFLOW_DATASET_CONTEXT, line["context"])]
    client.log_inputs(run, [DatasetInput(entity, tags)])


def _name_model(file: Path, **values: str) -> None:
    """Write a model's identity into its description file."""
    import yaml

    description = yaml.safe_load(file.read_text())
    description |= {**values, "model_uuid": values["model_id"]}
    file.write_text(yaml.safe_dump(description, default_flow_style=False, allow_unicode=True))


def _models(spool: Spool) -> dict[str, str]:
    """MLflow's ids of the models that the run has logged, by our names."""
    models: dict[str, str] = spool.state.get("models", {})
    return models


def _register(
    client: MlflowClient,
    uri: str,
    run: str,
    model: str,
    line: Mapping[str, Any],
    doubt: bool,
) -> Registration:
    """Make a logged model the next version of a name, or find the version it already is."""
    name = line["name"]
    tags = contest.tags_of(line["errors"], line["task"])
    with _locked(_registry(uri)):
        with _accepting("RESOURCE_ALREADY_EXISTS"):
            client.create_registered_model(name, description=line.get("about"))
        versions = client.search_model_versions(f"name='{name}'") if doubt else []
        made = next(
            (each for each in versions if each.run_id == run and tags.items() <= each.tags.items()),
            None,
        )
        if made is None:
            # not "models:/...", which a local registry would look up in MLflow's global store
            source = client.get_logged_model(model).artifact_location
            made = client.create_model_version(
                name, source, run_id=run, tags=tags, model_id=model,
                description=line.get("about_version"),
            )  # fmt: skip
        number = str(made.version)
        if DECISION in made.tags:
            wins = _aliases(client, name).get(CHAMPION) == number
            return Registration(name, number, wins, made.tags[DECISION])
        wins, sentence = _challenge(client, name, number)
        client.set_model_version_tag(name, number, DECISION, sentence)
    return Registration(name, number, wins, sentence)


def _challenge(client: MlflowClient, name: str, own: str) -> tuple[bool, str]:
    """Let a version challenge the champion; returns whether it is the champion, and a sentence.

    A server cannot compare and set an alias in one step, so the alias is read again after it was
    set. If runs end at the same time, each evaluates all challenges in the order of the versions,
    as if the runs had ended one after another; the last one corrects what the first missed.
    """
    base: str | None = None
    rivals: list[contest.Entry] = []
    for look in range(LOOKS):
        # before the alias: the decision about a version is written after its alias is set
        versions = {
            str(each.version): each.tags for each in client.search_model_versions(f"name='{name}'")
        }
        now = _aliases(client, name).get(CHAMPION)
        if now is not None and now not in versions:  # it was added in between
            versions[now] = client.get_model_version(name, now).tags
        if look == 0 or now not in {each.version for each in rivals}:
            base = now
        if base == own:
            return True, f"{name} version {own} is the champion"
        rivals = [
            contest.Entry.of(number, versions[number])
            for number in sorted(versions, key=int)
            if number == own
            or (
                (number != base and contest.ERRORS in versions[number])
                and (DECISION not in versions[number] or (look > 0 and int(number) > int(own)))
            )
        ]
        champion = None if base is None else contest.Entry.of(base, versions[base])
        champion, decisions = contest.served(champion, rivals)
        if champion is None or champion.version == now:
            break
        client.set_registered_model_alias(name, CHAMPION, champion.version)
    decision = decisions[own]
    if champion is not None and champion.version == own:
        _drop_challenger(client, name, own)
        return True, f"{name} version {own} is the champion: {decision.reason}"
    if not decision.open:
        return False, f"{name} version {own} is registered, but not the champion: {decision.reason}"
    client.set_registered_model_alias(name, CHALLENGER, own)
    reason = decision.reason
    if decision.wins and champion is not None:
        reason = f"version {champion.version} was added at the same time and is better"
    return False, (
        f"{name} version {own} is a challenger, not the champion: {reason}. To serve it all the "
        f"same: forecaster promote {name}/{own}"
    )


def _aliases(client: MlflowClient, name: str) -> dict[str, str]:
    """The version of each alias."""
    return {key: str(each) for key, each in client.get_registered_model(name).aliases.items()}


def _drop_challenger(client: MlflowClient, name: str, champion: str) -> None:
    if _aliases(client, name).get(CHALLENGER) == champion:
        client.delete_registered_model_alias(name, CHALLENGER)


def promote(reference: str) -> str:
    """Make a registered version the champion; returns a sentence that names the former one.

    `reference`: NAME/VERSION, NAME@alias, or the id of the run that registered it. Raises
    UsageError if it does not exist or names no version, UnavailableError when the store cannot
    be used.
    """
    parts = model_reference(reference)
    uri = tracking_uri()
    client = _client(uri, existing=True)
    with _explained(uri), _locked(_registry(uri)):
        name, number = _chosen(client, reference, parts)
        before = _aliases(client, name).get(CHAMPION)
        if before == number:
            return f"{name} version {number} is already the champion"
        client.set_registered_model_alias(name, CHAMPION, number)
        _drop_challenger(client, name, number)
        instead = (
            "there was none before"
            if before is None
            else f"version {before} was the champion before"
        )
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        client.set_model_version_tag(name, number, PROMOTED, f"by hand at {at}; {instead}")
    back = "" if before is None else f". To go back: forecaster promote {name}/{before}"
    return f"{name} version {number} is the champion; {instead}{back}"


def _chosen(
    client: MlflowClient, reference: str, parts: Mapping[str, str | None]
) -> tuple[str, str]:
    """The name and version number that a reference means."""
    if parts["run"] is not None and (run := _find_run(client, parts["run"])):
        if made := client.search_model_versions(f"run_id='{run}'"):
            newest = max(made, key=lambda each: int(each.version))
            return str(newest.name), str(newest.version)
        raise UsageError(f"the run {run} has registered no model")
    origin = _location(client, **parts)[1]
    if parts["version"] is None and parts["alias"] is None:
        what = f"{origin['name']}/VERSION" if origin else "NAME/VERSION, or the id of a run"
        raise UsageError(f"'{reference}' names no version: use {what}")
    return origin["name"], origin["version"]


def _limits(uri: str, stage: int) -> tuple[float | None, float | None, int]:
    """How long to wait for MLflow, as `Sender.settle` takes it."""
    if _is_local(uri):
        return LOCAL_LIMITS[stage]
    return BRIEF if uri in _silent else LIMITS[stage]


def _is_local(uri: str) -> bool:
    return None not in (_database(uri), _database(_registry(uri)))


def _away(uri: str, error: BaseException) -> bool:
    """Whether a store that failed may work later without changes."""
    if _is_local(uri):
        return "database is locked" in _reason(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UsageError | ImportError):
            return False
        if isinstance(cause, MlflowException):
            status = cause.get_http_status_code()
            return status >= 500 or status in (408, 429)
        cause = cause.__cause__ or cause.__context__
    return True


def _absent(error: BaseException) -> bool:
    """Whether nothing listens at the address of a server, or its name cannot be resolved yet."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError | socket.gaierror):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _because(error: BaseException | None) -> str:
    return f" ({_reason(error)})" if error else ""


def _now() -> int:
    return int(time.time() * 1000)


def ui_command(uri: str, state: Mapping[str, str]) -> str:
    """As `resources.ui`, for the table of runs."""
    if "experiment" not in state:
        return f"{without_password(uri)} after {SYNC}"
    view = f"{TRAINING}&viewStateShareKey={VIEW}"
    return ui(uri, f"/#/experiments/{state['experiment']}/runs?{view}")


def download(reference: str, folder: Path) -> dict[str, str]:
    """Copy the files of a bundle out of MLflow; returns its origin in the registry.

    The origin has "name", "version" and "source", the location of its files, and "alias" if an
    alias selected the version; it is empty for runs and models. `reference`: a run id; a registered
    NAME (its champion, else its newest version), NAME@alias or NAME/version; the same as
    models:/... or runs:/... Raises UsageError, naming what exists, if the reference does not exist,
    and UnavailableError when the store cannot be used.
    """
    parts = model_reference(reference)
    uri = tracking_uri()
    client = _client(uri, existing=True)
    with _explained(uri), tempfile.TemporaryDirectory(prefix="forecaster-") as temporary:
        location, origin = _location(client, **parts)
        bundle = f"{location}/{BUNDLE}"
        if not list_artifacts(artifact_uri=bundle, tracking_uri=client.tracking_uri):
            raise UsageError(f"the model '{reference}' was not made by forecaster: no {BUNDLE}")
        files = download_artifacts(
            artifact_uri=bundle, dst_path=temporary, tracking_uri=client.tracking_uri
        )
        folder.mkdir(parents=True, exist_ok=True)
        for path in Path(files).iterdir():
            if path.is_file():
                shutil.copy(path, folder)
    return origin


def resolve(references: Sequence[str]) -> list[dict[str, str]]:
    """The current origin of each model as `download` returns it, without the files, or "error" with
    the reason why there is none. Raises UnavailableError when the store cannot be used."""
    uri = tracking_uri()
    client = _client(uri, existing=True)
    with _explained(uri):
        return [_origin(client, reference) for reference in references]


def _origin(client: MlflowClient, reference: str) -> dict[str, str]:
    try:
        return _location(client, **model_reference(reference))[1]
    except UsageError as error:
        return {"error": str(error)}


def champions() -> list[str]:
    uri = tracking_uri()
    client = _client(uri, existing=True)
    with _explained(uri):
        return [model.name for model in _registered(client) if CHAMPION in model.aliases]


def _registry(uri: str) -> str:
    return os.environ.get("MLFLOW_REGISTRY_URI") or uri


def _database(uri: str) -> Path | None:
    _, prefix, path = uri.partition("sqlite:///")
    return Path(path.partition("?")[0]).absolute() if prefix and path else None


def _absolute(uri: str) -> str:
    """`uri` with the full path of its file: MLflow keeps one store for each URI that it has seen,
    and would keep using the old file after a change of the working directory."""
    database = _database(uri)
    if database is None:
        return uri
    _, mark, options = uri.partition("?")
    return f"sqlite:///{database}{mark}{options}"


def _locked(uri: str) -> AbstractContextManager[Any]:
    """Admit one process at a time if the store is a local file."""
    database = _database(uri)
    if database is None:
        return nullcontext()
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock")


def _client(uri: str, existing: bool = False) -> MlflowClient:
    """A client of a store that answers; `existing` forbids creating a database."""
    database = _database(uri)
    if existing and database is not None and not database.is_file():
        raise UnavailableError(
            f"there is no MLflow database {database}: train a model first, or set "
            "MLFLOW_TRACKING_URI to its address"
        )
    if _database(uri) or _database(_registry(uri)):
        unlike = "unlike a server that MLFLOW_TRACKING_URI names,"
        extras.check("sqlalchemy", f"a store in a file ({without_password(uri)}), {unlike}")
    try:
        # two processes that find no database would both try to create its tables
        with _settings(FIRST_CONTACT), _locked(uri), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # MLflow's use of SQLAlchemy
            for store in (uri, _registry(uri)):
                _try(_database(store))
            client = _answering(_absolute(uri), _absolute(_registry(uri)))
    except Exception as error:
        advice = f"Name another store with MLFLOW_TRACKING_URI or track.uri; {TRACKING} is one."
        if uri.startswith(("http://", "https://")):
            advice = (
                "Start that server, or unset MLFLOW_TRACKING_URI and track.uri: then runs are "
                f"kept in {TRACKING}."
            )
        reason = _reason(error)
        full = "disk is full" in reason  # SQLite's words
        raise (StorageError if full else UnavailableError)(
            f"MLflow cannot use {without_password(uri)}: {reason}. {advice}"
        ) from error
    return client


def _answering(uri: str, registry: str) -> MlflowClient:
    client = MlflowClient(uri, registry_uri=registry)
    client.search_experiments(max_results=1)
    client.search_registered_models(max_results=1)
    return client


def _try(database: Path | None) -> None:
    """Raise at once the error that MLflow would raise about a file after minutes of retries.

    A missing database is created under another name and then renamed: MLflow creates its tables in
    some fifty steps, and could never use a file interrupted between two of them.
    """
    if database is None:
        return
    with closing(sqlite3.connect(database)) as connection:  # creates an empty file if there is none
        connection.execute("PRAGMA schema_version").fetchone()
    if database.stat().st_size:
        return
    beside = database.with_name(f".{database.name}.new")
    for suffix in ("", "-journal"):
        beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    _answering(f"sqlite:///{beside}", f"sqlite:///{beside}")
    beside.replace(database)


@contextmanager
def _written(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, MlflowException) as error:
        if isinstance(error, MlflowException) and not isinstance(error.__cause__, OSError):
            raise
        raise StorageError(f"{file} could not be written: {_reason(error)}") from error


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        with _settings():
            yield
    except MlflowException as error:
        raise UnavailableError(
            f"MLflow at {without_password(uri)} failed: {_reason(error)}"
        ) from error
    except OSError as error:
        raise StorageError(
            f"MLflow at {without_password(uri)} could not read or write a file: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """The innermost cause, on one line; a failed look-up's own message is only the missing key."""
    while inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        if isinstance(inner, LookupError):
            break
        error = inner
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def _accepting(code: str) -> Iterator[None]:
    """Ignore MLflow's errors with this code."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def _experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The id of the experiment, created if necessary; a local store's artifacts are kept beside it.

    An experiment without the view VIEW gets it.
    """
    found = client.get_experiment_by_name(name)
    database = _database(uri)
    if found is None:
        location = None
        if database is not None:
            folder = re.sub(r"[^\w-]+", "-", name)
            location = (database.parent / "mlartifacts" / folder).as_uri()
        with _accepting("RESOURCE_ALREADY_EXISTS"):
            client.create_experiment(name, location, tags=_view())
        found = client.get_experiment_by_name(name)
    if found.lifecycle_stage == "deleted":
        raise UsageError(
            f"the experiment '{name}' has been deleted: restore it with `mlflow experiments "
            f"restore -x {found.experiment_id}`, or choose another with track.experiment"
        )
    if database is not None and found.artifact_location.startswith("mlflow-artifacts:"):
        raise UsageError(
            f"the experiment '{name}' was made by a server and keeps its files there: set "
            "MLFLOW_TRACKING_URI to that server, or choose another name with track.experiment"
        )
    for key, value in _view().items():
        if key not in found.tags:
            client.set_experiment_tag(found.experiment_id, key, value)
    return str(found.experiment_id)


def _rounded(value: float) -> float:
    """The value with DIGITS significant digits; a whole number keeps all of its own."""
    return value if float(value).is_integer() else float(f"{value:.{DIGITS}g}")


def _view() -> dict[str, str]:
    """The tag in which MLflow's page keeps the view VIEW."""
    columns = [*COLUMNS]
    state = {"selectedColumns": columns, "columnOrder": columns, "columnWidths": COLUMNS}
    view = {"name": VIEW, "createdAt": _now(), "state": json.dumps(state)}
    return {f"{VIEWS}{VIEW}": json.dumps(view)}


def _registered(client: MlflowClient) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_registered_models(f"name LIKE '{PREFIX}%'", page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _location(
    client: MlflowClient,
    run: str | None,
    part: str | None,
    model: str | None,
    name: str | None,
    alias: str | None,
    version: str | None,
) -> tuple[str, dict[str, str]]:
    """The location of a model's artifacts, from the parts of its reference, and its origin."""
    if run is not None:
        if found := _find_run(client, run):
            return _location_in_run(client, found, part), {}
        raise UsageError(f"there is no run {run} in {without_password(client.tracking_uri)}")
    if model is not None:
        with _accepting("RESOURCE_DOES_NOT_EXIST"):
            return str(client.get_logged_model(model).artifact_location), {}
        raise UsageError(f"there is no model {model} in {without_password(client.tracking_uri)}")
    assert name is not None
    versions = {str(made.version) for made in client.search_model_versions(f"name='{name}'")}
    if not versions:
        names = sorted(registered.name for registered in _registered(client))
        raise UsageError(
            f"no model is registered as '{name}'.{did_you_mean(name, names)} "
            f"Known: {', '.join(names) or 'none yet'}."
        )
    origin = {}
    if version is None:
        aliases = client.get_registered_model(name).aliases
        if alias is not None and alias not in aliases:
            known = ", ".join(sorted(aliases)) or "none"
            raise UsageError(f"'{name}' has no alias '{alias}'. Its aliases: {known}.")
        alias = alias or CHAMPION
        if alias in aliases:
            origin["alias"] = alias
        version = str(aliases.get(alias, max(versions, key=int)))
    if version not in versions:
        known = ", ".join(sorted(versions, key=int))
        raise UsageError(f"'{name}' has no version {version}. Its versions: {known}.")
    location = str(client.get_model_version_download_uri(name, version))
    return location, {"name": name, "version": version, **origin, "source": location}


def _location_in_run(client: MlflowClient, run: str, part: str | None) -> str:
    """The newest model of a run, or the one called `part`."""
    found = client.get_run(run)
    outputs = found.outputs.model_outputs if found.outputs else []
    models = [client.get_logged_model(output.model_id) for output in outputs]
    wanted = [model for model in models if part in (None, model.name)]
    if not wanted:
        names = ", ".join(model.name for model in models) or "none"
        raise UsageError(
            f"the run {run} ({found.info.status.lower()}) has no model"
            f"{f' {part}' if part else ''}. Its models: {names}."
        )
    return str(max(wanted, key=lambda model: model.creation_timestamp).artifact_location)


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


def _tags(values: Mapping[str, str]) -> dict[str, str]:
    return {_key(key): _cut(value, 8000) for key, value in values.items()}


def _key(name: str) -> str:
    """The name with characters replaced that MLflow refuses in keys, such as brackets of units."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]


def _cut_lines(text: str, longest: int) -> str:
    """As many whole lines of a text as fit."""
    return text if len(text) <= longest else f"{text[:longest].rpartition(chr(10))[0]}\n\n…"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class _LateError(BaseException):
    """MLflow took too long; its own retries do not catch this."""


def watch(folder: Path, seconds: float, names: Sequence[str]) -> None:
    """The command `watch`; when its input ends, it deletes the folder and ends the process, even in
    the middle of work."""
    with suppress(AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.nice(NICE)
    # so that a file that replaces the database is seen at the next question
    os.environ.setdefault("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")

    def end() -> None:
        sys.stdin.read()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    def late(number: int, frame: FrameType | None) -> None:
        raise _LateError

    threading.Thread(target=end, daemon=True).start()
    signal.signal(signal.SIGALRM, late)
    found: dict[str, dict[str, Any]] = {}
    while True:
        found = look(names, folder, found)
        write(folder / "found.json", json.dumps(found).encode())
        if seconds:
            time.sleep(seconds * uniform(0.8, 1.2))
        else:
            signal.pause()  # until the input ends


def look(
    names: Sequence[str], folder: Path, known: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """What names resolve to now, given what was `known` before; new bundles are copied to folders
    in `folder`, and those that have not been in use for a while are deleted."""
    # a kept connection may lead to a server that has ended
    request_utils._cached_get_request_session.cache_clear()
    states = _in_time(LOOKING, lambda: resolve(names))
    if isinstance(states, dict):  # an error, of all of them
        states = [states] * len(names)
    found = {}
    for name, state in zip(names, states, strict=True):
        entry = _kept(name, state, folder)
        found[name] = {**known.get(name, {}), **entry} if "error" in entry else entry
    used = [each["folder"] for each in found.values() if "folder" in each]
    for bundle in folder.glob("*/"):
        if bundle.name in used:
            os.utime(bundle)
        elif bundle.stat().st_mtime < time.time() - OLD:
            shutil.rmtree(bundle, ignore_errors=True)
    return found


def _kept(name: str, state: dict[str, str], folder: Path) -> dict[str, Any]:
    """The entry of a name in found.json. Downloads its bundle if it is not there yet."""
    if "error" in state:
        return {"status": UsageError.exit_code, **state}
    key = hashlib.sha256(json.dumps([name, state], sort_keys=True).encode()).hexdigest()[:16]
    if not (folder / key).is_dir():
        arriving = folder / f"{key}.arriving"
        shutil.rmtree(arriving, ignore_errors=True)
        state = _in_time(LOADING, lambda: download(name, arriving))
        if "error" in state:
            return state
        arriving.rename(folder / key)
    return {"state": state, "folder": key}


def _in_time(seconds: int, call: Callable[[], Any]) -> Any:
    """The result of `call`, or its "error" and "status"."""
    signal.alarm(seconds)
    try:
        return call()
    except _LateError:
        told = f"MLflow gave no answer within {seconds} s"
        return {"error": told, "status": UnavailableError.exit_code}
    except Exception as error:
        status = error.exit_code if isinstance(error, ForecasterError) else 70
        return {"error": " ".join(str(error).split()) or repr(error), "status": status}
    finally:
        signal.alarm(0)


def main(arguments: list[str]) -> int:
    """The command `python -m forecaster.track`; returns the exit status."""
    try:
        match arguments:
            case ["download", reference, folder]:
                print(json.dumps(download(reference, Path(folder))))
            case ["champions"]:
                for name in champions():
                    print(name)
            case ["watch", folder, seconds, *names]:
                watch(Path(folder), float(seconds), names)
            case _:
                raise UsageError(
                    "usage: python -m forecaster.track download MODEL FOLDER | champions | "
                    "watch FOLDER SECONDS MODEL..."
                )
    except ForecasterError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    for _name, _value in (SILENT | AFTERWARDS).items():  # for threads that MLflow starts
        os.environ.setdefault(_name, str(_value))
    for _name in ("mlflow", _RETRYING):
        logging.getLogger(_name).setLevel(logging.CRITICAL)
    sys.exit(main(sys.argv[1:]))
