"""Forecast many files: one output file for each input file, either complete or absent.

Written forecasts are kept: the same request continues where it stopped, and forecasts a file again
only if that file has changed. Memory is bounded by the largest file and the series ids.
"""

import glob
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.base.atomic import storing
from forecaster.base.errors import DataError, ForecasterError, UnavailableError, UsageError
from forecaster.base.installation import TABLES
from forecaster.base.progress import Bar, Say
from forecaster.base.workers import FailedError
from forecaster.config.run_config import differences
from forecaster.datasets.dataset import MARK

if TYPE_CHECKING:
    import pandas as pd

    from forecaster.forecast.bundle import Bundle
    from forecaster.forecast.predictor import Predictor

LOG = "forecasts.jsonl"
"""A file in the output folder: the request, then a line for each file that was written."""

Write = Callable[["pd.DataFrame", Path], None]


File = tuple[str, Path]
"""The name of a file of forecasts, and the file of their histories."""


@dataclass(frozen=True)
class Draft:
    """The outcome for one file: a temporary file beside the target, or the reason in `refused`.

    `rows` is the number of rows written, `series` their series ids; `sentences` are about the file.
    """

    rows: int = 0
    series: Sequence[str] = ()
    sentences: Sequence[str] = ()
    refused: str = ""


Drafts = Callable[[Sequence[File]], Iterable[tuple[File, Draft | ForecasterError | FailedError]]]
"""Applies `Work.draft` to some files, in any order, in this process or in others."""


@dataclass(frozen=True)
class Work:
    """How any process forecasts files: everything except the files.

    `output` is the output folder, and relative paths start at `here`; `options` go to
    `Predictor.predict`. A frame has id columns, then the column `time`, then values; `write` saves
    it in the format that the file's suffix names. Other processes build the `bundle` on `device`.
    """

    write: Write
    output: Path
    time: str
    options: Mapping[str, Any] = field(default_factory=dict)
    here: Path = Path()
    bundle: "Bundle | None" = None
    device: str = "auto"

    def draft(self, predict: Callable[..., "pd.DataFrame"], part: File) -> Draft:
        """Forecast a file with a model's method `predict`, and write to a file beside the target.

        Raises StorageError if writing fails.
        """
        (name, source), sentences = part, list[str]()

        def say(text: str) -> None:
            sentences.append(str(text))  # a plain string can be sent to another process

        try:
            frame = predict(self.here / source, where=str(source), say=say, **self.options)
        except (DataError, UsageError) as error:
            return Draft(sentences=sentences, refused=_named(source, error))
        file = _beside(self.here / self.output / name)
        with storing(f"{file} could not be written", "."):
            file.parent.mkdir(parents=True, exist_ok=True)
            self.write(frame, file)
        return Draft(len(frame), _series(frame, self.time), sentences)


def draft_apart(work: Work, part: File) -> Draft | ForecasterError:
    """Run `Work.draft` in a worker process; return errors instead of raising them."""
    from forecaster.forecast import golden
    from forecaster.forecast.predictor import Predictor

    bundle = work.bundle
    assert bundle is not None
    try:
        if bundle.digest not in _models:
            forecaster = Predictor(bundle, work.device)
            golden.check(forecaster)
            _models[bundle.digest] = forecaster
        return work.draft(_models[bundle.digest].predict, part)
    except ForecasterError as error:
        return error


_models: dict[str, "Predictor"] = {}
"""The models that this process has built, by the digest of their bundle."""


def parts(pattern: str, output: Path) -> list[File]:
    """The files in a folder or matching a pattern, sorted by name.

    Files in the folder `output` are earlier forecasts and are left out.
    Raises UnavailableError if there are none, UsageError if two would be written to one name.
    """
    root = Path(pattern)
    every = str(root / "**" / "*") if root.is_dir() else pattern
    if not root.is_dir():  # the folders of the pattern before its first wildcard
        root = Path(*takewhile(lambda folder: not glob.has_magic(folder), root.parts[:-1]))
    files: dict[str, Path] = {}
    for file in sorted(map(Path, glob.glob(every, recursive=True))):
        ours = output.resolve() in file.resolve().parents
        if ours or not file.is_file() or not file.name.lower().endswith(TABLES):
            continue
        name = _name(file.relative_to(root))
        if name in files:
            raise UsageError(
                f"the forecasts of {files[name]} and of {file} would both be written to "
                f"{name}: rename one of them"
            )
        files[name] = file
    if not files:
        raise UnavailableError(f"{pattern} matches no data file ({', '.join(TABLES)})")
    return list(files.items())


def _name(file: Path) -> str:
    """The name of the output: that of the input, with Parquet for Parquet, else CSV."""
    ending = next(
        suffix
        for suffix in sorted(TABLES, key=len, reverse=True)
        if file.name.lower().endswith(suffix)
    )
    plain = ending.startswith((".csv", ".tsv"))
    return str(file)[: -len(ending)] + (".csv" if plain else ".parquet")


def forecast_all(
    drafts: Drafts,
    files: Sequence[File],
    output: Path,
    time: str,
    request: Mapping[str, Any],
    say: Say = lambda _: None,
) -> dict[str, int]:
    """Write the forecasts of each file into the folder `output`. Returns how many files were
    written now, how many were kept, and how many rows were written now.

    `drafts` makes the missing ones; only this process moves drafts to their targets, after checking
    that no other file has one of their series. `request` holds all that decides the forecasts
    except the files. A file that cannot be forecast is reported and the others are forecast; at the
    end, DataError gives their number. Raises UsageError if the folder holds the forecasts of
    another request, StorageError if nothing can be written.
    """
    earlier = _open(output, request)
    owners: dict[str, str] = {}
    printed: set[str] = set()
    failed: list[str] = []
    missing: list[File] = []
    counts = {"written": 0, "kept": 0, "rows": 0}
    facts = {name: _facts(source) for name, source in files}

    def refuse(name: str, why: str) -> None:
        failed.append(name)
        say(why)
        bar.advance(name, 1)

    with Bar("forecasting", len(files)) as bar:
        for name, source in files:
            line = earlier.get(name, {})
            if not facts[name].items() <= line.items() or not (output / name).is_file():
                missing.append((name, source))
            elif shared := _claim(line["series"], name, owners):
                refuse(name, f"{source}: {shared}")
            else:
                counts["kept"] += 1
                bar.advance(name, 1)
        for (name, source), draft in drafts(missing):
            if isinstance(draft, ForecasterError):
                raise draft
            if isinstance(draft, FailedError):
                refuse(name, f"{source}: its process {draft}")
                continue
            for text in draft.sentences:
                if text not in printed:  # sentences about the model appear once
                    printed.add(text)
                    say(f"{source}: {text}")
            if draft.refused:
                refuse(name, draft.refused)
                continue
            target = output / name
            if shared := _claim(draft.series, name, owners):
                _beside(target).unlink(missing_ok=True)
                refuse(name, f"{source}: {shared}")
                continue
            with storing(
                f"{target} could not be written",
                ". If other machines forecast, the folder must be the same one on all of them.",
            ):
                _beside(target).replace(target)
            _append(output / LOG, {"file": name, **facts[name], "series": draft.series})
            counts["written"] += 1
            counts["rows"] += draft.rows
            bar.advance(name, 1)
    if failed:
        raise DataError(
            f"{len(failed)} of {len(files)} files could not be forecast, the first is "
            f"{failed[0]}; the others are in {output}. Correct the files and run the same command "
            "again: finished forecasts are kept."
        )
    return counts


def _facts(source: Path) -> dict[str, Any]:
    """The facts that show whether a file has changed since it was forecast."""
    known = source.stat()
    return {"size": known.st_size, "changed": known.st_mtime_ns}


def _named(file: Path, error: ForecasterError) -> str:
    """The message of an error, with the name of the file."""
    text = str(error)
    return text if str(file) in text else f"{file}: {text}"


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}")


def _series(frame: "pd.DataFrame", time: str) -> list[str]:
    """The series ids of a frame; empty for one series without any."""
    ids = list(frame.columns[: list(frame.columns).index(time)])
    unique = frame[ids].drop_duplicates().itertuples(index=False, name=None)
    return [MARK.join(map(str, key)) for key in unique if key]


def _claim(series: Sequence[str], name: str, owners: dict[str, str]) -> str:
    """Record which file has these series; return what is wrong if another file has one of them."""
    for key in series:
        other = owners.setdefault(key, name)
        if other != name:
            return (
                f"series '{key}' is in two files, whose forecasts are {other} and "
                f"{name}: put all rows of a series into one file"
            )
    return ""


def _open(output: Path, request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The lines of the log about forecasts in the folder, by the name of the output.

    Creates the folder if there is none.
    """
    with storing(f"{output} cannot be used as a folder"):
        output.mkdir(parents=True, exist_ok=True)
        log = output / LOG
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    documents: list[dict[str, Any]] = []
    for line in lines:
        with suppress(ValueError):  # it is empty, or the process was killed while it wrote it
            documents.append(json.loads(line))
    if not documents:
        _append(log, dict(request))
        return {}
    if different := differences(documents[0], request):
        raise UsageError(
            f"{output} holds forecasts of another request: {'; '.join(different)}. Choose another "
            "--output, or remove the folder."
        )
    return {line["file"]: line for line in documents[1:] if "series" in line}


def _append(log: Path, line: Mapping[str, Any]) -> None:
    """Append a line; it begins with the line break, as the last one may have been cut off."""
    with storing(f"{log} could not be written", "."), log.open("a", encoding="utf-8") as file:
        file.write(f"\n{json.dumps(line)}")
