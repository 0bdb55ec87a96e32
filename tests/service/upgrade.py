"""A rolling upgrade: FORECASTER_OLD is a folder with the sources of the release before. Its service
and this one share an nginx, for bundles that release 0.2.0 has written. `.ci/long` runs it."""

import json
import math
import os
import sys
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.equality.cases import unpack
from tests.service.containers import nginx
from tests.service.processes import free_port, running, wait_for

OLD = Path(os.environ["FORECASTER_OLD"]).resolve()
NEW = Path(__file__).resolve().parents[2]


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


def alike(a: Any, b: Any) -> bool:
    """Whether two answers are equal but for the last digits, which the size of a batch moves."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return math.isclose(a, b, rel_tol=1e-5) if isinstance(a, float) else bool(a == b)


def test_old_and_new_answer_alike_behind_one_nginx(tmp_path: Path) -> None:
    for kind in ("own", "known", "panel"):
        folder = unpack(kind, tmp_path)
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
            name = ask(ports[0], "/models")[1]["models"][0]["name"]
            example = ask(ports[0], f"/models/{name}/example")[1]
            series = example["inputs"][0]
            bodies = [
                example, {**series, **example["parameters"]}, {"inputs": [series] * 20},
                {**example, "parameters": {"prediction_length": 2, "quantile_levels": [0.1, 0.9]}},
                {**series, "target": series["target"][:3]}, {"target": [[1, "x"]]}, {}, [1],
            ]  # fmt: skip
            for body in bodies:
                first, second = (ask(port, "/predict", body) for port in ports)
                assert alike(first, second)
                assert all(alike(first, ask(both, "/predict", body)) for _ in range(6))
            old, new = (ask(port, "/models")[1]["models"] for port in ports)
            for card in old:  # what a text is read with no longer needs these
                for key in ("before", "after", "footer", "thousands"):
                    del card["reading"]["text"][key]
            assert old == new
            for path in ("/readyz", "/livez", "/models/none"):
                assert ask(ports[0], path) == ask(ports[1], path)
            texts = Counter(len(Path(tmp_path / f"{folder.name}{i}").read_text()) for i in (0, 1))
            assert min(texts) > 1000, "both were asked"
