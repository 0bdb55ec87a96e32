"""Runs in `runs`, found by their names or by what they train (`record.folder`)."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.base import installation
from forecaster.base.errors import DataError, ForecasterError, StorageError, UsageError
from forecaster.base.installation import is_bundle
from forecaster.forecast.bundle import Bundle, load, versions
from forecaster.record import folder as runs
from forecaster.record.folder import ABOUT, RUNS, RunFacts, RunFolder

if TYPE_CHECKING:
    from forecaster.config.run_config import Loaded, RunConfig


def begun_with(which: str) -> "Loaded":
    """The configuration with which a run was begun."""
    from forecaster.config.run_config import Loaded, load_dict

    folder = find(which)
    config = load_dict(runs.read(folder).config, str(folder / ABOUT))
    return Loaded(config, {"data.name": f"--resume {which}"})


def take_up(which: str, config: "RunConfig", digest: str) -> RunFolder:
    """Take over the run that `--resume WHICH` names.

    Raises UsageError if it is not unfinished, is in progress in another process or has another
    configuration, DataError if it has other data.
    """
    folder = find(which)
    about = runs.read(folder)
    if found := differing(about.config, config):
        raise UsageError(
            f"{folder} was begun with another configuration: {'; '.join(found)}. Use "
            f"--resume {which} without other options to continue as it was begun."
        )
    if about.data_digest != digest:
        raise DataError(
            f"{folder} was begun with data of digest {about.data_digest}, but these have "
            f"{digest}: a training can only continue with the same data"
        )
    own = runs.take(folder)
    if own is None:
        raise UsageError(f"{folder} is in progress in another process")
    return own


def newest(config: "RunConfig", digest: str) -> RunFolder | None:
    """The newest run with this configuration and these data that no process is training."""
    for folder, about in _all(finished=False):
        if _alike(about, config, digest) and (own := runs.take(folder)) is not None:
            return own
    return None


def finished(
    config: "RunConfig", digest: str, cutoffs: int | None = None
) -> tuple[Path, Bundle] | None:
    """The newest finished run with this configuration, data, number of cut-offs and code, if any.

    None if the code has uncommitted changes: nobody knows whether it had the same ones then.
    """
    commit = installation.commit()
    if commit.endswith(installation.DIRTY):
        return None
    code = {"versions": versions(), "commit": commit}
    for folder, about in _all(finished=True):
        if _alike(about, config, digest) and about.cutoffs == cutoffs:
            with suppress(ForecasterError):  # a damaged bundle cannot be shown
                bundle = load(folder)
                if code.items() <= bundle.about.items():
                    return folder, bundle
    return None


def find(which: str) -> Path:
    """The folder of an unfinished run by its name or path. Raises UsageError."""
    plain = Path(which)
    for folder in (plain, RUNS / plain.name):
        if is_bundle(folder):
            raise UsageError(
                f"{folder} is finished; there is nothing to resume: "
                f"forecaster predict --model {folder}"
            )
        if (folder / ABOUT).is_file() and runs.read(folder).resumable:
            return folder
    known = ", ".join(sorted(folder.name for folder, _ in _all(finished=False)))
    raise UsageError(
        f"--resume {which}: there is no such run in {RUNS.resolve()}; unfinished: {known or 'none'}"
    )


def differing(before: Mapping[str, Any], config: "RunConfig") -> list[str]:
    """The values on which two configurations differ, among those that decide the result."""
    from forecaster.config.run_config import decisive, differences

    return differences(decisive(before), decisive(config.to_dict()))


def _alike(about: RunFacts, config: "RunConfig", digest: str) -> bool:
    return about.data_digest == digest and not differing(about.config, config)


def _all(finished: bool) -> list[tuple[Path, RunFacts]]:
    """Every finished run that can be read, or every unfinished one that may go on, the newest
    first."""
    found = []
    for folder in reversed(runs.known()):
        with suppress(StorageError):
            about = runs.read(folder)
            if is_bundle(folder) is finished and (finished or about.resumable):
                found.append((folder, about))
    return found
