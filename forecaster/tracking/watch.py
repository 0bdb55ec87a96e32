"""Watch what names of the registry resolve to, for a service that never imports mlflow.

    python -m forecaster.tracking watch FOLDER SECONDS MODEL...

It asks every SECONDS, with 0 once, and ends with its input, as does FOLDER. found.json has for each
name its "state", as `registry.resolve` gives it, and the "folder" with its bundle; or the last
"error" with the "status" of a command that ends with it, beside what was found before.
"""

import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import uniform
from typing import Any

from forecaster.base.atomic import write
from forecaster.base.errors import ForecasterError
from forecaster.tracking.registry import download, resolve
from forecaster.tracking.store import POOL

NICE = 5
"""The niceness of a process that watches for a service, so that answers come first."""
OLD = 600.0
"""Seconds after which the bundle of an older model is deleted; until then it may be loaded."""


def watch(folder: Path, seconds: float, names: Sequence[str]) -> None:
    """The command `watch`; when its input ends, it deletes the folder and ends the process, even in
    the middle of work."""
    if sys.platform != "win32":
        os.nice(NICE)
    # so that a file that replaces the database is seen at the next question
    os.environ.setdefault(POOL, "NullPool")

    def end() -> None:
        sys.stdin.read()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    state: dict[str, dict[str, Any]] = {}
    while True:
        state = look(names, folder, state)
        write(folder / "found.json", json.dumps(state).encode())
        if seconds:
            time.sleep(seconds * uniform(0.8, 1.2))
        else:
            threading.Event().wait()  # until the input ends


def look(
    names: Sequence[str], folder: Path, known: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """What names resolve to now, given what was `known` before; new bundles are copied to folders
    in `folder`, and those that have not been in use for a while are deleted."""
    from mlflow.utils import request_utils

    # a kept connection may lead to a server that has ended
    request_utils._cached_get_request_session.cache_clear()
    state = {}
    for name in names:
        entry = _kept(name, folder)
        state[name] = {**known.get(name, {}), **entry} if "error" in entry else entry
    used = [facts["folder"] for facts in state.values() if "folder" in facts]
    for bundle in folder.glob("*/"):
        if bundle.name in used:
            os.utime(bundle)
        elif bundle.stat().st_mtime < time.time() - OLD:
            shutil.rmtree(bundle, ignore_errors=True)
    return state


def _kept(name: str, folder: Path) -> dict[str, Any]:
    """The entry of a name in found.json. Downloads its bundle if it is not there yet."""
    try:
        state = resolve(name)
        key = hashlib.sha256(json.dumps([name, state], sort_keys=True).encode()).hexdigest()[:16]
        if not (folder / key).is_dir():
            arriving = folder / f"{key}.arriving"
            shutil.rmtree(arriving, ignore_errors=True)
            state = download(name, arriving)
            arriving.rename(folder / key)
    except Exception as error:
        status = error.exit_code if isinstance(error, ForecasterError) else 70
        return {"error": " ".join(str(error).split()) or repr(error), "status": status}
    return {"state": state, "folder": key}
