"""Make MLflow have what is noted of a run, and nothing twice.

A `Publisher` may be called as often as wanted: in the background while a run lasts (`run`), and
later as `forecaster sync`. Since another process may have told MLflow already, or an answer may
have been lost, it asks MLflow first: for runs by a tag, metrics by step, models and versions by
run. A run has one value of each metric at a step.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forecaster.tracking import store  # before mlflow, which it silences

# isort: split
from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModelOutput,
    Metric,
    Param,
    RunTag,
)
from mlflow.models.model import MLMODEL_FILE_NAME, Model
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE

from forecaster.base import atomic
from forecaster.base.errors import ForecasterError, StorageError, UnavailableError
from forecaster.base.installation import tracking_uri, without_password
from forecaster.tracking import notes
from forecaster.tracking.notes import FILES, MODEL, Data, Noted, Notes, Points
from forecaster.tracking.registry import KEY, find_run, register

AT_ONCE = 1000
"""The most points of one request, by MLflow's limit."""
PROCESS = "forecaster.process"
"""The tag of a run with the process that trains (`notes.process`)."""
OWN_ID = "%run%"
"""A placeholder in descriptions for MLflow's id of the run, which is unknown until it is told."""


class Publisher:
    """Tells MLflow of one run, which this process trains if `training`.

    After a call that raised nothing, MLflow has what was noted when it began.
    """

    def __init__(self, own: Notes, uri: str, training: bool) -> None:
        self.own, self.uri = own, uri
        self.run = self.experiment = self.model = ""
        """MLflow's ids."""
        self.found = False
        """Whether MLflow had the run before."""
        self.registered = ""
        """The sentence of `registry.register`."""
        self.sent = 0
        """How many parts were sent: it grows while MLflow answers."""
        self._client: MlflowClient | None = None
        self._training = training
        self._files: dict[Path, int] = {}
        self._told: Noted | None = None
        self._read = 0
        """How many points are sent."""
        self._there: dict[str, set[int]] = {}
        """The steps at which MLflow has a value, by metric, as far as is known."""

    def __call__(self) -> None:
        """Make MLflow have it all. Raises MLflow's errors, which may be any."""
        self._client = client = self._client or store.client_of(self.uri)
        try:
            with store.settings():
                if not self.run:
                    self._enter(client)
                about = self.own.about  # the end is told only after all that came before it
                self._describe(client, about)
                points = self.own.points[self._read :]
                self._log_points(client, [each for some in points for each in _metrics(some)])
                self._read += len(points)
                self._send(self.own.folder / FILES, partial(client.log_artifact, self.run))
                if about.has_model and not self.model:
                    self._log_model(client, about)
                if about.figures:
                    self._log_points(client, _metrics(about.figures, self.model or None))
                if about.version and not self.registered:
                    self.registered = register(
                        client, self.uri, self.run, self.model, about.version,
                        about.tags.get(MLFLOW_RUN_NOTE, "").replace(OWN_ID, self.run),
                    )  # fmt: skip
                if about.status:
                    client.set_terminated(self.run, about.status, about.ended)
        except Exception:  # an answer may be lost
            self._there = {}
            raise

    def _enter(self, client: MlflowClient) -> None:
        """Find the run or create it; close runs of processes that have ended."""
        about = self.own.about
        self.experiment = store.experiment(client, self.uri, about.experiment)
        # a run that was deleted in MLflow goes on as a new one, but is not made twice later
        run = find_run(client, about.id, deleted=not self._training)
        if run is None:
            tags = {**about.tags, KEY: about.key, PROCESS: about.process}
            if about.parent:
                tags[MLFLOW_PARENT_RUN_ID] = find_run(client, about.parent) or about.parent
            made = client.create_run(self.experiment, about.begun, tags, about.name)
            run = made.info.run_id
        else:
            self.found = True
            info = client.get_run(run).info
            self.experiment = info.experiment_id
            self.own.note(begun=info.start_time)
            if self._training:
                client.update_run(run, status="RUNNING")
                client.set_tag(run, PROCESS, about.process)
        if self._training and not about.parent:
            _close_the_dead(client, self.experiment)
        self.run = run

    def _describe(self, client: MlflowClient, about: Noted) -> None:
        """Tell the tags, parameters and data that are not told."""
        told = self._told
        if told and (told.tags, told.params, told.data) == (about.tags, about.params, about.data):
            return
        known = client.get_run(self.run).data
        before = told.tags if told else known.tags  # others may have changed them since
        tags = [
            RunTag(key, value.replace(OWN_ID, self.run))
            for key, value in about.tags.items()
            if before.get(key) != value
        ]
        # a value that MLflow has can never change
        new = [Param(key, value) for key, value in about.params.items() if key not in known.params]
        client.log_batch(self.run, params=new, tags=tags, synchronous=True)
        if about.data:  # MLflow keeps equal ones once
            client.log_inputs(self.run, [_input(about.data)])
        self._told = about

    def _log_points(self, client: MlflowClient, points: list[Metric]) -> None:
        """Send the points that MLflow does not have, each once."""
        if unknown := {point.key for point in points} - self._there.keys():
            latest = client.get_run(self.run).data.metrics
            for key in unknown:
                history = client.get_metric_history(self.run, key) if key in latest else []
                self._there[key] = {point.step for point in history}
        new = []
        for point in points:
            if point.step not in self._there[point.key]:
                self._there[point.key].add(point.step)
                new.append(point)
        for start in range(0, len(new), AT_ONCE):
            some = new[start : start + AT_ONCE]
            client.log_batch(self.run, metrics=some, synchronous=True)
            self.sent += 1

    def _send(self, folder: Path, log: Callable[[str, str | None], None]) -> None:
        """Send the files of a folder that are new or have changed, and written completely."""
        for file in sorted(folder.rglob("[!.]*")):
            changed = file.stat().st_mtime_ns
            if file.is_file() and self._files.get(file) != changed:
                inside = file.parent.relative_to(folder).as_posix()
                log(str(file), None if inside == "." else inside)
                self._files[file] = changed
                self.sent += 1

    def _log_model(self, client: MlflowClient, about: Noted) -> None:
        """Send the model, which has the name and the tags of the run."""
        folder = self.own.folder / MODEL
        made = client.search_logged_models([self.experiment], f"source_run_id = '{self.run}'")
        model = made[0] if made else client.create_logged_model(
            self.experiment, re.sub(r"[^\w-]+", "-", about.name), self.run,
            tags={key: value for key, value in about.tags.items() if not key.startswith("mlflow.")},
            params=about.params,
        )  # fmt: skip
        outputs = client.get_run(self.run).outputs
        if not outputs or model.model_id not in {each.model_id for each in outputs.model_outputs}:
            client.log_outputs(self.run, [LoggedModelOutput(model.model_id, step=0)])
        identity = Model.load(folder)
        identity.run_id, identity.artifact_path = self.run, model.artifact_location
        identity.model_id = identity.model_uuid = model.model_id
        atomic.write(folder / MLMODEL_FILE_NAME, identity.to_yaml().encode())
        self._send(folder, partial(client.log_model_artifact, model.model_id))
        client.finalize_logged_model(model.model_id, "READY")
        self.model = model.model_id


def publish(folder: Path) -> Publisher | None:
    """Tell MLflow of a run that has ended, from its folder, which is removed then; returns what was
    told. None while another process does it, or if one has done it.

    Raises StorageError, and UnavailableError if MLflow fails.
    """
    own = notes.take(folder)
    if own is None:
        return None
    address, known = tracking_uri(), own.about.uri  # only the first has a password
    same = without_password(store.absolute(address)) == known
    told = Publisher(own, address if same else known, training=False)
    try:
        told()
        own.remove()
    except StorageError:
        raise
    except Exception as error:  # MLflow may raise anything
        raise UnavailableError(f"{known}: {store.reason(error)}") from error
    finally:
        own.release()
    return told


@dataclass(frozen=True)
class Synced:
    """The outcome for a run that was incomplete in MLflow: what became of its model, if that was to
    be registered; `left` states why the run is still incomplete, if so."""

    name: str
    told: str
    left: str
    under_way: bool = False


def sync(names: list[str]) -> Iterator[Synced]:
    """Publish the runs in ./runs that MLflow does not have, or those with these names.

    The folders of those that MLflow has then are removed. A run that a process is still publishing
    is left alone.
    """
    for folder in notes.find(names):
        name = folder.parent.name
        try:
            told = publish(folder)
        except ForecasterError as error:
            yield Synced(name, "", str(error))
            continue
        if told:
            yield Synced(name, told.registered, "")
        elif folder.exists():  # else another process has just published it all
            yield Synced(name, "", "", under_way=True)


def _metrics(points: Points, model: str | None = None) -> list[Metric]:
    """Points as MLflow takes them, with the id of the model that they are also of."""
    return [
        Metric(key, value, points.at, points.step, model_id=model)
        for key, value in points.values.items()
    ]


def _input(data: Data) -> DatasetInput:
    web = data.source.startswith(("http://", "https://"))
    entity = Dataset(
        name=data.name,
        digest=data.digest,
        source_type="http" if web else "local",
        source=json.dumps({"url" if web else "uri": data.source}),
    )
    return DatasetInput(entity, [InputTag(MLFLOW_DATASET_CONTEXT, "training")])


def _close_the_dead(client: MlflowClient, experiment: str) -> None:
    """End the runs whose process was on this machine and has ended."""
    running = f"attributes.status = 'RUNNING' AND tags.`{PROCESS}` LIKE '{notes.machine()} %'"
    for run in client.search_runs([experiment], running):
        if notes.is_gone(run.data.tags[PROCESS]):
            client.set_terminated(run.info.run_id, "KILLED")
