import hashlib
import json
import os
import re
import socket

import pytest

from forecaster.base.installation import CHECKOUT as ROOT
from forecaster_service.logs import LINES
from forecaster_service.settings import Settings
from tests.service.toy import Registry

LINES.at_once = True  # so that each line is in the output of its test


@pytest.fixture(autouse=True)
def served(monkeypatch):
    """What each way to serve would have been called with."""
    calls = []
    monkeypatch.setenv("FORECASTER_MODEL", "")
    monkeypatch.setenv("FORECASTER_DEVICE", "auto")
    monkeypatch.setattr("uvicorn.run", lambda app, **how: calls.append((app, how)))
    for other in ("replicas.serve", "workers.run"):
        monkeypatch.setattr(f"forecaster_service.{other}", lambda *how: calls.append(how))
    return calls


@pytest.fixture(autouse=True)
def registry(monkeypatch, folder):
    """A registry that knows the models `m`, `a` and `b/7`."""
    registry = Registry()
    for name in ("m", "a", "b/7"):
        registry.put(name, folder, name=name)
    monkeypatch.setattr("forecaster_service.registry.Child", lambda settings: registry)
    return registry


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def serve(run, port):
    """Run `forecaster serve`; returns its exit status and stderr."""

    def call(*words):
        status, out, err = run("serve", "--port", port, *words)
        assert out == ""
        return status, err

    return call


def test_the_models_that_are_named(served, port, serve, registry, monkeypatch):
    status, err = serve("--model", "m", "--device", "cpu")
    told = f"starting the service of m on http://127.0.0.1:{port} (docs at /docs)"
    assert (status, json.loads(err)["event"]) == (0, told)
    ((app, how),) = served
    assert app().state.registry is registry
    expected = {"host": "127.0.0.1", "port": port, "factory": True, "proxy_headers": False}
    expected |= {"http": "forecaster_service.protocol:Protocol", "timeout_graceful_shutdown": 60}
    assert expected.items() <= how.items()
    assert [os.environ[f"FORECASTER_{name}"] for name in ("MODEL", "DEVICE")] == ["m", "cpu"]
    assert serve("--model", "a", "--model", "b/7")[0] == 0
    assert os.environ["FORECASTER_MODEL"] == "a,b/7"
    monkeypatch.setenv("FORECASTER_MODEL", "from-outside")
    assert "starting the service of from-outside" in serve()[1]
    served.clear()
    for name, words in {"a, nope": "no such model", ".": "folder . holds no bundle"}.items():
        status, err = serve("--model", name)
        assert (status, served) == (69, [])
        assert words in err


def test_a_model_that_is_looked_for_again(served, serve, registry, monkeypatch, folder):
    """While the registry cannot answer, and where the environment names the model."""
    registry.away = True
    assert serve("--model", folder)[0] == 0
    status, err = serve("--model", "nope")
    assert (status, "nobody answers" in err) == (69, True), "a file that is not there is not away"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    status, err = serve("--model", "nope")
    assert (status, "nobody answers. The service keeps looking for nope" in err) == (0, True)
    monkeypatch.setenv("FORECASTER_MODEL", "nope")
    status, err = serve()
    assert (status, len(served), "warning" in err) == (0, 3, False)


def test_several_processes_or_replicas(served, port, serve, registry):
    status, err = serve("--model", "m", "--workers", "3")
    assert (status, served.pop()) == (0, ("127.0.0.1", port, 3, registry))
    assert f"http://127.0.0.1:{port} with 3 workers" in err
    assert serve("--model", "m", "--workers", "2", "--ray", "local")[0] == 2
    assert served == []
    status, err = serve("--model", "m", "--ray", "local")
    assert (status, served) == (0, [("local", "127.0.0.1", port, 2, 0.0)]), err
    assert registry.closed, "each replica has its own"


def test_a_service_for_everyone_is_warned_of(serve, monkeypatch):
    key = "a:" + 64 * "0"
    for host, keys, warned in (("0.0.0.0", "", 1), ("0.0.0.0", key, 0), ("localhost", "", 0)):
        monkeypatch.setenv("FORECASTER_API_KEYS", keys)
        err = serve("--model", "m", "--host", host)[1]
        assert ("warning: anyone who can reach 0.0.0.0 can use this service" in err) == warned


def test_a_new_key_fits_its_setting(run, served, monkeypatch):
    status, out, err = run("serve", "--new-key", "anna")
    key, setting = (line.split()[1] for line in out.splitlines())
    monkeypatch.setenv(*setting.split("="))
    assert (status, served, len(key)) == (0, [], 43)
    assert Settings().api_keys == (f"anna:{hashlib.sha256(key.encode()).hexdigest()}",)
    assert key not in err + run("serve", "--new-key", "anna")[1]


def test_the_documents_that_help_names_tell_every_setting(run):
    assert "docs/operate.md#settings" in run("serve", "--help")[1]
    told = (ROOT / "docs" / "operate.md").read_text().partition("\n## Settings\n")[2]
    rows = re.findall(r"^\| (`[A-Z_`, ]+) \|", told.partition("\n## ")[0], re.M)
    names = [name for row in rows for name in re.findall(r"[A-Z_]{2,}", row)][1:]
    assert {name.lower() for name in names} == set(Settings.model_fields)


def test_without_a_name_what_was_trained_last_is_served(serve, registry, folder):
    status, err = serve()
    assert (status, "no such model" in err) == (69, True), "it does not wait for one"
    registry.put("newest", folder, name="toy")
    status, err = serve()
    assert (status, "starting the service of newest" in err) == (0, True)


def test_what_prevents_a_service_is_told_before_it_starts(serve, port, served, monkeypatch):
    with socket.create_server(("127.0.0.1", port)):
        status, err = serve("--model", "m")
    assert status == 69
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in err
    monkeypatch.setenv("FORECASTER_MAX_QUEUE", "x")
    status, err = serve("--model", "m")
    assert (status, served) == (78, [])
    assert err.startswith("error: $FORECASTER_MAX_QUEUE: ")
