"""Forecasts of many files: one file out for each file in, whole or not there.

What is written stays written: the same request goes on where it stopped, and forecasts a file anew
only where that has changed. Memory is that of the largest file, and of the series ids.
"""

import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import DataError, StorageError, UnavailableError, UsageError
from forecaster.progress import Bar
from forecaster.resources import TABLES

if TYPE_CHECKING:
    import pandas as pd

LOG = "forecasts.jsonl"
"""In the folder of the output: the request, then a line for each file that is written."""

Forecast = Callable[[Path], "pd.DataFrame"]
Write = Callable[["pd.DataFrame", Path], None]


@dataclass(frozen=True)
class Part:
    """A file of histories, and the name of the one that gets their forecasts."""

    source: Path
    name: str

    def facts(self) -> dict[str, Any]:
        """What tells whether the file is still the one that was forecast."""
        known = self.source.stat()
        return {"size": known.st_size, "changed": known.st_mtime_ns}


@dataclass(frozen=True)
class Done:
    """How many files were written now, and before; and how many rows now."""

    written: int
    kept: int
    rows: int


def parts(wanted: str, output: Path) -> list[Part]:
    """The files that a folder holds or a pattern names, in the order of their names.

    What lies in the folder `output` is what was forecast before, and not among them.
    Raises UnavailableError where there are none, UsageError where two would be written to one name.
    """
    root = Path(wanted)
    pattern = str(root / "**" / "*") if root.is_dir() else wanted
    if not root.is_dir():
        root = Path(*_literal(root))
    files = sorted(Path(each) for each in glob.glob(pattern, recursive=True))
    files = [each for each in files if each.is_file() and each.name.endswith(TABLES)]
    files = [each for each in files if output.resolve() not in each.resolve().parents]
    if not files:
        raise UnavailableError(f"no file of rows ({', '.join(TABLES)}) is named by {wanted}")
    found: dict[str, Part] = {}
    for file in files:
        inside = file.relative_to(root) if file.is_relative_to(root) else Path(file.name)
        name = _name(inside)
        if name in found:
            raise UsageError(
                f"the forecasts of {found[name].source} and of {file} would both be written to "
                f"{name}: rename one of them"
            )
        found[name] = Part(file, name)
    return list(found.values())


def _literal(pattern: Path) -> Iterator[str]:
    """The folders of a pattern before the first that is not a name."""
    for each in pattern.parts[:-1]:
        if glob.has_magic(each):
            return
        yield each


def _name(file: Path) -> str:
    """That of the output: as the input, Parquet for Parquet and Arrow, else CSV."""
    ending = next(
        each for each in sorted(TABLES, key=len, reverse=True) if str(file).endswith(each)
    )
    plain = ending.startswith((".csv", ".tsv"))
    return str(file)[: -len(ending)] + (".csv" if plain else ".parquet")


def forecast_all(
    forecast: Forecast,
    write: Write,
    files: Sequence[Part],
    output: Path,
    time: str,
    request: Mapping[str, Any],
    say: Callable[[str], None] = lambda _: None,
) -> Done:
    """Write the forecasts of each file into the folder `output`.

    `forecast` gives the frame of a file: id columns, then the column `time`, then values; `write`
    keeps a frame by the ending of the name. `request` is what decides the forecasts but for the
    files. A file that cannot be forecast is told, and the others are forecast; in the end DataError
    names how many. Raises UsageError where the folder holds the forecasts of another request,
    DataError where a series id lies in two files, StorageError where nothing can be written.
    """
    done = _open(output, request)
    owners: dict[tuple[str, ...], str] = {}
    failed: list[str] = []
    kept = written = rows = 0
    with Bar("forecasting", len(files)) as bar:
        for part in files:
            target, facts = output / part.name, part.facts()
            known = done.get(part.name) == facts and target.is_file()
            try:
                frame = _read(target) if known else forecast(part.source)
                _claim(frame, time, part.name, owners)
            except DataError as error:
                failed.append(part.name)
                say(f"{part.source}: {error}")
                bar.advance(part.name, 1)
                continue
            if known:
                kept += 1
            else:
                _keep(frame, write, target)
                _append(output / LOG, {"file": part.name, **facts})
                written, rows = written + 1, rows + len(frame)
            bar.advance(part.name, 1)
    if failed:
        raise DataError(
            f"{len(failed)} of {len(files)} files could not be forecast, the first is "
            f"{failed[0]}; the others are in {output}. Mend the files and give the same command "
            "again: what is written is kept."
        )
    return Done(written, kept, rows)


def _keep(frame: "pd.DataFrame", write: Write, target: Path) -> None:
    """The file `target`, whole or as it was before. Raises StorageError."""
    temporary = target.with_name(f".{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(frame, temporary)
        temporary.replace(target)
    except OSError as error:
        raise StorageError(f"{target} could not be written: {error}") from error


def _claim(frame: "pd.DataFrame", time: str, name: str, owners: dict[tuple[str, ...], str]) -> None:
    """Note whose series these are. Raises DataError where another file has one of them."""
    ids = list(frame.columns[: list(frame.columns).index(time)])
    if not ids:
        return
    for key in frame[ids].drop_duplicates().itertuples(index=False, name=None):
        words = tuple(map(str, key))  # as a CSV gives them back
        other = owners.setdefault(words, name)
        if other != name:
            shown = ", ".join(words)
            raise DataError(
                f"series '{shown}' lies in two files, whose forecasts are {other} and {name}: all "
                "rows of a series belong into one file"
            )


def _open(output: Path, request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the folder holds, by the name of the file: the facts of its input.

    Makes the folder where there is none.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        log = output / LOG
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    except OSError as error:
        raise StorageError(f"{output} cannot be used as a folder: {error}") from error
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # the line that was being written when the process was killed
            continue
    if not found:
        _append(log, dict(request))
        return {}
    if found[0] != request:
        differing = [key for key in request if found[0].get(key) != request[key]]
        told = "; ".join(
            f"{key}: {found[0].get(key)} there, {request[key]} here" for key in differing
        )
        raise UsageError(
            f"{output} holds forecasts of another request: {told}. Give another --output, or "
            "remove the folder."
        )
    return {line["file"]: {key: line[key] for key in ("size", "changed")} for line in found[1:]}


def _append(log: Path, line: Mapping[str, Any]) -> None:
    """A line at the end, on a line of its own even after one that was cut off."""
    try:
        with log.open("a+b") as file:
            if file.tell():
                file.seek(-1, 2)
                torn = file.read(1) != b"\n"
            else:
                torn = False
            file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise StorageError(f"{log} could not be written: {error}") from error


def _read(file: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype=str)
