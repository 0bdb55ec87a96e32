"""A rolling upgrade: FORECASTER_OLD is a folder with the sources of the release before. Its service
and this one share an nginx, for a bundle that the old release has written. `.ci/long` runs it."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.service.containers import nginx
from tests.service.processes import free_port, running, wait_for
from tests.service.toy import NAME

OLD = Path(os.environ["FORECASTER_OLD"]).resolve()
NEW = Path(__file__).resolve().parents[2]
WRITE = "import sys, pathlib; from tests.service.toy import make_bundle, KINDS; make_bundle("
WRITE += "pathlib.Path(sys.argv[1]), **KINDS[sys.argv[2]])"


def paths(code: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{code}:{code / 'service'}"}


def ask(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    """The status and what does not differ from request to request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, found = answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            status, found = error.code, json.load(error)
    for name in ("id", "timing", "instance", "created_at"):
        found.pop(name, None)
    # the sentences may become better, and another fault be told first
    return status, "refused" if status == 422 else found


def test_old_and_new_answer_alike_behind_one_nginx(tmp_path: Path) -> None:
    for kind in ("plain", "ahead", "panel"):
        folder = tmp_path / kind.replace(" ", "")
        environment = {**os.environ, **paths(OLD)}
        command = [sys.executable, "-c", WRITE, str(folder), kind]
        subprocess.run(command, env=environment, cwd=OLD, check=True)
        with ExitStack() as stack:
            ports = []
            for code in (OLD, NEW):
                log, port = tmp_path / f"{folder.name}{len(ports)}", free_port()
                command = [sys.executable, "-m", "forecaster", "serve", "--model", str(folder)]
                process = stack.enter_context(
                    running([*command, f"--port={port}"], paths(code), code, log)
                )
                wait_for(f"http://127.0.0.1:{port}/readyz", process, log)
                ports.append(port)
            group = f"{ports[0]}; server 127.0.0.1:{ports[1]}"  # in place of one port
            both = free_port()
            stack.enter_context(nginx(both, group))  # type: ignore[arg-type]
            example = ask(ports[0], f"/models/{NAME}/example")[1]
            series = example["inputs"][0]
            bodies = [
                example, {**series, **example["parameters"]}, {"inputs": [series] * 20},
                {**example, "parameters": {"prediction_length": 2, "quantile_levels": [0.1, 0.9]}},
                {**series, "target": series["target"][:3]}, {"target": [[1, "x"]]}, {}, [1],
            ]  # fmt: skip
            for body in bodies:
                first, second = (ask(port, "/predict", body) for port in ports)
                assert first == second
                answers = [ask(both, "/predict", body) for _ in range(6)]
                assert answers == [first] * 6
            for path in ("/models", "/readyz", "/livez", f"/models/{NAME}", "/models/none"):
                assert ask(ports[0], path) == ask(ports[1], path)
            texts = Counter(len(Path(tmp_path / f"{folder.name}{i}").read_text()) for i in (0, 1))
            assert min(texts) > 1000, "both were asked"
