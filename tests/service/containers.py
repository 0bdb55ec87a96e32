"""nginx of docker-compose.yml as a local process, with other addresses and folders."""

import os
import re
import shutil
import socket
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from tests.service.processes import running, until

ROOT = Path(__file__).parents[2]
NGINX = ROOT / "service" / "nginx" / "nginx.conf"
UNPRIVILEGED = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
"""As in the containers."""


def program(name):
    """The path of a program that may be outside the PATH. Skips the test if it is missing."""
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.skip(f"wants {name}: apt-get install --no-install-recommends nginx")
    return found


@contextmanager
def folder_of_nobody():
    """An empty folder, and in it a file `log`, for such a user."""
    with tempfile.TemporaryDirectory(prefix="forecaster-") as name:
        folder = Path(name)
        (folder / "log").touch()
        if os.geteuid() == 0:
            for path in (folder, folder / "log"):
                shutil.chown(path, "nobody", "nogroup")
        yield folder


def listens(port):
    """Whether a process listens on a port."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


@contextmanager
def nginx(port, service, place="", **changes):
    """nginx as in its container, on `port`, before the service on the port `service`.

    `place` is further configuration of its place, `changes` are other values of directives in its
    configuration. Yields the folder of its logs: `access`, and `log` with the errors.
    """
    told = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["nginx"]
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
        words = [*told.get("entrypoint", ()), *told.get("command", ())]
        command = [word.replace("/etc/nginx/nginx.conf", f"{folder}/nginx.conf") for word in words]
        assert f"{folder}/nginx.conf" in command
        command[0] = program(command[0])
        if os.geteuid() == 0:
            command = [*UNPRIVILEGED, *command]
        with running(command, {}, folder, folder / "log"):
            until(lambda: listens(port))
            yield folder
