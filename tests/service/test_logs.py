import json
from pathlib import Path
from typing import Any

import pytest

from tests.service.toy import NAME, start


def test_one_json_line_for_a_request_and_none_for_probes(
    folder: Path, flat: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with start(model=str(folder)) as client:
        capsys.readouterr()
        client.get("/livez")
        answer = client.post(
            "/predict?token=secret", json=flat, headers={"X-Request-ID": "id-1", "Cookie": "secret"}
        )
        client.get("/" + "x" * 1000)
    digest = answer.json()["model"]["digest"]
    captured = capsys.readouterr()
    first, second = (json.loads(line) for line in captured.err.splitlines())
    assert captured.out == ""
    assert first["ms"] > 0
    assert {**first, "ms": 0, "timestamp": ""} == {
        "event": "request",
        "level": "info",
        "method": "POST",
        "path": "/predict",
        "route": "/predict",
        "client": "testclient",
        "model": f"{NAME} {digest}",
        "status": 200,
        "ms": 0,
        "timestamp": "",
        "request_id": "id-1",
    }
    assert (second["status"], second["route"]) == (404, "other")
    assert len(second["path"]) == 200
    assert "secret" not in captured.err
