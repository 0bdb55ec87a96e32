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


class TestServe:
    @pytest.fixture(autouse=True)
    def served(self, monkeypatch):
        """The arguments that uvicorn would have been called with."""
        calls = []
        monkeypatch.setenv("FORECASTER_MODEL", "")
        monkeypatch.setenv("FORECASTER_DEVICE", "auto")
        monkeypatch.setattr("uvicorn.run", lambda app, **how: calls.append((app, how)))
        return calls

    @pytest.fixture(autouse=True)
    def registry(self, monkeypatch, folder):
        """A registry that knows the models `m`, `a` and `b/7`."""
        registry = Registry()
        for name in ("m", "a", "b/7"):
            registry.put(name, folder, name=name)
        monkeypatch.setattr("forecaster_service.registry.Child", lambda settings: registry)
        return registry

    @pytest.fixture
    def port(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            return free.getsockname()[1]

    def champions(self, monkeypatch, *names):
        asked = "forecaster.forecast.predictor.ask_tracker"
        monkeypatch.setattr(asked, lambda *words: "\n".join(names))

    def test_the_model_that_is_named(self, served, port, run, registry):
        status, out, err = run("serve", "--model", "m", "--port", port, "--device", "cpu")
        assert (status, out) == (0, "")
        told = f"starting the service of m on http://127.0.0.1:{port} (docs at /docs)"
        assert json.loads(err)["event"] == told
        ((app, how),) = served
        assert how["factory"]
        assert app().state.registry is registry
        assert not registry.closed
        assert (how["http"], how["ws"]) == ("forecaster_service.protocol:Protocol", "none")
        assert not how["proxy_headers"]
        assert how["timeout_graceful_shutdown"] == 60
        assert (how["host"], how["port"]) == ("127.0.0.1", port)
        assert os.environ["FORECASTER_MODEL"] == "m"
        assert os.environ["FORECASTER_DEVICE"] == "cpu"

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("nope", "no such model"),
            ("a, nope", "no such model"),
            (".", r"folder \. holds no bundle"),
        ],
    )
    def test_a_model_that_does_not_exist(self, name, words, served, port, run):
        status, _, err = run("serve", "--model", name, "--port", port)
        assert (status, served) == (69, [])
        assert re.search(words, err)
        assert "starting" not in err

    def test_a_model_that_is_looked_for_again(
        self, served, port, run, registry, monkeypatch, folder
    ):
        """While the registry cannot answer, and where the environment names the model."""
        registry.away = True
        assert run("serve", "--model", folder, "--port", port)[0] == 0
        status, _, err = run("serve", "--model", "nope", "--port", port)
        assert (status, len(served)) == (69, 1), "a file that is not there is not away"
        assert "nobody answers" in err
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        status, _, err = run("serve", "--model", "nope", "--port", port)
        assert (status, len(served)) == (0, 2)
        assert "warning: nobody answers. The service keeps looking for nope" in err
        monkeypatch.setenv("FORECASTER_MODEL", "nope")
        status, _, err = run("serve", "--port", port)
        assert (status, len(served)) == (0, 3)
        assert "warning" not in err

    def test_replicas_on_ray(self, served, port, run, registry, monkeypatch):
        monkeypatch.setattr("forecaster_service.replicas.serve", lambda *how: served.append(how))
        status, _, err = run("serve", "--model", "m", "--port", port, "--ray", "local")
        assert (status, served) == (0, [("local", "127.0.0.1", port, 2, 0.0)]), err
        assert registry.closed, "each replica has its own"
        assert run("serve", "--model", "m", "--port", port, "--gpus", "1")[0] == 2

    def test_several_processes(self, served, port, run, registry, monkeypatch):
        monkeypatch.setattr("forecaster_service.workers.run", lambda *how: served.append(how))
        status, _, err = run("serve", "--model", "m", "--port", port, "--workers", "3")
        assert (status, served) == (0, [("127.0.0.1", port, 3, registry)])
        where = f"http://127.0.0.1:{port} with 3 workers"
        told = f"starting the service of m on {where} (docs at /docs)"
        assert json.loads(err)["event"] == told
        more = ("--workers", "2", "--ray", "local")
        status, _, err = run("serve", "--model", "m", "--port", port, *more)
        assert (status, len(served)) == (2, 1)
        assert "with --ray, use --replicas" in err

    @pytest.mark.parametrize(
        ("host", "keys", "warned"),
        [("0.0.0.0", "", True), ("0.0.0.0", "a:" + 64 * "0", False), ("localhost", "", False)],
    )
    def test_a_service_for_everyone_is_warned_of(
        self, host, keys, warned, port, run, monkeypatch, served
    ):
        monkeypatch.setenv("FORECASTER_API_KEYS", keys)
        status, _, err = run("serve", "--model", "m", "--port", port, "--host", host)
        assert (status, len(served)) == (0, 1)
        assert ("warning: anyone who can reach 0.0.0.0 can use this service" in err) == warned

    def test_a_wrong_setting_is_named_before_anything_is_served(
        self, port, run, monkeypatch, served
    ):
        monkeypatch.setenv("FORECASTER_MAX_QUEUE", "x")
        status, _, err = run("serve", "--model", "m", "--port", port)
        assert (status, served) == (78, [])
        assert err.startswith("error: $FORECASTER_MAX_QUEUE: ")

    def test_a_new_key_fits_its_setting(self, run, served, monkeypatch):
        status, out, err = run("serve", "--new-key", "anna")
        key, setting = (line.split()[1] for line in out.splitlines())
        monkeypatch.setenv(*setting.split("="))
        assert (status, served, len(key)) == (0, [], 43)
        assert Settings().api_keys == (f"anna:{hashlib.sha256(key.encode()).hexdigest()}",)
        assert key not in err
        assert key not in run("serve", "--new-key", "anna")[1]
        assert run("serve", "--new-key", "a b")[0] == 2

    def test_the_documents_that_help_names_tell_every_setting(self, run):
        assert "docs/operate.md#settings" in run("serve", "--help")[1]
        told = (ROOT / "docs" / "operate.md").read_text().partition("\n## Settings\n")[2]
        rows = re.findall(r"^\| (`[A-Z_`, ]+) \|", told.partition("\n## ")[0], re.M)
        names = [name for row in rows for name in re.findall(r"[A-Z_]{2,}", row)][1:]
        assert {name.lower() for name in names} == set(Settings.model_fields)

    def test_several_models(self, served, port, run):
        assert run("serve", "--model", "a", "--model", "b/7", "--port", port)[0] == 0
        assert os.environ["FORECASTER_MODEL"] == "a,b/7"

    def test_the_model_of_the_environment(self, port, run, monkeypatch):
        monkeypatch.setenv("FORECASTER_MODEL", "from-outside")
        assert "starting the service of from-outside" in run("serve", "--port", port)[2]

    def test_the_only_champion(self, port, run, monkeypatch):
        self.champions(monkeypatch, "forecaster-a")
        assert run("serve", "--port", port)[0] == 0
        assert os.environ["FORECASTER_MODEL"] == "forecaster-a"

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            ((), "there is no champion to serve yet: train a model first"),
            (("a", "b"), "there are several champions; name one with --model: a, b"),
        ],
    )
    def test_none_or_several_are_a_question_to_the_user(
        self, names, words, served, run, monkeypatch
    ):
        self.champions(monkeypatch, *names)
        status, _, err = run("serve")
        assert status == 2
        assert words in err
        assert served == []

    def test_without_a_tracker(self, served, run):
        status, _, err = run("serve")
        assert status == 69
        assert "no MLflow database" in err
        assert served == []

    def test_a_port_in_use(self, served, run):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            status, _, err = run("serve", "--model", "m", "--port", port)
        assert status == 69
        assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in err
        assert served == []
