"""MLflow's store: a client that answers, and MLflow's errors in our words.

The store is `track.uri` of the configuration, else $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db
in the working directory. Everything goes through a client with that address, so MLflow's global
state does not change, nor does the environment.
"""

import json
import os
import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock

from forecaster.base import extras
from forecaster.base.errors import ForecasterError, StorageError, UnavailableError, UsageError
from forecaster.base.installation import TRACKING, tracking_uri, without_password
from forecaster.record.folder import now
from forecaster.tracking import TELEMETRY

with ExitStack() as _importing:  # which starts telemetry, unless a variable forbids it
    if TELEMETRY not in os.environ:
        os.environ[TELEMETRY] = "true"
        _importing.callback(os.environ.pop, TELEMETRY)
    import mlflow
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.utils.logging_utils import suppress_logs_in_thread

silent = suppress_logs_in_thread
"""In this block, and in this thread alone, MLflow logs nothing."""

MIGRATIONS = Path(mlflow.__file__).parent / "store/db_migrations/versions"
"""The files of all versions of a database that this MLflow knows; names begin with the version."""
POOL = "MLFLOW_SQLALCHEMYSTORE_POOLCLASS"
"""MLflow's variable for how connections to a database are kept."""
VIEW = "attention"
"""The default view of an experiment's runs: the table that compares attentions."""
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
"""The tag of an experiment in which MLflow's page keeps that view."""
COLUMNS = {
    "tags.`attn`": 110, "metrics.`network_test_mse`": 150, "metrics.`test_mse`": 100,
    "metrics.`skill`": 100, "tags.`data`": 100, "tags.`horizon`": 80,
    "metrics.`test_mae`": 100, "metrics.`coverage_80`": 110, "metrics.`train_seconds`": 120,
    "metrics.`windows_per_second`": 160, "metrics.`peak_mib`": 100,
}  # fmt: skip
"""The columns of that table, and their widths; the first fit into a narrow window."""


@contextmanager
def asked() -> Iterator[MlflowClient]:
    """A client of the default store, whose errors in this block are UnavailableError.

    It creates no database; raises UnavailableError if there is none.
    """
    uri = tracking_uri()
    database = _database(uri)
    if database is not None and not database.is_file():
        raise UnavailableError(
            f"there is no MLflow database {database}: train a model first, or set "
            "MLFLOW_TRACKING_URI to its address"
        )
    client = client_of(uri)
    with explained(uri):
        yield client


def problem() -> str:
    """What keeps the default store from being used, "" if nothing does; creates no database."""
    uri = tracking_uri()
    database = _database(uri)
    try:
        if database is None or database.is_file():
            client_of(uri)
    except ForecasterError as error:
        return str(error)
    return ""


def client_of(uri: str) -> MlflowClient:
    """A client of a store that answers; creates a database if there is none.

    Raises UnavailableError, and StorageError if the disk is full.
    """
    database = _database(uri)
    if database:
        unlike = "unlike a server that MLFLOW_TRACKING_URI names,"
        extras.check("sqlalchemy", f"a store in a file ({without_password(uri)}), {unlike}")
    try:
        # two processes that find no database would both try to create its tables
        with silent(), locked(uri):
            if database is None:
                return _answering(uri)
            with warnings.catch_warnings():  # of all threads
                warnings.simplefilter("ignore", DeprecationWarning)  # MLflow's use of SQLAlchemy
                _try(database)
                return _answering(absolute(uri))
    except Exception as error:
        why = reason(error)
        full = "disk is full" in why  # SQLite's words
        match = re.search(r"found version (\w+)", why)
        if match and not any(MIGRATIONS.glob(f"{match[1]}_*.py")):  # MLflow calls it out of date
            why = "a newer MLflow wrote it than the one installed; upgrade mlflow to read it"
        raise (StorageError if full else UnavailableError)(
            f"MLflow cannot use {without_password(uri)}: {why}. MLFLOW_TRACKING_URI or track.uri "
            f"may name another store; without them it is {TRACKING}."
        ) from error


def _answering(uri: str) -> MlflowClient:
    client = MlflowClient(uri)
    client.search_experiments(max_results=1)
    client.search_registered_models(max_results=1)
    return client


def _try(database: Path) -> None:
    """Raise at once the error that MLflow would raise about a file after minutes of retries.

    A missing database is created under another name and then renamed: MLflow creates its tables in
    some fifty steps, and could never use a file interrupted between two of them.
    """
    with closing(sqlite3.connect(database)) as connection:  # creates an empty file if there is none
        connection.execute("PRAGMA schema_version").fetchone()
    if database.stat().st_size:
        return
    beside = database.with_name(f".{database.name}.new")
    for suffix in ("", "-journal"):
        beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    before = os.environ.get(POOL)
    os.environ[POOL] = "NullPool"  # keeps no connection: Windows renames no open file
    try:
        _answering(f"sqlite:///{beside}")
    finally:
        del os.environ[POOL]
        if before is not None:
            os.environ[POOL] = before
    beside.replace(database)


def _database(uri: str) -> Path | None:
    _, prefix, path = uri.partition("sqlite:///")
    return Path(path.partition("?")[0]).absolute() if prefix and path else None


def is_local(uri: str) -> bool:
    return _database(uri) is not None


def absolute(uri: str) -> str:
    """`uri` with the full path of its file: MLflow keeps one store for each URI that it has seen,
    and would keep using the old file after a change of the working directory."""
    database = _database(uri)
    if database is None:
        return uri
    _, mark, options = uri.partition("?")
    return f"sqlite:///{database}{mark}{options}"


def locked(uri: str) -> AbstractContextManager[Any]:
    """Admit one process at a time if the store is a local file."""
    database = _database(uri)
    if database is None:
        return nullcontext()
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock")


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """In this block, MLflow is silent, and its errors are UnavailableError."""
    try:
        with silent():
            yield
    except MlflowException as error:
        raise UnavailableError(
            f"MLflow at {without_password(uri)} failed: {reason(error)}"
        ) from error
    except OSError as error:
        raise StorageError(
            f"MLflow at {without_password(uri)} could not read or write a file: {reason(error)}"
        ) from error


@contextmanager
def accepting(code: str) -> Iterator[None]:
    """Ignore MLflow's errors with this code."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def reason(error: BaseException) -> str:
    """The innermost cause, on one line; a failed look-up's own message is only the missing key."""
    last = error
    for cause in _causes(error):
        if isinstance(cause, LookupError):
            break
        last = cause
    return " ".join(str(last).split()).rstrip(".") or type(last).__name__


def refuses(error: BaseException) -> bool:
    """Whether the same request would fail again, since it is wrong and the store is not."""
    for cause in _causes(error):
        if isinstance(cause, UsageError | ImportError):
            return True
        if isinstance(cause, MlflowException):
            status = cause.get_http_status_code()
            return status < 500 and status not in (408, 429)
    return False


def is_away(uri: str, error: BaseException) -> bool:
    """Whether a store that failed at the start of a run may work later without changes."""
    return "database is locked" in reason(error) if is_local(uri) else not refuses(error)


def experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The id of the experiment, created if necessary; a local store's artifacts are kept beside it.

    An experiment without the view VIEW gets it.
    """
    database = _database(uri)
    if client.get_experiment_by_name(name) is None:
        location = None
        if database is not None:
            folder = re.sub(r"[^\w-]+", "-", name)
            location = (database.parent / "mlartifacts" / folder).as_uri()
        with accepting("RESOURCE_ALREADY_EXISTS"):
            client.create_experiment(name, location)
    known = client.get_experiment_by_name(name)
    if VIEW_TAG not in known.tags:
        columns = [*COLUMNS]
        state = {"selectedColumns": columns, "columnOrder": columns, "columnWidths": COLUMNS}
        view = {"name": VIEW, "createdAt": now(), "state": json.dumps(state)}
        client.set_experiment_tag(known.experiment_id, VIEW_TAG, json.dumps(view))
    return str(known.experiment_id)
