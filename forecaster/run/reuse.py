"""Finished runs: complete bundles in the folder `runs`."""

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.base import installation
from forecaster.base.errors import ForecasterError
from forecaster.base.installation import MANIFEST, is_bundle
from forecaster.forecast.bundle import Bundle, load, versions
from forecaster.record.folder import RUNS
from forecaster.run.resuming import differing

if TYPE_CHECKING:
    from forecaster.config.run_config import RunConfig


def newest(
    config: "RunConfig", digest: str, cutoffs: int | None = None
) -> tuple[Path, Bundle] | None:
    """The last run with this configuration, data, number of cut-offs and code, if any.

    None if the code has uncommitted changes: nobody knows whether it had the same ones then.
    """
    if installation.commit().endswith(installation.DIRTY):
        return None
    folders = [folder for folder in RUNS.glob("*") if is_bundle(folder)]
    for folder in sorted(folders, key=lambda each: (each / MANIFEST).stat().st_mtime, reverse=True):
        with suppress(ForecasterError, OSError, ValueError, LookupError, TypeError, AttributeError):
            if _alike(folder, config, digest, cutoffs):  # a damaged bundle cannot be shown
                return folder, load(folder)
    return None


def _alike(folder: Path, config: "RunConfig", digest: str, cutoffs: int | None) -> bool:
    then, about, metrics = (
        json.loads((folder / f"{name}.json").read_bytes())
        for name in ("config", "about", "metrics")
    )
    return (
        about["data_digest"] == digest
        and about["versions"] == versions()
        and about["commit"] == installation.commit()
        and (metrics.get("cutoffs") or {}).get("count") == cutoffs
        and not differing(then, config)
    )
