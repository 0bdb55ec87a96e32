"""What is tried with real containers; runs inside of the engine's namespaces (see `run`).

Builds both images, brings the stack up, trains, waits for the swap, forecasts through nginx, kills
parts, trains a better and a worse model, measures memory, stops. The first thing that is not as it
should be ends it with its reason.
"""

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

PROJECT = Path("/project")
MACHINE = Path("/work/machine")
PAGE = "http://127.0.0.1:8000"
MODEL = "forecaster-small-M-all-6"
STAND_INS = {
    "python:3.11-slim": "python",
    "postgres:17-alpine": "postgres",
    "nginxinc/nginx-unprivileged:1.29-alpine": "nginx",
}
OWNER = "import os; print(os.getuid(), os.getgid())"
LARGE = """
import importlib.util
print([name for name in ("lightning", "sklearn", "alembic") if importlib.util.find_spec(name)])
"""
FIRST = ("--blend", "none", "--epochs", "1")
WORSE = ("--blend", "none", "--epochs", "1", "--set", "train.lr=1e-7")
BETTER = ("--epochs", "4")
SMALL = ("window.past=48", "model.parts=2", "model.width=8", "model.feed_forward=8")
IDLE_LIMIT = 1.2 * 2**30
PATIENCE = 900.0
"""Seconds to wait for any condition: a slow machine is not a failure."""
BEGUN = time.monotonic()


def tell(text):
    print(f"{time.monotonic() - BEGUN:7.1f} s  {text}", flush=True)


def check(good, what):
    if not good:
        raise SystemExit(f"not so: {what}")
    tell(what)


def call(*command, **options):
    """Run a command and return what it prints; exits with its whole output if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    if done.returncode:
        said = f"ended with {done.returncode}:\n{done.stdout[-6000:]}"
        raise SystemExit(f"{' '.join(command)} {said}")
    return done.stdout


def compose(*words):
    return call("docker", "compose", *words, cwd=PROJECT)


def until(condition, what):
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > PATIENCE:
            raise SystemExit(f"not so after {PATIENCE:.0f} s: {what}")
        time.sleep(0.5)
    tell(f"{what} (after {time.monotonic() - begun:.1f} s)")


def ask(path, body=None):
    """The status and the JSON that come through nginx; 0 if nothing comes."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(PAGE + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
    except (OSError, ValueError):
        return 0, None


def ready():
    return ask("/readyz")[0] == 200


def served():
    """The version that is served, and the alias by which it was chosen."""
    (card,) = ask("/models")[1]["models"]
    return card["version"], card["alias"]


def facts(service):
    """What the engine knows about the container of a service."""
    name = compose("ps", "--all", "--quiet", service).strip()
    return json.loads(call("docker", "inspect", name))[0]


def healthy(service):
    state = facts(service)["State"]
    return state["Running"] and state["Health"]["Status"] == "healthy"


@contextmanager
def engine(group):
    """Run Docker's daemon, and serve the folders in which this machine's pip finds packages."""
    call("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    options = ["--bip=172.17.0.1/16", "--exec-opt=native.cgroupdriver=cgroupfs"]
    with Path("/work/engine.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["dockerd", *options, f"--cgroup-parent=/{group}"], stdout=log, stderr=log
        )
        up = ["docker", "version"]
        end = time.monotonic() + PATIENCE
        while subprocess.run(up, capture_output=True, check=False).returncode:
            if daemon.poll() is not None or time.monotonic() > end:
                raise SystemExit(Path("/work/engine.log").read_text()[-6000:])
            time.sleep(0.5)
        files = ["-m", "http.server", "--bind=172.17.0.1", "--directory=/tmp/pip", "8999"]
        server = subprocess.Popen([sys.executable, *files], stdout=log, stderr=log)
        try:
            yield
        finally:
            server.terminate()
            daemon.terminate()
            daemon.wait(120)


def stand_ins():
    have = call("docker", "images", "--format={{.Repository}}:{{.Tag}}").split()
    if "stand-in/debian:latest" not in have:
        call("docker", "import", "/tmp/debian.tar", "stand-in/debian:latest")
    for file in (PROJECT / "tests/containers/standins").iterdir():
        shutil.copy(file, MACHINE)
    # Debian's nginx is too old for names that are resolved again
    group = "upstream service {\n    server forecaster:8000;\n    keepalive 64;\n}\n"
    Path(os.environ["NGINX_UPSTREAM"]).write_text(group)
    for name, kind in STAND_INS.items():
        file = f"--file={MACHINE / kind}.Dockerfile"
        call("docker", "build", f"--tag={name}", file, str(MACHINE))
        tell(f"stands in for {name}")


def images():
    compose("build", "forecaster", "train")

    def inside(image, code):
        return call("docker", "run", "--rm", "--network=none", image, "python", "-c", code).strip()

    check(inside("forecaster", OWNER) == "10001 10001", "the image's user is 10001:10001")
    check(inside("forecaster", LARGE) == "[]", "what serves has none of what trains")
    check(inside("forecaster-train", LARGE).count(",") == 2, "what trains has it")


def small(file):
    """Two columns with a daily cycle and noise, 1,000 hours."""
    draw, begin = random.Random(0), datetime(2020, 1, 1)
    lines = ["date,a,b"]
    for hour in range(1000):
        values = (20 + math.sin(hour * math.pi / 12 + c) + 0.1 * draw.gauss() for c in (0, 1))
        stamp = f"{begin + timedelta(hours=hour):%Y-%m-%d %H:%M:%S}"
        lines.append(",".join([stamp, *(f"{value:.4f}" for value in values)]))
    file.write_text("\n".join([*lines, ""]))


def train(*more):
    settings = [word for setting in SMALL for word in ("--set", setting)]
    command = ["run", "--rm", "train", "--data", "/datasets/small.csv", "--horizon", "6"]
    begun = time.monotonic()
    compose(*command, "--attn", "prob", *settings, *more)
    tell(f"trained: {' '.join(more) or 'as it comes'} ({time.monotonic() - begun:.0f} s)")


def kill(service):
    """Kill a service as the kernel would: without the engine, which then restarts it."""
    before = facts(service)["RestartCount"]
    os.kill(facts(service)["State"]["Pid"], signal.SIGKILL)
    until(lambda: facts(service)["RestartCount"] > before, f"{service}, killed, was started again")


def forecasts(example, expected):
    status, answer = ask("/predict", example)
    return status == 200 and answer["predictions"] == expected


def memory():
    """The memory of each container in bytes, without the kernel's file cache."""
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    found = {}
    for line in call("docker", "stats", "--no-stream", "--format=json").splitlines():
        each = json.loads(line)
        amount, unit = re.findall(r"^([\d.]+)(\w+)", each["MemUsage"])[0]
        found[each["Name"]] = float(amount) * units[unit]
    return found


def stack():
    begun = time.monotonic()
    compose("up", "--detach")
    for service in ("postgres", "mlflow", "nginx"):
        until(lambda service=service: healthy(service), f"{service} is healthy")
    check(ask("/livez")[0] == 200 and not ready(), "the service answers, and waits for a model")
    tell(f"the stack was up in {time.monotonic() - begun:.0f} s")

    small(Path("/work/given/small.csv"))
    train(*FIRST)
    until(ready, "the first model is served")
    check(served() == ("1", "champion"), "it is version 1, the champion")
    example = ask(f"/models/{MODEL}/example")[1]
    status, answer = ask("/predict", example)
    check(status == 200, "a forecast comes through nginx")
    expected = answer["predictions"]
    until(lambda: healthy("forecaster"), "the service is healthy")

    time.sleep(20)
    held = memory()
    whole = sum(held.values())
    parts = ", ".join(f"{name} {amount / 2**20:.0f}" for name, amount in sorted(held.items()))
    check(whole < IDLE_LIMIT, f"the stack holds {whole / 2**20:.0f} MiB when idle (MiB: {parts})")

    kill("nginx")
    until(lambda: forecasts(example, expected), "the same forecast comes through it")
    kill("forecaster")
    until(lambda: forecasts(example, expected), "the same forecast comes from it")
    kill("postgres")
    kill("mlflow")
    check(forecasts(example, expected), "meanwhile the same forecast comes")
    until(lambda: healthy("postgres") and healthy("mlflow"), "PostgreSQL and MLflow are healthy")
    compose("up", "--detach", "--force-recreate", "--no-deps", "forecaster")
    until(lambda: forecasts(example, expected), "a new container answers at another address")

    train(*WORSE)
    time.sleep(60)  # twice what a swap takes
    check(served() == ("1", "champion"), "a worse model replaces nothing")
    train(*BETTER)
    until(lambda: served() == ("3", "champion"), "a better one is served")
    check(ask("/predict", example)[0] == 200, "it answers")


def end():
    compose("stop")
    names = ("nginx", "forecaster", "mlflow", "postgres")
    codes = {name: facts(name)["State"]["ExitCode"] for name in names}
    check(codes["nginx"] == codes["postgres"] == 0, f"all ended as they were asked to ({codes})")
    killed = [name for name, code in codes.items() if code == 137]
    check(not killed, "none had to be killed")


def main(group):
    os.environ |= {
        "POSTGRES_PASSWORD": "a p@ss:w/rd %41'",
        "FORECASTER_MODEL": MODEL,
        "FORECASTER_DATA": "/work/given",
        "COMPOSE_PROJECT_NAME": "forecaster-tried",
        "NGINX_UPSTREAM": str(MACHINE / "upstream.conf"),
    }
    with engine(group):
        tell(call("docker", "version", "--format=engine {{.Server.Version}}").strip())
        compose("down", "--volumes")  # remains of a run that was killed
        stand_ins()
        images()
        try:
            stack()
            end()
        except SystemExit:
            print(compose("logs", "--no-color", "--tail=15"))
            raise
        finally:
            compose("--profile=train", "down", "--volumes")
            call("docker", "image", "prune", "--force")
            call("docker", "builder", "prune", "--force", "--keep-storage=8GB")
    tell("all of it held")


if __name__ == "__main__":
    main(sys.argv[1])
