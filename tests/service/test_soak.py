"""Mixed traffic, faults and two new models a second: nothing grows, and no good request fails.

FORECASTER_SOAK sets the seconds.
"""

import json
import os
import random
import shutil
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np
import psutil
import pytest
import requests

from forecaster.forecast.bundle import WEIGHTS
from forecaster.forecast.predictor import Predictor
from tests.bundles import sign
from tests.service.processes import get, head, serving
from tests.service.toy import NAME, make_bundle

SECONDS = float(os.environ.get("FORECASTER_SOAK", "60"))
WARM = min(15.0, SECONDS / 3)
"""Seconds before memory, descriptors and times count."""
CLIENTS, SWAP, SAMPLE = 3, 0.5, 0.5
MIB, FILES, SLOWER = 32, 16, 5.0
"""What may be gained from the first third to the last: memory, descriptors, the time of an answer.
The last is wide, for other work slows a machine down by as much."""


class Soak:
    """Clients of a service on `port`, and the outcome of their requests."""

    def __init__(self, port, body, expected):
        self.url, self.port = f"http://127.0.0.1:{port}", port
        self.body, self.expected = body, expected
        self.counts, self.failed, self.digests = Counter[str](), list[str](), set[str]()
        self.ended = threading.Event()

    def run(self, number):
        """Send one random request after the other until the end."""
        draw = random.Random(number)
        good, bad = [self.predict] * 3 + [self.table, self.look], [self.wrong, self.leave]
        with requests.Session() as session:
            while not self.ended.is_set():
                act = draw.choice(good if draw.random() < 0.8 else bad)
                try:
                    act(session)
                except Exception as error:
                    self.failed.append(f"{act.__name__}: {error!r}")
                    return
                self.counts[act.__name__] += 1

    def ask(self, session, status, path, method="POST", **how):
        answer = session.request(method, self.url + path, timeout=60, **how)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer

    def predict(self, session):
        found = self.ask(session, 200, "/predict", json=self.body).json()
        digest, mean = found["model"]["digest"], found["predictions"][0]["mean"]
        np.testing.assert_allclose(mean, self.expected[digest], rtol=1e-4, atol=1e-4)
        self.digests.add(digest)

    def table(self, session):
        accept = {"Accept": "text/csv"}
        text = self.ask(session, 200, "/predict", json=self.body, headers=accept).text
        assert text.count("\n") == 1 + len(next(iter(self.expected.values())))

    def look(self, session):
        for path in ("/livez", "/readyz", "/models", f"/models/{NAME}", "/metrics", "/"):
            self.ask(session, 200, path, method="GET")
        self.ask(session, 200, "/models", method="HEAD")

    def wrong(self, session):
        self.ask(session, 400, "/predict", data="{", headers={"Content-Type": "application/json"})
        self.ask(session, 422, "/predict", json={**self.body, "horizon": "x"})
        self.ask(session, 415, "/predict", data="{}", headers={"Content-Type": "text/plain"})
        self.ask(session, 404, "/models/nobody", method="GET")

    def leave(self, session):
        """Send a whole request and do not wait for the answer; then a part of one."""
        data = json.dumps(self.body).encode()
        for sent in (head(f"Content-Length: {len(data)}") + data, get("/models")[:20]):
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                connection.sendall(sent)


def swaps(link, folders, ended):
    """Point the link at one folder after the other."""
    spare, number = link.with_name("spare"), 0
    while not ended.wait(SWAP):
        number += 1
        spare.symlink_to(folders[number % len(folders)])
        spare.replace(link)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_grows_and_no_good_request_fails(tmp_path):
    folders = [tmp_path / kind for kind in ("informer", "tokens", "damaged")]
    bundles = [make_bundle(folder, model=folder.name) for folder in folders[:2]]
    shutil.copytree(folders[0], folders[2])
    (folders[2] / WEIGHTS).write_bytes(b"x")
    sign(folders[2])
    expected = {}
    for bundle in bundles:
        model = Predictor(bundle, "cpu")
        expected[bundle.digest] = model.predict(model.example).drop(columns="time").to_numpy()
    link = tmp_path / "model"
    link.symlink_to(folders[0])
    with serving(link, tmp_path, device="cpu", poll_seconds=SWAP / 2) as server:
        process, body = psutil.Process(server.process.pid), server.get(f"/models/{NAME}/example")
        soak, memory, files, times = Soak(server.port, body, expected), [], [], []
        pool = ThreadPoolExecutor(CLIENTS + 1)
        try:
            pool.map(soak.run, range(CLIENTS))
            pool.submit(swaps, link, folders, soak.ended)
            begun = time.monotonic()
            while time.monotonic() < begun + SECONDS and not soak.failed:
                asked = time.monotonic()
                server.post("/predict", body)
                if asked > begun + WARM:
                    times.append(time.monotonic() - asked)
                    memory.append(process.memory_info().rss / 2**20)
                    files.append(process.num_fds())
                soak.ended.wait(SAMPLE)
        finally:
            soak.ended.set()
            pool.shutdown()
        assert soak.failed == []
        assert server.get("/readyz") == {"status": "ready"}
        loads, failures = map(server.figure, ("model_loads_total", "model_reload_failures_total"))
    assert min(soak.counts[act] for act in ("predict", "table", "look", "wrong", "leave")) > 0
    assert soak.digests == {bundle.digest for bundle in bundles}
    assert loads > SECONDS / SWAP / 4, "two in three are whole"
    assert failures > 0, "the damaged one is refused"
    third = len(times) // 3
    first, last = (
        [median(each[part]) for each in (memory, files, times)]
        for part in (slice(third), slice(-third, None))
    )
    print(
        f"{sum(soak.counts.values()):,} acts in {SECONDS:.0f} s; MiB, descriptors and seconds of "
        f"an answer: {first}, later {last}"
    )
    assert last[0] - first[0] < MIB
    assert last[1] - first[1] <= FILES
    assert last[2] < SLOWER * first[2]
