"""Make MLflow have what is noted of a run, and nothing twice.

`publish` does so from the folder of a run that has ended (`forecaster sync`), and a `Publisher` in
the background while a run lasts (`run`), as often as wanted. Since another process may have told
MLflow already, or an answer may have been lost, it asks MLflow first: for runs by a tag, metrics by
step, models and versions by run. A run has one value of each metric at a step.
"""

import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

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
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID

from forecaster.base import atomic
from forecaster.base.errors import ForecasterError, StorageError, UnavailableError, UsageError
from forecaster.base.installation import tracking_uri, without_password
from forecaster.forecast.bundle import load
from forecaster.record import folder as runs
from forecaster.record.folder import ABOUT, PLOTS, RUNS, Point, RunFacts, RunFolder
from forecaster.tracking import texts
from forecaster.tracking.logged_model import build
from forecaster.tracking.notes import DESCRIPTION, OWN_ID, Notes, clean
from forecaster.tracking.registry import KEY, find_run, register

AT_ONCE = 1000
"""The most points of one request, by MLflow's limit."""


class Publisher:
    """Tells MLflow of one run, which this process trains if `training`; `above` is the run that it
    is below.

    After a call that raised nothing, MLflow has what was noted when it began.
    """

    def __init__(
        self, notes: Notes, uri: str, *, training: bool, above: "Publisher | None" = None
    ) -> None:
        self.notes, self.uri = notes, uri
        self.run = self.experiment = self.model = ""
        """MLflow's ids."""
        self.found = False
        """Whether MLflow had the run before."""
        self.registered = ""
        """The sentence of `registry.register`."""
        self._client: MlflowClient | None = above._client if above else None
        self._training, self._above = training, above.run if above else ""
        self._sent, self._building = 0, False
        self._files: dict[str, str | int] = {}
        """What was sent: texts, and when others were changed, by name."""
        self._told: tuple[dict[str, str], dict[str, str], str] | None = None
        self._read = 0
        """How many points are sent."""
        self._there: dict[str, set[int]] = {}
        """The steps at which MLflow has a value, by metric, as far as is known."""

    @property
    def progress(self) -> float:
        """Grows while MLflow answers, and while nobody waits for MLflow."""
        return time.monotonic() if self._building else self._sent

    def __call__(self) -> None:
        """Make MLflow have it all. Raises MLflow's errors, which may be any."""
        self._client = client = self._client or store.client_of(self.uri)
        try:
            with store.silent():
                if not self.run:
                    self._enter(client)
                notes, about = self.notes, self.notes.held.about  # the end is told last of all
                self._describe(client, about)
                points = notes.held.points[self._read :]
                self._log_points(client, [point for some in points for point in _metrics(some)])
                self._read += len(points)
                for name, text in notes.texts.items():
                    if self._files.get(name) != text:
                        client.log_text(self.run, text, name)
                        self._has(name, text)
                if notes.bundle:
                    self._log_model(client, notes.bundle)
                if notes.figures:
                    self._log_points(client, _metrics(notes.figures, self.model or None))
                if notes.version and not self.registered:
                    text = notes.tags.get(DESCRIPTION, "").replace(OWN_ID, self.run)
                    self.registered = register(
                        client, self.uri, self.run, self.model, notes.version, text
                    )
                while notes.children:
                    Publisher(notes.children[0], self.uri, training=False, above=self)()
                    del notes.children[0]
                    self._sent += 1
                if about.status != "RUNNING":
                    client.set_terminated(self.run, about.status, about.ended)
        except Exception:  # an answer may be lost
            self._there = {}
            raise

    def _enter(self, client: MlflowClient) -> None:
        about = self.notes.held.about
        self.experiment = store.experiment(client, self.uri, about.experiment)
        # a run that was deleted in MLflow goes on as a new one, but is not made twice later
        run = find_run(client, about.run_id, deleted=not self._training)
        if run is None:
            tags = {**about.tags, KEY: about.key}
            if self._above:
                tags[MLFLOW_PARENT_RUN_ID] = self._above
            created = client.create_run(self.experiment, about.begun, tags, clean(about.name))
            run = created.info.run_id
        else:
            self.found = True
            self.experiment = client.get_run(run).info.experiment_id
            if self._training:
                client.update_run(run, status="RUNNING")
        self.run = run

    def _describe(self, client: MlflowClient, about: RunFacts) -> None:
        """Tell the tags, parameters and data that are not told."""
        whole = self.notes.tags, about.params, about.data
        if whole == self._told:
            return
        known = client.get_run(self.run).data
        before = self._told[0] if self._told else known.tags  # others may have changed them since
        tags = [
            RunTag(key, value.replace(OWN_ID, self.run))
            for key, value in whole[0].items()
            if before.get(key) != value
        ]
        # a value that MLflow has can never change
        new = [Param(key, value) for key, value in whole[1].items() if key not in known.params]
        client.log_batch(self.run, params=new, tags=tags, synchronous=True)
        if about.data:  # MLflow keeps equal ones once
            client.log_inputs(self.run, [_input(about)])
        self._told = whole

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
            self._sent += 1

    def _has(self, name: str, what: str | int) -> None:
        self._files[name] = what
        self._sent += 1

    def _log_model(self, client: MlflowClient, bundle: Path) -> None:
        """Send the pictures, and the model, which has the name and the tags of the run."""
        for file in sorted((bundle / PLOTS).glob("*.png")):
            if (changed := file.stat().st_mtime_ns) != self._files.get(file.name):
                client.log_artifact(self.run, str(file), PLOTS)
                self._has(file.name, changed)
        if self.model:
            return
        about, tags = self.notes.held.about, self.notes.tags
        logged = client.search_logged_models([self.experiment], f"source_run_id = '{self.run}'")
        model = logged[0] if logged else client.create_logged_model(
            self.experiment, re.sub(r"[^\w-]+", "-", about.name), self.run,
            tags={key: value for key, value in tags.items() if not key.startswith("mlflow.")},
            params=about.params,
        )  # fmt: skip
        outputs = client.get_run(self.run).outputs
        if not outputs or model.model_id not in {out.model_id for out in outputs.model_outputs}:
            client.log_outputs(self.run, [LoggedModelOutput(model.model_id, step=0)])
        with tempfile.TemporaryDirectory(prefix="forecaster-") as temporary:
            folder = Path(temporary, "model")
            self._building = True
            try:
                build(bundle, folder)
            finally:
                self._building = False
            identity = Model.load(folder)
            identity.run_id, identity.artifact_path = self.run, model.artifact_location
            identity.model_id = identity.model_uuid = model.model_id
            atomic.write(folder / MLMODEL_FILE_NAME, identity.to_yaml().encode())
            for file in sorted(folder.rglob("*")):
                name = f"model/{file.relative_to(folder)}"
                if file.is_file() and name not in self._files:
                    inside = file.parent.relative_to(folder).as_posix()
                    client.log_model_artifact(
                        model.model_id, str(file), None if inside == "." else inside
                    )
                    self._has(name, 0)
        client.finalize_logged_model(model.model_id, "READY")
        self.model = model.model_id


def publish(run: RunFolder) -> str:
    """Tell MLflow of a run that has ended, from its folder; returns a sentence on the version that
    its model became, empty without one.

    The folder is removed if the run has neither a bundle nor a way to go on. Raises StorageError,
    and UnavailableError if MLflow fails.
    """
    address, known = tracking_uri(), run.about.tracker  # only the first has a password
    same = without_password(store.absolute(address)) == known
    if run.about.status == "RUNNING":  # its process was killed
        last = run.points[-1][0] if run.points else run.about.begun
        run.note(status="FINISHED" if run.finished else "KILLED", ended=last)
    notes = Notes(run)
    if run.folder is not None and run.finished:
        run.finish()
        texts.tell(notes, load(run.folder), run.folder)
    publisher = Publisher(notes, address if same else known, training=False)
    try:
        publisher()
        run.told()
    except StorageError:
        raise
    except Exception as error:  # MLflow may raise anything
        raise UnavailableError(f"{known}: {store.reason(error)}") from error
    return publisher.registered


def sync(names: list[str]) -> Iterator[dict[str, Any]]:
    """Publish the runs in ./runs that MLflow does not have, or those with these names.

    Yields the outcome of each by its name: what became of its model, if that was to be registered,
    as "told"; why the run is still incomplete, if so, as "left". A run that a process is still
    training or publishing is left alone, "under_way".
    """
    for folder in find(names):
        outcome = {"name": folder.name, "told": "", "left": "", "under_way": False}
        try:
            with runs.take(folder) or nullcontext() as run:
                if run is not None and not run.about.uploaded:
                    yield outcome | {"told": publish(run)}
                elif run is None and is_left(folder):
                    yield outcome | {"under_way": True}
        except ForecasterError as error:
            yield outcome | {"left": str(error)}


def find(names: list[str]) -> list[Path]:
    """The folders of the runs with these names, or of all, of which MLflow may not have all; the
    oldest first. Raises UsageError for a name that is no folder in `runs`."""
    left = {folder.name: folder for folder in runs.known() if is_left(folder)}
    chosen = [Path(name).name for name in names] or [*left]
    for name in chosen:
        if name not in left and not (RUNS / name).is_dir():
            words = ", ".join(sorted(left)) or "nothing"
            raise UsageError(f"no run '{name}' in {RUNS}/; left to upload: {words}")
    return [folder for name, folder in left.items() if name in chosen]


def is_left(folder: Path) -> bool:
    """Whether MLflow may not have all of a run that there is."""
    try:
        return not runs.read(folder).uploaded
    except StorageError:
        return (folder / ABOUT).exists()  # to be reported


def waiting() -> int:
    """How many runs in `runs` MLflow may not have all of, though no process is at work on them."""
    return sum(runs.is_free(folder) for folder in find([]))


def _metrics(point: Point, model: str | None = None) -> list[Metric]:
    """Figures as MLflow takes them, with the id of the model that they are also of."""
    at, step, values = point
    return [Metric(key, value, at, step, model_id=model) for key, value in values.items()]


def _input(about: RunFacts) -> DatasetInput:
    web = about.source.startswith(("http://", "https://"))
    entity = Dataset(
        name=clean(about.data),
        digest=about.data_digest.removeprefix("sha256:")[:36],
        source_type="http" if web else "local",
        source=json.dumps({"url" if web else "uri": clean(about.source)}),
    )
    return DatasetInput(entity, [InputTag(MLFLOW_DATASET_CONTEXT, "training")])
