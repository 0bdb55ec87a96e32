"""The services of docker-compose.yml as local processes, with other addresses and folders."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.processes import running

ROOT = Path(__file__).parents[2]
NGINX = ROOT / "service" / "nginx" / "nginx.conf"
UNPRIVILEGED = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
"""As in the containers, and because PostgreSQL refuses to run as root."""


def services(*files: str) -> dict[str, Any]:
    """The services of each of the compose files."""
    return {file: yaml.safe_load((ROOT / file).read_text())["services"] for file in files}


def program(name: str) -> str:
    """The path of a program that may be outside the PATH. Skips the test if it is missing."""
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), "/usr/sbin"]
    path = os.pathsep.join([os.environ["PATH"], *map(str, folders)])
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"wants {name}: apt-get install --no-install-recommends nginx postgresql")
    return found


def without_rights(*command: str) -> list[str]:
    """The command that runs as another user than root."""
    return [*(UNPRIVILEGED if os.geteuid() == 0 else []), *command]


@contextmanager
def folder_of_nobody() -> Iterator[Path]:
    """An empty folder, and in it a file `log`, for such a user."""
    with tempfile.TemporaryDirectory(prefix="forecaster-") as name:
        folder = Path(name)
        (folder / "log").touch()
        if os.geteuid() == 0:
            for path in (folder, folder / "log"):
                shutil.chown(path, "nobody", "nogroup")
        yield folder


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a process listens on it. Raises AssertionError with the log if none does."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}:\n{log.read_text()[-3000:]}")


class Container:
    """A service of the compose file: its command, environment and health check."""

    def __init__(
        self, service: dict[str, Any], moved: Mapping[str, str], given: Mapping[str, str]
    ) -> None:
        self.moved, self.given = moved, given
        words = [*service.get("entrypoint", ()), *service.get("command", ())]
        self.command = [self.move(word) for word in words]
        self.environment = {k: self.move(v) for k, v in service.get("environment", {}).items()}
        self.health = [self.move(word) for word in service.get("healthcheck", {"test": ()})["test"]]

    def move(self, text: str) -> str:
        """`text` with the variables that are `given`, and with other addresses."""
        text = re.sub(
            r"\$\{(\w+):[-?]([^}]*)\}", lambda match: self.given.get(match[1], match[2]), text
        )
        for old, new in self.moved.items():
            text = text.replace(old, new)
        return text

    def healthy(self) -> bool:
        """Run the health check."""
        kind, *command = self.health
        assert kind == "CMD"
        command[0] = program(command[0])
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def nginx(port: int, service: int, place: str = "", **changes: str) -> Iterator[Path]:
    """nginx as in its container, on `port`, before the service on the port `service`.

    `place` is further configuration of its place, `changes` are other values of directives in its
    configuration. Yields the folder of its logs: `access`, and `log` with the errors.
    """
    (found,) = services("docker-compose.yml").values()
    text = NGINX.read_text()
    for directive, value in changes.items():
        text, count = re.subn(rf"\b{re.escape(directive)} [^;]*;", f"{directive} {value};", text)
        assert count == 1, directive
    with folder_of_nobody() as folder:
        for old, new in {
            "/tmp/": f"{folder}/",
            "/dev/stdout": f"{folder}/access",
            "listen 8080": f"listen 127.0.0.1:{port}",
            "/etc/nginx/place/": f"{folder}/place/",
            "/etc/nginx/upstream/": f"{folder}/upstream/",
        }.items():
            assert old in text
            text = text.replace(old, new)
        (folder / "nginx.conf").write_text(text)
        (folder / "place").mkdir()
        (folder / "upstream").mkdir()
        group = (NGINX.parent / "compose.conf").read_text().partition("upstream service")[2]
        assert "server forecaster:8000 resolve;" in group
        group = group.replace("forecaster:8000 resolve", f"127.0.0.1:{service}")
        (folder / "upstream/service.conf").write_text(f"upstream service{group}")
        (folder / "place/more.conf").write_text(place)
        moved = {"/etc/nginx/nginx.conf": str(folder / "nginx.conf")}
        command = Container(found["nginx"], moved, {}).command
        assert str(folder / "nginx.conf") in command
        command[0] = program(command[0])
        with running(without_rights(*command), {}, folder, folder / "log") as process:
            wait_for_port(port, process, folder / "log")
            yield folder
