"""The compose files, as far as they can be tried without containers."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.processes import Server, free_port, running, wait_for
from tests.service.toy import make_bundle

ROOT = Path(__file__).parents[2]
FILES = ("docker-compose.yml", "docker-compose.gpu.yml")

REGISTER = """
import sys
from pathlib import Path
from forecaster import track
from forecaster.predict import Forecaster
folder, name = Path(sys.argv[1]), sys.argv[2]
forecaster = Forecaster.load(folder, "cpu")
example = forecaster.example
with track.start(forecaster.bundle.config, "toy", {}) as run:
    model = run.log_model(folder, "toy", example, forecaster.predict(example), 6, {})
    run.register(model, name, 0.5, {})
"""


def services(*files: str) -> dict[str, Any]:
    return {file: yaml.safe_load((ROOT / file).read_text())["services"] for file in files}


@pytest.mark.parametrize("file", FILES)
def test_compose_files_follow_the_specification(file: str) -> None:
    command = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(ROOT / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_port_is_published_on_loopback_alone() -> None:
    (found,) = services("docker-compose.yml").values()
    ports = [port for service in found.values() for port in service["ports"]]
    assert sorted(ports) == ["127.0.0.1:5000:5000", "127.0.0.1:8000:8000"]


def test_no_container_has_rights_or_calls_home() -> None:
    (found,) = services("docker-compose.yml").values()
    for service in found.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["environment"]["MLFLOW_DISABLE_TELEMETRY"] == "true"
        assert service["environment"]["DO_NOT_TRACK"] == "true"
        assert service["healthcheck"]["start_period"] == "60s"
    dockerfile = (ROOT / "service/Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\w+)", dockerfile, re.MULTILINE)
    assert user != "root"
    assert dockerfile.index("useradd") < dockerfile.index(f"USER {user}") < dockerfile.index("CMD")


def test_the_gpu_file_changes_services_that_exist() -> None:
    base, gpu = services(*FILES).values()
    assert set(gpu) <= set(base)
    arguments = gpu["forecaster"]["build"]["args"]
    assert set(arguments) <= set(re.findall(r"^ARG (\w+)", dockerfile(), re.MULTILINE))


def dockerfile() -> str:
    return (ROOT / "service/Dockerfile").read_text()


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    lines = [line.split()[1:-1] for line in dockerfile().splitlines() if line.startswith("COPY")]
    copied = {name for names in lines for name in names}
    ignore = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{name}" for name in copied} == {line for line in ignore if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


class Container:
    """A service of the compose file as a process: its ports, hosts and volume are moved."""

    def __init__(self, service: dict[str, Any], moved: dict[str, str]) -> None:
        self.moved = moved
        self.command = [self.move(part) for part in service["command"]]
        self.environment = {k: self.move(v) for k, v in service["environment"].items()}
        self.health = [self.move(part) for part in service["healthcheck"]["test"][1:]]

    def move(self, text: str) -> str:
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
        for old, new in self.moved.items():
            text = text.replace(old, new)
        return text

    def healthy(self) -> bool:
        """Run the health check."""
        return subprocess.run(self.health, capture_output=True, check=False).returncode == 0


def status(url: str, host: str) -> int:
    request = urllib.request.Request(url, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            code: int = answer.status
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
    return code


@pytest.mark.slow
def test_the_commands_run_and_serve_a_registered_model(tmp_path: Path) -> None:
    (found,) = services("docker-compose.yml").values()
    data, home = tmp_path / "data", tmp_path / "home"
    data.mkdir()
    home.mkdir()
    tracker_port, service_port = str(free_port()), str(free_port())
    moved = {
        "0.0.0.0": "127.0.0.1",
        "http://mlflow:5000": f"http://127.0.0.1:{tracker_port}",
        "127.0.0.1:5000": f"127.0.0.1:{tracker_port}",
        "--port=5000": f"--port={tracker_port}",
        "127.0.0.1:8000": f"127.0.0.1:{service_port}",
        "--port=8000": f"--port={service_port}",
        "/data": str(data),
    }
    tracker, service = (Container(found[name], moved) for name in ("mlflow", "forecaster"))
    common = {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}
    log = tmp_path / "mlflow.log"
    assert not tracker.healthy()
    with running(tracker.command, {**common, **tracker.environment}, home, log) as process:
        address = f"http://127.0.0.1:{tracker_port}"
        wait_for(f"{address}/health", process, log)
        assert tracker.healthy()
        search = f"{address}/api/2.0/mlflow/experiments/search?max_results=1"
        assert status(search, "mlflow:5000") == 200
        assert status(search, f"localhost:{tracker_port}") == 200
        assert status(search, "evil.example") == 403

        name = service.environment["FORECASTER_MODEL"]
        digest = make_bundle(tmp_path / "bundle").digest
        environment = {**os.environ, "MLFLOW_TRACKING_URI": address}
        register = [sys.executable, "-c", REGISTER, str(tmp_path / "bundle"), name]
        subprocess.run(register, env=environment, cwd=tmp_path, check=True, timeout=120)

        log = tmp_path / "service.log"
        assert not service.healthy()
        environment = {**common, **service.environment}
        with running(service.command, environment, home, log) as other:
            wait_for(f"http://127.0.0.1:{service_port}/readyz", other, log)
            assert service.healthy()
            assert status(f"http://127.0.0.1:{service_port}/livez", "forecaster:8000") == 200
            server = Server(int(service_port), other)
            (card,) = server.get("/models")["models"]
            assert (card["version"], card["alias"], card["digest"]) == ("1", None, digest)
            example = server.get(f"/models/{card['name']}/example")
            answer = server.post("/predict", {**example, "model": "1"})
            assert answer["model"]["version"] == "1"

            process.terminate()
            process.wait(30)
            assert not tracker.healthy()
            assert service.healthy()
            assert server.post("/predict", example)["predictions"] == answer["predictions"]
    assert (data / "mlflow.db").is_file()
    assert list((data / "artifacts").iterdir())
    # the containers' own files are read-only
    assert list(home.iterdir()) == []
