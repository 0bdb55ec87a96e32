"""The compose files, as far as they can be tested without containers."""

import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from select import select
from time import monotonic, sleep
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest
import yaml

from forecaster_service.settings import Settings
from tests.service.containers import (
    ROOT,
    Container,
    folder_of_nobody,
    nginx,
    program,
    services,
    wait_for_port,
    without_rights,
)
from tests.service.processes import Server, free_port, running, wait_for

BASE, GPU = FILES = ("docker-compose.yml", "docker-compose.gpu.yml")
TLS = "docker-compose.tls.yml"
DOCKERFILE = ROOT / "service/Dockerfile"
TINY = (
    "window.past=48", "model.parts=2", "model.width=4", "model.feed_forward=4", "train.epochs=1",
)  # fmt: skip


def whole(*files: str) -> dict[str, Any]:
    """The files merged as compose merges them."""
    merged: dict[str, Any] = {}
    for file in files:
        merged = _merged(merged, yaml.safe_load((ROOT / file).read_text()))
    return merged


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {**one, **{k: _merged(one[k], v) if k in one else v for k, v in other.items()}}
    return one + other if isinstance(one, list) else other


def base() -> dict[str, Any]:
    found: dict[str, Any] = services(BASE)[BASE]
    return found


class TestTheFiles:
    @pytest.mark.parametrize("files", [(BASE,), (GPU,), FILES, (BASE, TLS)], ids=" and ".join)
    def test_they_follow_the_specification(self, files: tuple[str, ...], tmp_path: Path) -> None:
        (tmp_path / "compose.yml").write_text(yaml.safe_dump(whole(*files)))
        command = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
        command.append(str(tmp_path / "compose.yml"))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout

    def test_the_gpu_file_changes_services_that_exist(self) -> None:
        gpu = services(GPU)[GPU]
        assert set(gpu) <= set(base())
        for name, service in gpu.items():
            assert set(service["build"]["args"]) <= set(
                re.findall(r"^ARG (\w+)", DOCKERFILE.read_text(), re.M)
            )
            assert whole(*FILES)["services"][name][
                "command" if name == "forecaster" else "entrypoint"
            ]

    def test_what_they_name_exists(self) -> None:
        everything = whole(*FILES, TLS)
        for service in everything["services"].values():
            assert set(service["networks"]) <= set(everything["networks"])
            assert set(service.get("depends_on", ())) <= set(everything["services"])
            for volume in service.get("volumes", ()):
                source = re.sub(r"\$\{\w+:[-?](.*?)\}", r"\1", volume).split(":")[0]
                if source.startswith("set it to"):
                    continue  # it has no default
                assert source in everything["volumes"] or (ROOT / source).exists()

    def test_every_setting_of_theirs_is_explained(self) -> None:
        text = "".join((ROOT / file).read_text() for file in (BASE, TLS))
        used = set(re.findall(r"\$\{(\w+)", text))
        told = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
        assert used == set(told)
        fields = Settings.model_fields
        for name in base()["forecaster"]["environment"]:
            if name.startswith("FORECASTER_"):
                assert name.removeprefix("FORECASTER_").lower() in fields

    def test_every_service_has_its_limits(self) -> None:
        for service in base().values():
            assert service["mem_limit"]
            assert service["cpus"]
            assert service["pids_limit"] > 0
            assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}

    def test_mlflow_may_be_slow_and_starts_nothing_unused(self) -> None:
        mlflow = base()["mlflow"]
        assert "--uvicorn-opts=--timeout-worker-healthcheck=120" in mlflow["command"]
        assert mlflow["healthcheck"]["start_period"] == "300s"
        assert mlflow["healthcheck"]["timeout"] == "60s"
        assert mlflow["environment"]["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"


class TestSafety:
    def test_every_port_is_published_on_loopback_alone(self) -> None:
        ports = {name: service.get("ports", []) for name, service in base().items()}
        assert {name: found for name, found in ports.items() if found} == {
            "mlflow": ["127.0.0.1:5000:5000"],
            "nginx": ["127.0.0.1:8000:8080"],
        }

    def test_passwords_come_from_outside(self) -> None:
        for service in base().values():
            for name, value in service.get("environment", {}).items():
                if re.search("PASS|SECRET|TOKEN", name):
                    assert re.fullmatch(r"\$\{\w+:\?set .*\}", value)
                elif "KEY" in name:
                    assert value == f"${{{name}:-}}"
        assert "password" not in " ".join(base()["mlflow"]["command"])

    def test_no_container_has_rights_or_calls_home(self) -> None:
        for service in base().values():
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            if "build" in service:
                assert service["environment"]["MLFLOW_DISABLE_TELEMETRY"] == "true"
                assert service["environment"]["DO_NOT_TRACK"] == "true"
            else:
                assert re.fullmatch("([1-9][0-9]*):\\1", service["user"])

    def test_who_can_talk_to_whom(self) -> None:
        def company(of: str) -> set[str]:
            own = set(base()[of]["networks"])
            return {name for name, each in base().items() if own & set(each["networks"])} - {of}

        assert company("postgres") == {"mlflow"}
        assert company("nginx") == {"forecaster"}
        assert company("forecaster") == {"nginx", "mlflow"}
        inward = {name for name, each in whole(BASE)["networks"].items() if each}
        for name, service in base().items():
            outward = bool(set(service["networks"]) - inward)
            assert outward == ("ports" in service or name == "train")

    def test_they_end_when_they_have_answered(self) -> None:
        def seconds(name: str) -> int:
            return int(base()[name]["stop_grace_period"].removesuffix("s"))

        settings = Settings()
        assert seconds("forecaster") > settings.drain_seconds + 60 > settings.deadline_seconds
        assert seconds("nginx") > 90
        assert base()["nginx"]["stop_signal"] == "SIGQUIT"

    def test_training_waits_to_be_asked(self) -> None:
        profiles = {name: service.get("profiles") for name, service in base().items()}
        assert {name for name, found in profiles.items() if found} == {"train"}
        assert base()["train"]["restart"] == "no"


@contextmanager
def postgres(service: Container, port: int) -> Iterator[dict[str, Any]]:
    """PostgreSQL as its image starts it; yields the options to connect to the database."""
    environment = service.environment
    user, password = environment["POSTGRES_USER"], environment["POSTGRES_PASSWORD"]
    there = {"host": "127.0.0.1", "port": port, "user": user, "password": password}
    with folder_of_nobody() as folder:
        (folder / "password").write_text(password)
        make = [program("initdb"), f"--pgdata={folder / 'data'}", f"--username={user}"]
        make += ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--no-sync"]
        subprocess.run(without_rights(*make), cwd=folder, check=True, capture_output=True)
        run = [program("postgres"), "-D", f"{folder / 'data'}", "-h", "127.0.0.1", "-p", str(port)]
        run += ["-c", "unix_socket_directories=", "-c", "fsync=off"]
        with running(without_rights(*run), {}, folder, folder / "log") as process:
            wait_for_port(port, process, folder / "log")
            until(service.healthy)
            with psycopg.connect(**there, dbname="postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {environment['POSTGRES_DB']}")
            yield {**there, "dbname": environment["POSTGRES_DB"]}


def until(condition: Any) -> None:
    """Wait for a condition, a minute at most."""
    end = monotonic() + 60
    while not condition():
        assert monotonic() < end
        sleep(0.1)


def status(url: str, host: str) -> int:
    request = urllib.request.Request(url, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            code: int = answer.status
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
    return code


def small(file: Path) -> None:
    """Two columns with a daily cycle, 400 hours."""
    random, phase = np.random.default_rng(0), np.arange(400)[:, None] * np.pi / 12
    values = 20 + np.sin(np.add(phase, [0, 1])) + 0.1 * random.normal(size=(400, 2))
    frame = pd.DataFrame(values, columns=["a", "b"])
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=400, freq="h"))
    frame.to_csv(file, index=False)


def ask_until_refused(server: Server, example: Any, answers: list[Any]) -> tuple[int, bool]:
    """Collect answers up to a refusal: its status, and whether it has a Retry-After."""
    while True:
        try:
            answers.append(server.post("/predict", example))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, "Retry-After" in error.headers


def drip(port: int) -> bytes:
    """The answer to a request whose body arrives byte by byte and never ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 10000\r\n\r\n".encode())

        def answered() -> bool:
            connection.sendall(b" ")
            return bool(select([connection], [], [], 0)[0])

        until(answered)
        return connection.recv(65536)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_train_and_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, home, given = tmp_path / "kept", tmp_path / "home", tmp_path / "given"
    for folder in (kept, home, given):
        folder.mkdir()
    small(given / "small.csv")
    name = "forecaster-small-M-all-6"
    variables = {"POSTGRES_PASSWORD": "a p@ss:w/rd %41'", "FORECASTER_MODEL": name}
    database, tracker, inner, outer = (free_port() for _ in range(4))
    monkeypatch.setenv("PGPORT", str(database))  # for its health check
    moved = {
        "0.0.0.0": "127.0.0.1",
        "postgres:5432": f"127.0.0.1:{database}",
        "http://mlflow:5000": f"http://127.0.0.1:{tracker}",
        "127.0.0.1:5000": f"127.0.0.1:{tracker}",
        "--port=5000": f"--port={tracker}",
        "--workers=2": "--workers=1",
        "127.0.0.1:8000": f"127.0.0.1:{inner}",
        "--port=8000": f"--port={inner}",
        "/datasets": str(given),
        "/data": str(kept),
    }
    found = {name: Container(service, moved, variables) for name, service in base().items()}

    def start(
        name: str, *words: str, at: Path = home, **more: str
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        common = {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment = {**common, **found[name].environment, **more}
        return running([*found[name].command, *words], environment, at, tmp_path / f"{name}.log")

    assert not found["postgres"].healthy()
    with ExitStack() as stack:
        there = stack.enter_context(postgres(found["postgres"], database))
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(**{**there, "password": "mlflow"})

        assert not found["mlflow"].healthy()
        process = stack.enter_context(start("mlflow"))
        address = f"http://127.0.0.1:{tracker}"
        wait_for(f"{address}/health", process, tmp_path / "mlflow.log")
        assert found["mlflow"].healthy()
        search = f"{address}/api/2.0/mlflow/experiments/search?max_results=1"
        assert status(search, "mlflow:5000") == 200
        assert status(search, f"localhost:{tracker}") == 200
        assert status(search, "evil.example") == 403

        patience = {"FORECASTER_POLL_SECONDS": "10", "FORECASTER_RECEIVE_SECONDS": "5"}
        service = stack.enter_context(start("forecaster", **patience))
        stack.enter_context(nginx(outer, inner))
        direct, proxied = Server(inner, service), Server(outer, None)
        wait_for(f"http://127.0.0.1:{outer}/livez", service, tmp_path / "forecaster.log")
        assert not found["forecaster"].healthy()

        settings = chain.from_iterable(("--set", setting) for setting in TINY)
        asked = ["--data", "/datasets/small.csv", "--attn", "prob", "--horizon", "6", *settings]
        training = stack.enter_context(start("train", *map(found["train"].move, asked), at=kept))
        assert training.wait(600) == 0, (tmp_path / "train.log").read_text()
        with psycopg.connect(**there) as connection:
            versions = connection.execute("SELECT name, version FROM model_versions").fetchall()
        assert versions == [(name, 1)]
        wait_for(f"http://127.0.0.1:{outer}/readyz", service, tmp_path / "forecaster.log")
        assert found["forecaster"].healthy()
        (card,) = proxied.get("/models")["models"]
        assert (card["name"], card["version"], card["alias"]) == (name, "1", "champion")
        example = proxied.get(f"/models/{name}/example")
        answer = proxied.post("/predict", example)
        assert direct.post("/predict", example)["predictions"] == answer["predictions"]

        assert drip(outer).startswith(b"HTTP/1.1 408 ")

        process.terminate()
        process.wait(60)
        assert not found["mlflow"].healthy()
        assert found["forecaster"].healthy()
        assert proxied.post("/predict", example)["predictions"] == answer["predictions"]

        answers: list[Any] = []
        with ThreadPoolExecutor(4) as pool:
            ends = [pool.submit(ask_until_refused, proxied, example, answers) for _ in range(4)]
            try:
                until(lambda: len(answers) > 20)
            finally:
                service.terminate()
            assert [each.result(120) for each in ends] == [(503, True)] * 4
        assert all(each["predictions"] for each in answers)
        assert service.wait(60) in (143, -15)
    assert list((kept / "artifacts").iterdir())
    # the containers' own files are read-only
    assert list(home.iterdir()) == []
