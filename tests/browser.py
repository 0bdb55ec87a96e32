"""A page in a real browser, controlled over its DevTools protocol, and checked by axe."""

import base64
import io
import itertools
import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from importlib.resources import files

import numpy as np
import pytest
from websockets.sync.client import connect

wants_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="wants Debian's chromium"
)
SHOWN = "document.querySelector('#status')?.textContent.startsWith('forecast in')"
FAILED = "document.querySelector('#error')?.hidden === false"
TEXT = "document.body.innerText"
READY = "document.readyState === 'complete'"


class Tab:
    """A page of the browser; `problems` are complaints of its console, scripts and policy."""

    def __init__(self, socket):
        self.socket, self.numbers = socket, itertools.count()
        self.problems = []
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(30))
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(message["params"])
            if message.get("id") == number:
                assert "result" in message, message
                return message["result"]

    def run(self, script):
        """The value of a script, which may be a promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script, seconds=15):
        """Wait until a script is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"{script} did not come true; {self.run(TEXT)}"
            time.sleep(0.05)

    def open(self, url, width=1280, scheme="light", until=SHOWN):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=url)
        self.wait(until)

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def paste(self, csv, then=SHOWN):
        """Put a CSV into the field and leave it, as a user would."""
        self.run("document.querySelector('#status').textContent = ''")
        self.run(
            "{ const field = document.querySelector('#csv'); field.value = "
            + json.dumps(csv)
            + "; for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind)); }"
        )
        self.wait(then)

    def choose(self, file, field="#file", then=SHOWN):
        """Choose a file in a field, once the page shows nothing."""
        self.run("document.querySelector('#status').textContent = ''")
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=field)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])
        self.wait(then)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowLeft": 37}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes[key], **text,
            )  # fmt: skip

    def picture(self):
        """A picture of the whole page, (height, width, 3), from 0 to 1."""
        from matplotlib.image import imread

        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        return np.asarray(imread(io.BytesIO(base64.b64decode(data)))[..., :3])


@contextmanager
def browser(profile):
    """The only tab of a browser that keeps its files in `profile`."""
    process = subprocess.Popen(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with connect(_address(profile, process), max_size=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(20)


def _address(profile, process):
    """Wait until the first tab of a browser listens; its address."""
    import requests

    file = profile / "DevToolsActivePort"
    while not (file.exists() and file.read_text().count("\n")):
        assert process.poll() is None
        time.sleep(0.05)
    port = file.read_text().split("\n")[0]
    pages = requests.get(f"http://127.0.0.1:{port}/json", timeout=10).json()
    return next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"]


@contextmanager
def quiet(tab):
    """Check that the browser reports no problem during the block."""
    tab.problems.clear()
    yield
    tab.run("0")
    assert tab.problems == []


def complaints(tab):
    """The violations that axe finds on the current page: rules, places and reasons."""
    script = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    tab.run(f"if (!window.axe) {{ {script} }}")
    found = tab.run("axe.run().then(({ violations }) => violations)")
    return [
        f"{rule['id']}: {' '.join(node['target'])}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]
