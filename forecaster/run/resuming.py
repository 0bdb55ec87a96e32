"""Unfinished runs: the folders `runs/NAME.unfinished`, beside their future bundles.

    run.json            what is trained: configuration, digest of the data, id in the tracker
    epochs.jsonl        the figures of each epoch, for the tracker
    fit.safetensors     checkpoint of its training (forecaster/train/checkpoint.py)
    lock                held by the process that trains

The folder is removed when the run has ended with a complete bundle in `runs/NAME`.
"""

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from forecaster.base import atomic
from forecaster.base.errors import DataError, StorageError, UsageError
from forecaster.base.installation import is_bundle

if TYPE_CHECKING:
    from forecaster.config.run_config import Loaded, RunConfig

RUNS = Path("runs")
SUFFIX = ".unfinished"
FACTS, EPOCHS = "run.json", "epochs.jsonl"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run in progress in this process, which holds its lock."""

    folder: Path
    facts: dict[str, Any]
    lock: FileLock

    @property
    def name(self) -> str:
        return self.folder.name.removesuffix(SUFFIX)

    @property
    def bundle(self) -> Path:
        """The path of its future bundle."""
        return self.folder.with_name(self.name)

    def note(self, **facts: Any) -> None:
        """Add or replace facts."""
        self.facts.update(facts)
        _write(self.folder, self.facts)

    def add(self, figures: Mapping[str, float], epoch: int) -> None:
        """Keep the figures of an epoch. Raises StorageError."""
        try:
            with (self.folder / EPOCHS).open("a") as file:  # a line that was cut ends here
                file.write(f"\n{json.dumps([figures, epoch])}")
        except OSError as error:
            raise StorageError(f"{self.folder / EPOCHS} cannot be written: {error}") from error

    def epochs(self) -> list[tuple[dict[str, float], int]]:
        """The figures of the epochs before, and their numbers."""
        found = []
        with suppress(FileNotFoundError):
            for line in (self.folder / EPOCHS).read_text().splitlines():
                with suppress(ValueError):
                    figures, epoch = json.loads(line)
                    found.append((figures, epoch))
        return found

    def remove(self) -> None:
        """Remove the folder: the run has ended and needs it no longer."""
        self.lock.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Unfinished":
        return self

    def __exit__(self, *exception: object) -> None:
        self.lock.release()


def make_folder(folder: Path = RUNS) -> None:
    """Create the folder of the runs, or one below it, if it is missing. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create {folder.resolve()} for the run: {error}") from error


def begin(name: str, config: "RunConfig", digest: str, **facts: Any) -> Unfinished:
    """Record in `runs` that a run has begun."""
    folder = RUNS / f"{name}{SUFFIX}"
    make_folder(folder)
    held = hold(folder / "lock")
    assert held is not None, "its name is new"
    about = {
        "format": FORMAT,
        "begun": time.time(),
        "config": config.to_dict(),
        "data_digest": digest,
        **facts,
    }
    _write(folder, about)
    return Unfinished(folder, about, held)


def begun_with(which: str) -> "Loaded":
    """The configuration with which a run was begun."""
    from forecaster.config.run_config import Loaded, load_dict

    folder = find(which)
    config = load_dict(_read(folder)["config"], str(folder / FACTS))
    return Loaded(config, {"data.name": f"--resume {which}"})


def take_up(which: str, config: "RunConfig", digest: str) -> Unfinished:
    """Take over the run that `--resume WHICH` names.

    Raises UsageError if it is not unfinished, is in progress in another process or has another
    configuration, DataError if it has other data.
    """
    folder = find(which)
    facts = _read(folder)
    if found := differing(facts["config"], config):
        raise UsageError(
            f"{folder} was begun with another configuration: {'; '.join(found)}. Use "
            f"--resume {which} without other options to continue as it was begun."
        )
    if facts["data_digest"] != digest:
        raise DataError(
            f"{folder} was begun with data of digest {facts['data_digest']}, but these have "
            f"{digest}: a training can only continue with the same data"
        )
    held = hold(folder / "lock")
    if held is None:
        raise UsageError(f"{folder} is in progress in another process")
    return Unfinished(folder, facts, held)


def newest(config: "RunConfig", digest: str) -> Unfinished | None:
    """The newest run with this configuration and these data that no process is training."""
    for folder, facts in _all():
        same = facts["data_digest"] == digest and not differing(facts["config"], config)
        if same and (held := hold(folder / "lock")) is not None:
            return Unfinished(folder, facts, held)
    return None


def folder_of(bundle: Path) -> Path:
    """The folder of a run until its bundle is complete."""
    return bundle.with_name(f"{bundle.name}{SUFFIX}")


def find(which: str) -> Path:
    """The folder of an unfinished run by its name or path. Raises UsageError."""
    plain = which.rstrip("/").removesuffix(SUFFIX)
    for base in (Path(plain), RUNS / plain):
        if (folder_of(base) / FACTS).is_file():
            return folder_of(base)
        if is_bundle(base):
            raise UsageError(
                f"{base} is finished; there is nothing to resume: forecaster predict --model {base}"
            )
    known = ", ".join(sorted(folder.name.removesuffix(SUFFIX) for folder, _ in _all()))
    raise UsageError(
        f"--resume {which}: there is no such run in {RUNS.resolve()}; unfinished: {known or 'none'}"
    )


def differing(before: Mapping[str, Any], config: "RunConfig") -> list[str]:
    """The values on which two configurations differ, among those that decide the result."""
    from forecaster.config.run_config import decisive, differences

    return differences(decisive(before), decisive(config.to_dict()))


def _all() -> list[tuple[Path, dict[str, Any]]]:
    """Every unfinished run that can be read, the newest first."""
    found = []
    for folder in RUNS.glob(f"*{SUFFIX}"):
        with suppress(StorageError, UsageError):
            found.append((folder, _read(folder)))
    return sorted(found, key=lambda each: -float(each[1]["begun"]))


def hold(file: Path) -> FileLock | None:
    """The lock of a file, held; None if another process has it."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        raise StorageError(f"{file} could not be locked: {error}") from error
    return lock


def _write(folder: Path, facts: Mapping[str, Any]) -> None:
    atomic.write(folder / FACTS, (json.dumps(facts, indent=1) + "\n").encode())


def _read(folder: Path) -> dict[str, Any]:
    file = folder / FACTS
    try:
        facts: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"{file} cannot be read: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise UsageError(f"{file} was written by another version of forecaster")
    return facts
