"""What MLflow is to have of a run: what its folder has, and what is made of its bundle.

Nothing here says what MLflow has already: `publish` asks MLflow. This module does not import it.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from forecaster.record import challenge
from forecaster.record.folder import Point, RunFacts, RunFolder, now

DIGITS = 6
"""The significant digits of final figures, as many as a column shows."""
LONGEST = 4500
"""The most characters of a description; that of a version of a model may have 5000."""
OWN_ID = "%run%"
"""A placeholder in descriptions for MLflow's id of the run, which is unknown until it is told."""
DESCRIPTION, TABLES = "mlflow.note.content", "mlflow.loggedArtifacts"
"""The tags that MLflow's pages read."""


@dataclass(frozen=True)
class NewVersion:
    """The version of a name that a model is to become.

    `tags` are those of `challenge.tags_of`, and `about` describes a new name in Markdown.
    """

    name: str
    tags: dict[str, str]
    about: str = ""


class Notes:
    """What MLflow is to have of one run. What a folder keeps, another process can tell as well."""

    def __init__(self, run: RunFolder) -> None:
        self.held = run
        self.tags = {**run.about.tags}
        self.figures: Point | None = None
        """Its final ones, and those of its model, if it has one."""
        config = run.about.config
        self.texts = {"config.yaml": yaml.safe_dump(config, sort_keys=False)} if config else {}
        self.bundle: Path | None = None
        self.version: NewVersion | None = None
        self.children: list[Notes] = []
        """Runs below this one that MLflow does not have yet."""

    def wake(self) -> None:
        """There is something new."""

    def params(self, values: Mapping[str, str]) -> None:
        """Log parameters; names become valid for MLflow, values are cut at 6000 characters."""
        self.held.note(params={**self.held.about.params, **fit(values, 6000)})
        self.wake()

    def report(self, figures: Mapping[str, float], epoch: int) -> None:
        """Log figures of an epoch; if a metric has several values at a step, the first counts."""
        self.held.add(_valid(figures), epoch)
        self.wake()

    def metrics(self, values: Mapping[str, float]) -> None:
        """Log final figures, rounded to DIGITS; those of a run with a model are also the model's,
        if they come after it."""
        rounded = {key: _rounded(value) for key, value in _valid(values).items()}
        at, step, before = self.figures or (now(), 0, {})
        self.figures = at, step, {**before, **rounded}
        self.wake()

    def text(self, name: str, text: str) -> None:
        self.texts = {**self.texts, name: clean(text)}
        self.wake()

    def tables(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Save tables by name, each a list of rows, as files that MLflow's page shows as tables."""
        for name, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            data = [[row.get(key) for key in columns] for row in rows]
            self.text(f"tables/{name}.json", json.dumps({"columns": columns, "data": data}))
        shown = [{"path": f"tables/{name}.json", "type": "table"} for name in tables]
        self.tags = {**self.tags, TABLES: json.dumps(shown)}
        self.wake()

    def describe(self, first: str, rest: str = "", picture: str = "") -> None:
        """Set the description of the run and of its model's version: two Markdown texts, and
        between them the picture of that name in plots/.

        If `rest` is too long, only as many whole lines as MLflow takes are kept.
        """
        if picture:
            first += f"\n\n![forecast](get-artifact?path=plots%2F{picture}&run_uuid={OWN_ID})"
        text = clean(f"{first}\n\n{rest}".strip())
        if len(text) > LONGEST:
            text = f"{text[:LONGEST].rpartition(chr(10))[0]}\n\n…"
        self.tags = {**self.tags, DESCRIPTION: text}
        self.wake()

    def log_model(self, folder: Path) -> None:
        """Log the bundle of a folder as a model that `mlflow models serve` can serve, with the
        run's name and pictures."""
        self.bundle = folder
        self.wake()

    def register(
        self, name: str, errors: Sequence[float], task: Mapping[str, str], about: str = ""
    ) -> None:
        """Register the model as a version of `name`, which `about` describes in Markdown.

        The rule of `challenge` decides whether it becomes the champion: `errors` are its
        `stretches`, and `task` makes them comparable.
        """
        self.version = NewVersion(name, challenge.tags_of(errors, task), clean(about))
        self.wake()

    def child(
        self,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
        figures: Mapping[str, float],
        texts: Mapping[str, str],
    ) -> str:
        """Log a run below this one that has ended; returns our id of it, which follows from its
        name: MLflow has it once, however often it is told."""
        key = hashlib.sha256(f"{self.held.about.key}/{name}".encode()).hexdigest()[:32]
        store = memory(name, key, tags=fit(tags, 8000), experiment=self.held.about.experiment)
        notes = Notes(store)
        notes.params(params)
        notes.metrics(figures)
        for file, text in texts.items():
            notes.text(file, text)
        store.note(status="FINISHED", ended=now())
        self.children.append(notes)
        self.wake()
        return key


def memory(name: str, key: str | None = None, **facts: Any) -> RunFolder:
    key = key or uuid4().hex
    return RunFolder(RunFacts(key=key, run_id=key, name=name, begun=now(), **facts))


def fit(values: Mapping[str, str], longest: int) -> dict[str, str]:
    """The values with names that MLflow takes, cut at the `longest`."""
    return {_key(key): clean(value)[:longest] for key, value in values.items()}


def clean(text: str) -> str:
    """The text without what UTF-8 cannot hold, as names of files may."""
    return text.encode(errors="replace").decode()


def _rounded(value: float) -> float:
    """The value with DIGITS significant digits; a whole number keeps all of its own."""
    return value if value.is_integer() else float(f"{value:.{DIGITS}g}")


def _valid(figures: Mapping[str, float]) -> dict[str, float]:
    return {_key(key): float(value) for key, value in figures.items()}


def _key(name: str) -> str:
    """The name with characters replaced that MLflow refuses in keys, such as brackets of units."""
    return re.sub(r"[^\w.\- /]", "_", name)[:250]
