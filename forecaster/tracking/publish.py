"""Make MLflow have what the folder of a run holds, and nothing twice.

`publish` may be called as often as wanted: in the background while a run lasts (`run`), and later
as `forecaster sync`. What this process has not told MLflow itself, since another process did or an
answer may have been lost, it asks MLflow for: runs by a tag, metrics by step, models by run,
versions by tag. A run has one value of each metric at a step.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from forecaster.tracking import store  # before mlflow, which it silences

# isort: split
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID

from forecaster import files
from forecaster.errors import ForecasterError, StorageError, UnavailableError
from forecaster.resources import tracking_uri, without_password
from forecaster.tracking import notes
from forecaster.tracking.notes import FILES, MODEL, Data, Noted, Notes
from forecaster.tracking.registry import KEY, Registration, find_run, register

PROCESS = "forecaster.process"
"""The tag of a run with the process that trains (`notes.process`)."""
OWN_ID = "%run%"
"""A placeholder in descriptions for MLflow's id of the run, which is unknown until it is told."""
SYSTEM = "system/"
"""The prefix of the machine's metrics."""
AT_ONCE = 1000
"""The most points of one request, by MLflow's limit."""


class Publisher:
    """Tells MLflow of one run, which this process trains if `training`.

    After a call that raised nothing, MLflow has what the folder held when it began.
    """

    def __init__(self, own: Notes, uri: str, training: bool) -> None:
        self.own, self.uri = own, uri
        self.run = self.experiment = self.model = ""
        """MLflow's ids."""
        self.found = False
        """Whether MLflow had the run before."""
        self.registered: Registration | None = None
        self.sent: Counter[str] = Counter()
        """How many points, files and models were sent."""
        self.progress = 0
        """How many requests with points or files have succeeded."""
        self._client: MlflowClient | None = None
        self._training = training
        self._asks = not training or own.about.again
        """Whether MLflow may have more than this process knows of."""
        self._files: dict[Path, int] = {}
        self._told: Noted | None = None
        self._read = 0
        """The bytes of the points that are sent."""
        self._there: dict[str, set[int]] = {}
        """The steps at which MLflow has a value, by metric, as far as it was asked."""

    def __call__(self) -> None:
        """Make MLflow have it all. Raises MLflow's errors, which may be any."""
        self._client = client = self._client or store.client_of(self.uri)
        try:
            with store.settings(retries=0):
                if not self.run:
                    self._enter(client)
                about = self.own.about  # the end is told only after all that came before it
                self._describe(client, about)
                self._points(client)
                self._send(client, self.own.folder / FILES, self._log_file)
                model = self._log_model(client)
                if about.version and not self.registered:
                    made = register(client, self.uri, self.run, model, about.version, self._asks)
                    self.registered = made
                if about.status:
                    client.set_terminated(self.run, about.status, about.ended)
        except Exception:  # an answer may be lost
            self._asks, self._there = True, {}
            raise

    def _enter(self, client: MlflowClient) -> None:
        """Find the run or create it; close runs of processes that have ended."""
        about = self.own.about
        self.experiment = store.experiment(client, self.uri, about.experiment)
        # a run that was deleted in MLflow goes on as a new one, but is not made twice later
        run = find_run(client, about.id, deleted=not self._training) if self._asks else None
        if run is None:
            parent = about.parent and (find_run(client, about.parent) or about.parent)
            known = {**about.tags, KEY: about.key, PROCESS: about.process}
            made = client.create_run(
                self.experiment,
                start_time=about.begun,
                run_name=about.name,
                tags=known | ({MLFLOW_PARENT_RUN_ID: parent} if parent else {}),
            )
            run = made.info.run_id
        else:
            self.found = self._asks = True
            self.own.note(begun=client.get_run(run).info.start_time)
            if self._training:
                client.update_run(run, status="RUNNING")
                client.set_tag(run, PROCESS, about.process)
        if self._training and not about.parent:
            _close_the_dead(client, self.experiment)
        self.run = run

    def _describe(self, client: MlflowClient, about: Noted) -> None:
        """Tell the tags, parameters and data that are not told."""
        told = self._told
        tags = told.tags if told else client.get_run(self.run).data.tags
        for key, value in about.tags.items():
            if tags.get(key) != value:
                client.set_tag(self.run, key, value.replace(OWN_ID, self.run))
        if told is None or told.params != about.params:  # a value that MLflow has can never change
            params = client.get_run(self.run).data.params if self._asks or not told else told.params
            new = [Param(key, value) for key, value in about.params.items() if key not in params]
            if new:
                client.log_batch(self.run, params=new, synchronous=True)
        for each in about.data:
            if told is None or each not in told.data:  # MLflow keeps equal ones once
                client.log_inputs(self.run, [_input(each)])
        self._told = about

    def _points(self, client: MlflowClient) -> None:
        """Send the points that are not sent; final ones after the model that they are also of."""
        due: list[Metric] = []
        read = self._read
        for points, end in self.own.points(read):
            has_model = points.final and self.own.about.model
            model = self._log_model(client) if has_model else None
            due += [
                Metric(key, value, points.at, points.step, model_id=model)
                for key, value in points.values.items()
            ]
            read = end
            if len(due) >= AT_ONCE:
                self._log_points(client, due)
                due, self._read = [], read
        if due:
            self._log_points(client, due)
        self._read = read

    def _log_points(self, client: MlflowClient, points: list[Metric]) -> None:
        if self._asks:
            points = [*self._missing(client, points)]
        client.log_batch(self.run, metrics=points, synchronous=True)
        self.sent["point"] += len(points)
        self.progress += 1

    def _missing(self, client: MlflowClient, points: list[Metric]) -> Iterator[Metric]:
        """The points that MLflow does not have, each once."""
        if unknown := {point.key for point in points} - self._there.keys():
            latest = client.get_run(self.run).data.metrics
            for key in unknown:
                history = client.get_metric_history(self.run, key) if key in latest else []
                self._there[key] = {_place(point) for point in history}
        for point in points:
            if _place(point) not in self._there[point.key]:
                self._there[point.key].add(_place(point))
                yield point

    def _send(self, client: MlflowClient, folder: Path, log: "_Log") -> None:
        """Send the files of a folder that are new or have changed."""
        for file in notes.files_in(folder):
            changed = file.stat().st_mtime_ns
            if self._files.get(file) != changed:
                inside = file.parent.relative_to(folder).as_posix()
                log(client, str(file), None if inside == "." else inside)
                self._files[file] = changed
                self.progress += 1

    def _log_file(self, client: MlflowClient, file: str, inside: str | None) -> None:
        client.log_artifact(self.run, file, inside)
        self.sent["file"] += 1

    def _log_model(self, client: MlflowClient) -> str:
        """Send the model if it is not sent; returns MLflow's id of it."""
        about, folder = self.own.about, self.own.folder / MODEL
        if self.model or about.model is None:
            return self.model
        id = _find_model(client, self.run, about.model.name) if self._asks else None
        if id is None:
            id = client.create_logged_model(
                self.experiment, name=about.model.name, source_run_id=self.run,
                tags=about.model.tags, params=about.params,
            ).model_id  # fmt: skip
        outputs = client.get_run(self.run).outputs
        if id not in {each.model_id for each in (outputs.model_outputs if outputs else [])}:
            client.log_outputs(self.run, [LoggedModelOutput(id, step=0)])
        location = client.get_logged_model(id).artifact_location
        _name_model(folder / "MLmodel", run_id=self.run, model_id=id, artifact_path=location)

        def log(client: MlflowClient, file: str, inside: str | None) -> None:
            client.log_model_artifact(id, file, inside)

        self._send(client, folder, log)
        client.finalize_logged_model(id, "READY")
        self.sent["model"] += 1
        self.model = id
        return self.model


_Log = Callable[[MlflowClient, str, str | None], None]


def publish(folder: Path) -> Publisher | None:
    """Tell MLflow of the run in a folder (`notes`), and return what it was told.

    It may be called again at any time. A run whose process has died ends as KILLED. None means that
    another process is at it. Raises StorageError for a folder that cannot be read, and
    UnavailableError if MLflow fails.
    """
    own = notes.take(folder)
    if own is None:
        return None
    try:
        return _publish(own)
    finally:
        own.release()


def _publish(own: Notes) -> Publisher:
    address, known = tracking_uri(), own.about.uri  # only the first has a password
    same = without_password(store.absolute(address)) == known
    told = Publisher(own, address if same else known, training=False)
    try:
        own.close_for("KILLED")
        told()
    except StorageError:
        raise
    except Exception as error:  # MLflow may raise anything
        raise UnavailableError(f"{known}: {store.reason(error)}") from error
    return told


@dataclass(frozen=True)
class Synced:
    """The outcome for a run that was incomplete in MLflow; `left` states why it still is, if so."""

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
        name = folder.name.removesuffix(notes.SUFFIX)
        try:
            own = notes.take(folder)
        except StorageError as error:
            yield Synced(name, "", str(error))
            continue
        if own is None:
            if folder.exists():  # else another process has just published it all
                yield Synced(name, "", "", under_way=True)
            continue
        try:
            told = _publish(own)
            own.remove()
        except ForecasterError as error:
            yield Synced(name, "", str(error))
        else:
            words = ", ".join(
                f"{count} {what}{'s' * (count > 1)}" for what, count in told.sent.items() if count
            )
            made = told.registered.sentence if told.registered else ""
            yield Synced(name, "; ".join(filter(None, [words, made])), "")
        finally:
            own.release()


def _place(point: Metric) -> int:
    """The key of a metric's value: its step, or its time for metrics of the machine."""
    return int(point.timestamp if point.key.startswith(SYSTEM) else point.step)


def _input(data: Data) -> DatasetInput:
    web = data.source.startswith(("http://", "https://"))
    entity = Dataset(
        name=data.name,
        digest=data.digest,
        source_type="http" if web else "local",
        source=json.dumps({"url" if web else "uri": data.source}),
    )
    return DatasetInput(entity, [InputTag(MLFLOW_DATASET_CONTEXT, "training")])


def _find_model(client: MlflowClient, run: str, name: str) -> str | None:
    """A model that was created for the run although the answer was lost."""
    experiment = client.get_run(run).info.experiment_id
    for model in client.search_logged_models([experiment], f"source_run_id = '{run}'"):
        if model.name == name:
            return str(model.model_id)
    return None


def _name_model(file: Path, **values: str) -> None:
    """Write a model's identity into its description file."""
    import yaml

    description = yaml.safe_load(file.read_text())
    description |= {**values, "model_uuid": values["model_id"]}
    text = yaml.safe_dump(description, default_flow_style=False, allow_unicode=True)
    files.write(file, text.encode())


def _close_the_dead(client: MlflowClient, experiment: str) -> None:
    """End the runs whose process was on this machine and has ended."""
    running = f"attributes.status = 'RUNNING' AND tags.`{PROCESS}` LIKE '{notes.machine()} %'"
    for run in client.search_runs([experiment], running):
        if notes.is_gone(run.data.tags[PROCESS]):
            client.set_terminated(run.info.run_id, "KILLED")
