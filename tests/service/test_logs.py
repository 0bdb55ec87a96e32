import gc
import json
import logging
import re
import sys
import threading
import warnings

import pytest

from forecaster_service.logs import logger, owning_stderr, say
from tests.service.toy import NAME, start


def test_one_json_line_for_a_request_and_none_for_probes(folder, flat, capsys):
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
    assert first["queue_ms"] >= 0
    assert {**first, "ms": 0, "queue_ms": 0, "timestamp": ""} == {
        "event": "request", "level": "info", "method": "POST", "path": "/predict",
        "route": "/predict", "client": "testclient", "model": f"{NAME} {digest}", "status": 200,
        "ms": 0, "queue_ms": 0, "batch": 1, "timestamp": "", "request_id": "id-1",
    }  # fmt: skip
    assert (second["status"], second["route"]) == (404, "other")
    assert len(second["path"]) == 200
    assert "secret" not in captured.err


def cause_lines():
    """Other libraries log something, and raise exceptions that nobody catches."""

    class Odd:
        def __del__(self):
            raise ValueError("in the end")

    gc.collect()  # what other tests left
    with owning_stderr():
        logging.getLogger("uvicorn.error").warning("of %s", "others")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        Odd()
        gc.collect()
        say("serving")
        try:
            raise KeyError("ours")
        except KeyError:
            logger().exception("failed", number=7)


@pytest.mark.filterwarnings("default")
def test_all_lines_are_json(capsys):
    before = threading.excepthook, sys.unraisablehook, [*logging.getLogger().handlers]
    cause_lines()
    assert (threading.excepthook, sys.unraisablehook, [*logging.getLogger().handlers]) == before
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    levels = [line["level"] for line in lines]
    assert levels == ["warning", "warning", "error", "error", "info", "error"]
    others, warned, thread, deleted, serving, failed = lines
    assert (others["event"], others["logger"]) == ("of others", "uvicorn.error")
    assert "DeprecationWarning: old" in warned["event"]
    for line, words in ((thread, "ZeroDivisionError"), (deleted, "in the end"), (failed, "ours")):
        assert "Traceback" in line["exception"]
        assert words in line["exception"]
    assert (serving["event"], failed["number"]) == ("serving", 7)


@pytest.mark.filterwarnings("default")
def test_on_a_terminal_they_are_plain(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cause_lines()
    told = capsys.readouterr().err
    assert not re.search("[{\x1b]", told)
    assert "\nserving\n" in told
    assert told.count("Traceback") == 3
    assert "number=7" in told
