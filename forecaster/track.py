"""What MLflow remembers of a run, and the way back from its registry to a bundle.

The store is `track.uri` of the configuration, else $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db
in the working directory. Everything goes through a client with that address: MLflow's global state
stays as it was. Its chatter and telemetry are off unless the environment says otherwise.

    python -m forecaster.track download MODEL FOLDER    copy the bundle of MODEL to FOLDER and
                                                        print its origin as JSON
    python -m forecaster.track resolve MODEL...         the origins of models, as a list in JSON
    python -m forecaster.track champions                registered names that have a champion
"""

import json
import logging
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

# MLflow reads these when it is imported; what the user has set stays
os.environ |= {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
} | os.environ

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts, list_artifacts
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.tracking.context.registry import resolve_tags
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE

from forecaster.errors import ForecasterError, Stopped, StorageError, UnavailableError, UsageError
from forecaster.lookup import did_you_mean, model_reference
from forecaster.resources import PACKAGE, TRACKING, tracking_uri, without_password

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from forecaster.config import RunConfig

PREFIX = "forecaster-"
"""How the registered names of forecaster begin."""
CHAMPION = "champion"
SCORE = "validation_mse"
BUNDLE = "artifacts/bundle"
"""Where the bundle lies within a logged model."""
REQUIREMENTS = (
    *("mlflow", "torch", "numpy", "pandas", "pydantic", "pyyaml", "safetensors"),
    *("jaxtyping", "platformdirs"),
)
"""What running a bundle imports; the code of forecaster itself goes with the model, since a package
index may know another package of that name."""
SAMPLING_SECONDS = 5
"""Between two looks at processor, memory and disk."""

PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": ("0", "2"),
    "MLFLOW_HTTP_REQUEST_TIMEOUT": ("5", "30"),
}
"""For a server, when it is first met and later on. What the user has set stays."""
FIRST_CONTACT = {name: first for name, (first, _) in PATIENCE.items() if name not in os.environ}
AFTERWARDS = {name: later for name, (_, later) in PATIENCE.items() if name not in os.environ}
os.environ |= AFTERWARDS
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it warns of each retry


@dataclass(frozen=True)
class Registration:
    """A registered model version; `sentence` says what became of the alias champion and why."""

    name: str
    version: str
    champion: bool
    sentence: str


class Run:
    """A run in progress; made by `start`.

    Everything but `report` and `flush` raises UnavailableError when MLflow cannot be reached.
    """

    def __init__(self, client: MlflowClient, id: str, experiment: str, uri: str) -> None:
        self._client = client
        self._experiment = experiment
        self._pending: list[Any] = []
        self._params: dict[str, str] = {}
        self.id = id
        self.uri = uri

    @property
    def ui_command(self) -> str:
        """What to type, or the address to open, to look at the run."""
        shown = without_password(self.uri)
        if self.uri.startswith(("http://", "https://")):
            return f"{shown.rstrip('/')}/#/experiments/{self._experiment}/runs/{self.id}"
        return f"mlflow ui --backend-store-uri {shlex.quote(shown)}"

    def params(self, values: Mapping[str, str]) -> None:
        """Log parameters; names become valid for MLflow, values are cut at 6000 characters."""
        self._params |= {_key(key): _cut(value, 6000) for key, value in values.items()}
        with _explained(self.uri):
            params = [Param(key, value) for key, value in self._params.items()]
            self._client.log_batch(self.id, params=params, synchronous=True)

    def report(self, figures: Mapping[str, float], epoch: int) -> None:
        """Send the figures of an epoch in the background; never waits and never fails."""
        metrics = _metrics(figures, epoch)
        self._pending.append(self._client.log_batch(self.id, metrics=metrics, synchronous=False))

    def flush(self) -> int:
        """Wait for the reports under way; returns how many were lost on the way."""
        lost = 0
        for operation in self._pending:
            try:
                operation.wait()
            except MlflowException:
                lost += 1
        self._pending.clear()
        return lost

    def metrics(self, values: Mapping[str, float], model: str | None = None) -> None:
        """Log final figures, linked to the logged model with that id."""
        with _explained(self.uri):
            metrics = _metrics(values, 0, model)
            self._client.log_batch(self.id, metrics=metrics, synchronous=True)

    def figure(self, name: str, figure: "Figure") -> None:
        with _explained(self.uri):
            self._client.log_figure(self.id, figure, f"plots/{_key(name).replace('/', '_')}.png")

    def text(self, name: str, text: str) -> None:
        with _explained(self.uri):
            self._client.log_text(self.id, text, name)

    def describe(self, text: str) -> None:
        """The description of the run, Markdown, where the page of MLflow shows it."""
        with _explained(self.uri):
            self._client.set_tag(self.id, MLFLOW_RUN_NOTE, _cut(text, 8000))

    def dataset(self, name: str, digest: str, source: str, context: str = "training") -> None:
        """Note which data the run used; `source` is an address or a path, nothing is read."""
        web = source.startswith(("http://", "https://"))
        entity = Dataset(
            name=name,
            digest=digest.removeprefix("sha256:")[:36],
            source_type="http" if web else "local",
            source=json.dumps({"url" if web else "uri": source}),
        )
        with _explained(self.uri):
            tags = [InputTag(MLFLOW_DATASET_CONTEXT, context)]
            self._client.log_inputs(self.id, [DatasetInput(entity, tags)])

    def log_model(
        self,
        folder: Path,
        name: str,
        example: "pd.DataFrame",
        forecast: "pd.DataFrame",
        horizon: int,
        tags: Mapping[str, str],
    ) -> str:
        """Log a bundle as a model that `mlflow models serve` can serve; returns its id.

        `example` is a history that the model accepts and `forecast` its answer: they give the
        signature. The model carries the code of forecaster, and nothing is pickled.
        """
        with (
            _explained(self.uri),
            tempfile.TemporaryDirectory(prefix="forecaster-") as temporary,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # MLflow's, about its own hints and use of pandas
            from mlflow.pyfunc import save_model

            bundle, path = Path(temporary, "bundle"), Path(temporary, "model")
            shutil.copytree(folder, bundle)
            params = [
                ParamSpec("horizon", DataType.long, default=horizon),
                ParamSpec("quantile_levels", DataType.double, default=[], shape=(-1,)),
            ]
            model = self._client.create_logged_model(
                self._experiment,
                name=re.sub(r"[^\w-]+", "-", name),
                source_run_id=self.id,
                tags=_tags(tags),
                params=self._params,
            )
            self._client.log_outputs(self.id, [LoggedModelOutput(model.model_id, step=0)])
            save_model(
                path,
                mlflow_model=Model(
                    artifact_path=model.artifact_location,
                    run_id=self.id,
                    model_id=model.model_id,
                    model_uuid=model.model_id,
                ),
                python_model=str(PACKAGE / "pyfunc_model.py"),
                artifacts={"bundle": str(bundle)},
                code_paths=[str(PACKAGE)],
                signature=ModelSignature(_schema(example), _schema(forecast), ParamSchema(params)),
                input_example=example,
                pip_requirements=[
                    f"{each}=={version(each).partition('+')[0]}" for each in REQUIREMENTS
                ],
            )
            self._client.log_model_artifacts(model.model_id, str(path))
            self._client.finalize_logged_model(model.model_id, "READY")
        return str(model.model_id)

    def register(
        self, model: str, name: str, score: float, task: Mapping[str, str]
    ) -> Registration:
        """Register the logged model `model` as the next version of `name`.

        `score` is its validation error, `task` what makes scores comparable. In a local sqlite
        store the alias champion goes to the better one of the same task; else it is left alone.
        """
        local = _database(_registry(self.uri)) is not None
        with _explained(self.uri), _locked(_registry(self.uri)):
            with _accepting("RESOURCE_ALREADY_EXISTS"):
                self._client.create_registered_model(name)
            tags = {**task, SCORE: repr(score)}
            # not "models:/...", which a local registry would look up in MLflow's global store
            source = self._client.get_logged_model(model).artifact_location
            made = self._client.create_model_version(
                name, source, run_id=self.id, tags=tags, model_id=model
            )
            number = str(made.version)
            if not local:
                shown = without_password(self.uri)
                move = f"set_registered_model_alias('{name}', '{CHAMPION}', '{number}')"
                sentence = (
                    f"{name} version {number} is registered; the alias {CHAMPION} of a shared "
                    f"store is left alone. To move it: "
                    f"python -c \"import mlflow; mlflow.MlflowClient('{shown}').{move}\""
                )
                return Registration(name, number, champion=False, sentence=sentence)
            now = self._client.get_registered_model(name).aliases.get(CHAMPION)
            champion = None if now is None else self._client.get_model_version(name, now)
            wins, reason = _contest(score, task, champion)
            if wins:
                self._client.set_registered_model_alias(name, CHAMPION, number)
        outcome = "is the champion" if wins else "is registered, but not the champion"
        return Registration(name, number, wins, f"{name} version {number} {outcome}: {reason}")


@contextmanager
def start(
    config: "RunConfig",
    name: str,
    tags: Mapping[str, str],
    *,
    parent: str | None = None,
    again: str | None = None,
) -> Iterator[Run]:
    """A run with system metrics, ended as FINISHED, FAILED (an exception) or KILLED (a signal).

    With `parent`, the id of a run in progress, it stands below that one and has no system metrics
    of its own. `again` is the id of an ended run to go on with, if the store has it. Raises
    UnavailableError within seconds when the store cannot be used.
    """
    uri = config.track.uri or tracking_uri()
    client = _client(uri)
    with _explained(uri):
        experiment = _experiment(client, uri, config.track.experiment)
        id = again if again and _reopened(client, again) else None
        if id is None:
            above = {MLFLOW_PARENT_RUN_ID: parent} if parent else {}
            known = resolve_tags(_tags(tags) | above)
            id = client.create_run(experiment, run_name=name, tags=known).info.run_id
    run = Run(client, id, experiment, uri)
    monitor = SystemMetricsMonitor(
        run.id, sampling_interval=SAMPLING_SECONDS, tracking_uri=client.tracking_uri
    )
    if parent is None:
        monitor.start()

    def end(status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        run.flush()
        if parent is None:
            monitor.finish()
        with _explained(uri):
            client.set_terminated(run.id, status)

    try:
        yield run
    except BaseException as error:
        with suppress(ForecasterError):  # the first error is the one to tell
            end("KILLED" if isinstance(error, Stopped | KeyboardInterrupt) else "FAILED")
        raise
    end("FINISHED")


def _reopened(client: MlflowClient, id: str) -> bool:
    """Whether the store has a run with this id, which is then in progress again."""
    with _accepting("RESOURCE_DOES_NOT_EXIST"):
        if client.get_run(id).info.lifecycle_stage == "active":
            client.update_run(id, status="RUNNING")
            return True
    return False


def download(reference: str, folder: Path) -> dict[str, str]:
    """Copy the files of a bundle out of MLflow; returns its origin in the registry.

    The origin has "name", "version" and "source", where its files lie, and "alias" when that
    decided; it is empty for runs and models. `reference`: a run id; a registered NAME (its
    champion, else its newest version), NAME@alias or NAME/version; the same as models:/... or
    runs:/... Raises UsageError for what does not exist, naming what does, and UnavailableError when
    the store cannot be used.
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
    """The origin of each model as `download` gives it, now and without its files, or "error" with
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
    """`uri` with the whole path of its file: MLflow keeps one store for each URI that it has seen,
    and would go on with the old file after a change of the working directory."""
    database = _database(uri)
    if database is None:
        return uri
    _, mark, options = uri.partition("?")
    return f"sqlite:///{database}{mark}{options}"


def _locked(uri: str) -> AbstractContextManager[Any]:
    """One process at a time, where the store is a local file."""
    database = _database(uri)
    if database is None:
        return nullcontext()
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock")


def _client(uri: str, existing: bool = False) -> MlflowClient:
    """A client of a store that answers; `existing` forbids making a new database."""
    database = _database(uri)
    if existing and database is not None and not database.is_file():
        raise UnavailableError(
            f"there is no MLflow database {database}: train a model first, or say where it is "
            "with MLFLOW_TRACKING_URI"
        )
    os.environ |= FIRST_CONTACT
    try:
        # two processes that meet a missing database would both try to make its tables
        with _locked(uri), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # MLflow's use of SQLAlchemy
            client = MlflowClient(_absolute(uri), registry_uri=_absolute(_registry(uri)))
            client.search_experiments(max_results=1)
            client.search_registered_models(max_results=1)
    except Exception as error:
        advice = f"Name another store with MLFLOW_TRACKING_URI or track.uri; {TRACKING} is one."
        if uri.startswith(("http://", "https://")):
            advice = (
                "Start that server, or unset MLFLOW_TRACKING_URI and track.uri: then runs are "
                f"kept in {TRACKING}."
            )
        reason = _reason(error)
        raise UnavailableError(
            f"MLflow cannot use {without_password(uri)}: {reason}. {advice}"
        ) from error
    finally:
        os.environ |= AFTERWARDS
    return client


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
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
    """The innermost cause, on one line; a failed look-up only says what was looked for."""
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
    """The id of the experiment, made if need be; the artifacts of a local store lie beside it."""
    found = client.get_experiment_by_name(name)
    database = _database(uri)
    if found is None:
        location = None
        if database is not None:
            folder = re.sub(r"[^\w-]+", "-", name)
            location = (database.parent / "mlartifacts" / folder).as_uri()
        with _accepting("RESOURCE_ALREADY_EXISTS"):
            return str(client.create_experiment(name, location))
        found = client.get_experiment_by_name(name)
    if found.lifecycle_stage == "deleted":
        raise UsageError(
            f"the experiment '{name}' has been deleted: bring it back with `mlflow experiments "
            f"restore -x {found.experiment_id}`, or choose another with track.experiment"
        )
    if database is not None and found.artifact_location.startswith("mlflow-artifacts:"):
        raise UsageError(
            f"the experiment '{name}' was made by a server and keeps its files there: set "
            "MLFLOW_TRACKING_URI to that server, or choose another name with track.experiment"
        )
    return str(found.experiment_id)


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
    """Where the artifacts of a model lie, from the parts of its reference, and its origin."""
    if run is not None:
        with _accepting("RESOURCE_DOES_NOT_EXIST"):
            return _location_in_run(client, run, part), {}
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


def _contest(score: float, task: Mapping[str, str], champion: Any) -> tuple[bool, str]:
    """Whether a model with this score takes the place of the champion, and why."""
    if not math.isfinite(score):
        return False, f"its validation MSE is {score}"
    if champion is None:
        return True, "there was none"
    differences = [key for key in task if champion.tags.get(key) != task[key]]
    if differences or SCORE not in champion.tags:
        return True, (
            f"version {champion.version} was judged on another task "
            f"({', '.join(differences) or SCORE} differs), so the two cannot be compared"
        )
    best = float(champion.tags[SCORE])
    return score < best, f"validation MSE {score:.4g}, version {champion.version} has {best:.4g}"


def _schema(frame: "pd.DataFrame") -> Schema:
    """Numbers are doubles; stamps are anything, for JSON has them as text, with a zone or without.

    MLflow's type datetime refuses zones, also those in the answers of its own server.
    """
    return Schema(
        [
            ColSpec(DataType.double, name)
            if frame[name].dtype.kind == "f"
            else ColSpec(AnyType(), name, required=False)
            for name in frame.columns
        ]
    )


def _metrics(values: Mapping[str, float], step: int, model: str | None = None) -> list[Metric]:
    now = int(time.time() * 1000)
    return [Metric(_key(key), value, now, step, model_id=model) for key, value in values.items()]


def _tags(values: Mapping[str, str]) -> dict[str, str]:
    return {_key(key): _cut(value, 8000) for key, value in values.items()}


def _key(name: str) -> str:
    """The name with what MLflow does not take in keys replaced, such as the brackets of units."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def main(arguments: list[str]) -> int:
    """The command `python -m forecaster.track`; returns the exit status."""
    try:
        match arguments:
            case ["download", reference, folder]:
                print(json.dumps(download(reference, Path(folder))))
            case ["resolve", *references] if references:
                print(json.dumps(resolve(references)))
            case ["champions"]:
                for name in champions():
                    print(name)
            case _:
                raise UsageError(
                    "usage: python -m forecaster.track download MODEL FOLDER | resolve MODEL... | "
                    "champions"
                )
    except ForecasterError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
