import itertools
import re
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser

from fastapi.testclient import TestClient

from forecaster.forecast.predictor import Predictor
from forecaster_service.app import create_app
from forecaster_service.settings import Settings
from tests.service.toy import start, wait_until_loaded

PROBLEM = "application/problem+json"
REFERENCES = """
import sys
from tests.service.toy import NAME, start
seen = []
def watch(event, arguments):
    if watching and event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        seen.append((event, arguments))
watching = False
sys.addaudithook(watch)
with start(model=sys.argv[1]) as client:
    example = client.get(f"/models/{NAME}/example").json()
    client.post("/predict", json=example)
    client.get("/page/page")  # fastapi reads the source of a route once
    watching = True
    for text in ("../../x", "/etc/passwd", "%2e%2e", "file:///etc/passwd", "http://127.0.0.1:9/",
                 "//127.0.0.1/x", "#", "a\\0b", "models:/x", "runs:/x", "0" * 32, "."):
        changes = [{field: text} for field in ("item_id", "start", "freq", "model", "columns")]
        changes += [{"columns": [text] * 3}, {"past_covariates": {text: [text]}}]
        for change in changes:
            client.post("/predict", json={**example["inputs"][0], **change})
        path, header = text.replace("#", "%23").replace("\\0", "%00"), text.replace("\\0", "0")
        for folder in ("models", "page", "static-offline-docs"):
            client.get(f"/{folder}/{path}/example")
            client.get(f"/{folder}/{path}")
        headers = {"Authorization": f"Bearer {header}", "X-Forwarded-For": header}
        client.get("/models", headers=headers)
    assert client.post("/predict", json=example).status_code == 200
    watching = False
print(seen)
"""


class Links(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href") and value]


def test_docs_load_nothing_from_elsewhere_and_may_lie_below_a_prefix(client):
    page = client.get("/docs").text
    (description,) = re.findall(r"url: '(.*?)'", page)
    links = [*Links(page).found, description]
    assert len(links) >= 4
    for link in links:
        assert not link.startswith("/")
        assert client.get(f"/{link}").status_code == 200
    assert client.get(f"/{description}").json()["servers"] == [{"url": "."}]
    assert "http" not in page
    assert '"validatorUrl": null' in page


def test_every_error_is_a_problem(client):
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/static-offline-docs/..%2f..%2fcore.py", 404),
        ("GET", "/predict", 405),
        ("OPTIONS", "/predict", 405),
        ("POST", "/livez", 405),
        ("GET", "/readyz?verbose=" + "x" * 9, 422),
    ):
        answer = client.request(method, path)
        problem = answer.json()
        assert answer.headers["content-type"] == PROBLEM
        assert (answer.status_code, problem["status"]) == (status, status)
        assert problem["instance"] == f"urn:x-request-id:{answer.headers['x-request-id']}"
        assert set(problem) >= {"type", "title", "detail"}
        assert (status == 405) == (answer.headers.get("allow") in ("POST", "GET"))


def test_other_hosts_are_refused():
    with start(allowed_hosts=("forecast.example",)) as client:
        for host in ("evil.example", "localhost.evil.example", "", "a b", "[::2]"):
            answer = client.get("/livez", headers={"Host": host})
            assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST", "forecast.example"):
            assert client.get("/livez", headers={"Host": host}).status_code == 200


def test_request_ids(client):
    for sent in ("job-17.a_B", "x" * 64, "x" * 65, "a b", '"}'):
        got = client.get("/livez", headers={"X-Request-ID": sent}).headers["x-request-id"]
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", got)
        assert (got == sent) == (sent in ("job-17.a_B", "x" * 64))


def test_an_unforeseen_error_reveals_nothing(folder, flat, monkeypatch, capsys):
    with start(model=str(folder)) as client:

        def fail(*args, **options):
            raise RuntimeError("the password is swordfish")

        monkeypatch.setattr(Predictor, "_forecast", fail)
        answer = client.post("/predict", json=flat, headers={"X-Request-ID": "bad-1"})
    assert (answer.status_code, answer.headers["content-type"]) == (500, PROBLEM)
    assert answer.headers["x-request-id"] == "bad-1"
    assert not re.search("swordfish|Traceback", answer.text)
    log = capsys.readouterr().err
    assert "swordfish" in log
    assert '"request_id": "bad-1"' in log


def test_alive_while_loading(folder, monkeypatch):
    go_on, load = threading.Event(), Predictor.load
    monkeypatch.setattr(Predictor, "load", lambda *args: [go_on.wait(20), load(*args)][1])
    app = create_app(Settings(model=str(folder)))  # and loads nothing yet
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/livez").status_code == 200
        waiting = client.get("/readyz")
        assert waiting.status_code == 503
        assert int(waiting.headers["retry-after"]) > 0
        assert "being loaded" in client.post("/predict", json={}).json()["detail"]
        go_on.set()
        wait_until_loaded(client)
        assert client.get("/readyz").json() == {"status": "ready"}


def test_clocks_that_jump_change_nothing(folder, full, monkeypatch):
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1.8e9 - 3600.0 * (next(hours) % 7))
    with start(model=str(folder), deadline_seconds=20) as client:
        for _ in range(10):
            timing = client.post("/predict", json=full).json()["timing"]
            assert 0 <= timing["queue_ms"] < 30_000
            assert 0 < timing["inference_ms"] < 30_000
        metrics = client.get("/metrics").text
    sums = [float(each) for each in re.findall(r"(?m)^forecaster_\w+_sum.* (\S+)$", metrics)]
    assert len(sums) >= 4
    assert 0 <= min(sums) <= max(sums) < 1000


def test_no_field_opens_a_file_or_a_connection(folder):
    command = [sys.executable, "-c", REFERENCES, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
