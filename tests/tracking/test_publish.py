"""Runs with a tracker that is slow, hangs, fails, dies and comes back: no point is lost or doubled.

A proxy between the runs and a real MLflow server misbehaves on request.
"""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from forecaster.base import signals
from forecaster.base.errors import Stopped
from forecaster.record.folder import begin, is_free, read, take
from forecaster.tracking import publish as module
from forecaster.tracking import run as tracked
from forecaster.tracking.publish import publish, sync
from forecaster.tracking.registry import download
from forecaster.tracking.run import start
from forecaster.tracking.store import MlflowClient

# isort: split
from mlflow.models.model import Model

from tests import small
from tests.tracking.toy import Server, complete, contents, points, tracked_at

pytestmark = pytest.mark.slow


class Between(ThreadingHTTPServer):
    """Passes requests on to a server, in its current `way`.

    "hand on" only passes on; "slow": three seconds late; "hang": no answer; "fail": 500;
    "lose": passes on and loses some answers, by default every third; "close": hangs up.
    """

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.port, self.way, self.count = port, "hand on", 0
        self.loses = lambda count: count % 3 == 0
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        server = self.server
        server.count += 1
        lost = server.way == "lose" and server.loses(server.count)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if server.way == "slow":
            time.sleep(3)
        while server.way == "hang":
            time.sleep(0.05)
        if server.way == "close":
            return
        if server.way == "fail":
            status, headers, content = 500, {}, b"broken"
        else:
            onward = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
            with closing(onward):
                onward.request(self.command, self.path, body, dict(self.headers))
                came = onward.getresponse()
                status, headers, content = came.status, came.headers, came.read()
        if lost:
            return
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() in ("content-type", "content-disposition"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(Handler, f"do_{method}", Handler.answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with closing(Server(tmp_path_factory.mktemp("server"))) as server:
        yield server


@pytest.fixture
def between(server):
    between = Between(server.port)
    yield between
    between.way = "close"
    between.shutdown()
    between.server_close()


@pytest.fixture
def client(server):
    return MlflowClient(server.address)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "4")


@pytest.fixture
def waits(monkeypatch):
    """How long a run waits at its start, and at its end, on a machine that may be busy."""

    def waits(start, end):
        monkeypatch.setattr(tracked, "START", start)
        monkeypatch.setattr(tracked, "END", end)

    waits(120.0, 240.0)
    return waits


def report(run, epochs, pause=0.1):
    """Report some epochs, each within a second."""
    for epoch in epochs:
        before = time.monotonic()
        run.report({"loss": 1 / epoch, "rate": 0.5}, epoch)
        assert time.monotonic() - before < 1.0
        time.sleep(pause)


def assert_each_once(client, id, count):
    for key in ("loss", "rate"):
        assert [step for step, _ in points(client, id, key)] == [*range(1, count + 1)], key


def only_model(client, run):
    (found,) = client.search_logged_models(["1"], f"source_run_id = '{run.info.run_id}'")
    return found


def wait_until_released(folder):
    """A thread of this process that hangs may hold a run."""
    deadline = time.monotonic() + 60
    while not is_free(folder):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def only_run(client, name):
    (found,) = client.search_runs(["1"], f"attributes.run_name = '{name}'")
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["slow", "hang", "fail", "lose", "close"])
def test_a_fault_on_the_way(fault, between, client, waits):
    """The fault begins during the run, and ends before the run does."""
    name = f"on-the-way-{fault}"
    with start(tracked_at(between.address), name, {}, held=begin(name)) as run:
        report(run, [1, 2, 3])
        between.way = fault
        run.params({"a": "1"})
        report(run, range(4, 9), pause=0.4)
        run.text("note.txt", "a note")
        between.way = "hand on"
        report(run, [9, 10])
    found = only_run(client, name)
    assert found.info.run_id == run.id
    assert (found.info.status, found.data.params) == ("FINISHED", {"a": "1"})
    assert [file.path for file in client.list_artifacts(run.id)] == ["note.txt"]
    assert_each_once(client, run.id, 10)
    assert not any(Path("runs").iterdir()), "all is told"


def left_over(between, name, waits):
    """The folder of a run that has ended with a bundle, of which MLflow has nothing."""
    waits(1.0, 1.0)
    between.way = "close"
    own = begin(name, data="toy", data_digest="12", source="/data/toy.csv")
    with start(tracked_at(between.address), name, {}, held=own) as run:
        report(run, range(1, 6), pause=0)
        complete(run, f"forecaster-{name}")
    wait_until_released(own.folder)
    return own.folder


@pytest.mark.timeout(600)
def test_each_answer_is_lost_once_while_all_is_uploaded(between, client, waits, monkeypatch):
    """Runs, models, versions and points are created once, though they are sent to MLflow again."""
    left_over(between, "answers", waits)

    def short(bundle, path):
        """A model of a single file, which represents its hundred."""
        Model().save(path.mkdir() or path / "MLmodel")

    monkeypatch.setattr(module, "build", short)
    between.way = "lose"
    for fatal in range(1, 60):
        between.count, between.loses = 0, lambda count, fatal=fatal: count == fatal
        if not any(synced["left"] for synced in sync([])):
            break
    assert 10 < fatal < 59, "each was lost, until none was left"
    found = only_run(client, "answers")
    assert_each_once(client, found.info.run_id, 5)
    assert len(found.inputs.dataset_inputs) == 1
    (output,) = found.outputs.model_outputs
    (version,) = client.search_model_versions("name = 'forecaster-answers'")
    assert output.model_id == only_model(client, found).model_id
    assert output.model_id in version.source


@pytest.mark.timeout(600)
def test_a_run_that_is_published_again_and_again(between, client, waits):
    """By a call, and by two processes at once, it is in MLflow once."""
    folder = left_over(between, "twice", waits)
    between.way = "hand on"
    with take(folder) as own:
        publish(own)
        own.note(uploaded=False)  # as if its process had died before that
    script = "from forecaster.tracking.publish import sync; print(*sync([]))"
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [child.communicate(timeout=240)[0] for child in both]
    assert all("'left': ''" in each or each == "\n" for each in said), said
    assert read(folder).uploaded
    found = only_run(client, "twice")
    assert_each_once(client, found.info.run_id, 5)
    assert only_model(client, found)
    (version,) = client.search_model_versions("name = 'forecaster-twice'")
    assert version.run_id == found.info.run_id


@pytest.mark.timeout(600)
def test_a_server_that_is_not_there_yet(server, client, waits):
    """A run begins and ends before its server listens; then it is uploaded and registered."""
    server.close()
    said = []
    config = tracked_at(server.address)
    with start(config, "early", {}, held=begin("early"), say=said.append) as run:
        report(run, [1, 2, 3])
        complete(run, "forecaster-early")
    assert ["does not answer" in said[0], "`forecaster sync early`" in said[1]] == [True, True]
    server.start()
    (synced,) = sync([])
    assert synced["told"] == "forecaster-early version 1 is the champion: there was none"
    found = only_run(client, "early")
    assert found.info.status == "FINISHED"
    assert_each_once(client, found.info.run_id, 3)
    assert read(Path("runs/early")).uploaded


def test_a_signal_while_the_end_waits_for_a_server(waits, monkeypatch):
    """The run stays FINISHED, for `sync`."""
    waits(1.0, 20.0)
    monkeypatch.setattr(signals, "GRACE", 60.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    said, before = [], time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tracked_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with (
            pytest.raises(Stopped),
            signals.heeding(),
            start(config, "stopped", {}, held=begin("stopped"), say=said.append),
        ):
            threading.Timer(2, signal.raise_signal, [signal.SIGTERM]).start()
    assert time.monotonic() - before < 15
    assert "does not have all of this run yet" in said[-1]
    assert read(Path("runs/stopped")).status == "FINISHED"


@pytest.mark.timeout(600)
def test_the_command_with_a_server_that_hangs(between, client, monkeypatch, tmp_path, run, waits):
    """A complete bundle, exit status 0 and a sentence; then `forecaster sync` uploads the rest."""
    config = small.install(tmp_path, monkeypatch)
    waits(2.0, 3.0)

    between.way = "hang"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", between.address)
    status, out, err = run("train", "--config", config)
    assert status == 0, err
    assert "upload it with `forecaster sync small-5-prob-s0-" in err
    assert "model    forecaster-small-M-all-5 will be registered when MLflow has the run" in out
    (folder,) = Path("runs").iterdir()
    kept = json.loads((folder / "about.json").read_text())["run_id"]

    between.way = "fail"
    wait_until_released(folder)
    assert run("sync")[0] == 69
    between.way = "hand on"
    status, out, err = run("sync", folder)
    assert status == 0, err
    assert "forecaster-small-M-all-5 version 1 is the champion: there was none" in out
    found = only_run(client, folder.name)
    assert found.data.tags["forecaster.run"] == kept
    assert found.info.status == "FINISHED"
    assert [step for step, _ in points(client, found.info.run_id, "train_loss")] == [1, 2]
    assert {"test_mse", "skill"} <= {each.key for each in only_model(client, found).metrics}
    download(kept, tmp_path / "again")  # the id that its bundle keeps leads to it, too
    assert contents(tmp_path / "again") == contents(folder)
