"""The page in a real browser, over its DevTools protocol."""

import base64
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from websockets.sync.client import ClientConnection, connect

from forecaster.notices import Notice
from forecaster.predict import Predictor, keep
from tests.bundles import blended, warning
from tests.service.toy import COLUMNS, HORIZON, KINDS, NAME, PAST, Registry, make_bundle
from tests.test_client import history, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="wants Debian's chromium"),
]


class Tab:
    """A page of the browser; `problems` are what its console, scripts and policy complain of."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.numbers = socket, itertools.count()
        self.problems: list[Any] = []
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(30))
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(message["params"])
            if message.get("id") == number:
                assert "result" in message, message
                return message["result"]

    def run(self, script: str) -> Any:
        """The value of a script, which may be a promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 15) -> None:
        """Until a script is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"{script} did not come true; {self.run(TEXT)}"
            time.sleep(0.05)

    def open(self, url: str, width: int = 1280, scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=url)
        self.wait(SHOWN)

    def text(self, selector: str) -> str:
        text: str = self.run(f"document.querySelector({json.dumps(selector)}).textContent")
        return text

    def paste(self, csv: str) -> None:
        """Put a CSV into the field and leave it, as a person would."""
        self.run("document.querySelector('#status').textContent = ''")
        self.run(
            "{ const field = document.querySelector('#csv'); field.value = "
            + json.dumps(csv)
            + "; for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind)); }"
        )

    def choose(self, file: Path) -> None:
        """Choose a file."""
        self.run("document.querySelector('#status').textContent = ''")
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes[key], **text,
            )  # fmt: skip

    def picture(self) -> np.ndarray:
        """The whole page, (height, width, 3), from 0 to 1."""
        from matplotlib.image import imread

        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        return np.asarray(imread(io.BytesIO(base64.b64decode(data)))[..., :3])


SHOWN = "document.querySelector('#status')?.textContent.startsWith('forecast in')"
FAILED = "document.querySelector('#error')?.hidden === false"
TEXT = "document.body.innerText"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    profile = tmp_path_factory.mktemp("profile")
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


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the first tab of a browser listens, once it does."""
    import requests

    file = profile / "DevToolsActivePort"
    while not (file.exists() and file.read_text().count("\n")):
        assert process.poll() is None
        time.sleep(0.05)
    port = file.read_text().split("\n")[0]
    pages = requests.get(f"http://127.0.0.1:{port}/json", timeout=10).json()
    address: str = next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"]
    return address


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Predictor]]:
    """The URL of a service, and its model."""
    folder = tmp_path_factory.mktemp("bundle")
    forecaster = Predictor(make_bundle(folder))
    with serving(folder) as url:
        yield url, forecaster


@contextmanager
def quiet(tab: Tab) -> Iterator[None]:
    """Nothing that happens in the block is a problem to the browser."""
    tab.problems.clear()
    yield
    tab.run("0")
    assert tab.problems == []


def values(tab: Tab) -> pd.DataFrame:
    """The forecast that the page shows."""
    return pd.read_csv(io.StringIO(tab.text("#values")))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_with_the_example_of_the_model(
    tab: Tab, plain: tuple[str, Predictor], width: int, scheme: str
) -> None:
    """The policy refuses nothing, the colours follow the scheme, nothing sticks out."""
    with quiet(tab):
        tab.open(plain[0], width, scheme)
    assert NAME in tab.text("#facts")
    assert "beats the best floor" in tab.text("#verdict")
    assert "network (prob) 100 %" in tab.text("#facts")
    assert tab.run("document.querySelector('#drop-field').hidden"), "there is nothing to drop"
    assert tab.run("document.querySelectorAll('#shares .share.network').length") == 1
    assert len(values(tab)) == HORIZON
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert tab.run("document.querySelectorAll('#chart path').length") == 3
    pixels = tab.picture()
    paper = np.array([1, 1, 1] if scheme == "light" else [0x0F, 0x17, 0x2A] / np.array(255.0))
    written = np.abs(pixels - paper).max(axis=2) > 0.02
    assert 0.01 < written.mean() < 0.5, "ink on paper of the right colour"
    assert not written[:, -8:].any()


@pytest.mark.parametrize("kind", [
    "plain", "past", "words", "panel", "two ids", "wide", "all", "median", "UTC", "MS",
])  # fmt: skip
def test_its_forecast_is_that_of_the_model(tab: Tab, kind: str, tmp_path: Path) -> None:
    others: dict[str, dict[str, Any]] = {
        "median": {"loss": "pinball"},
        "UTC": {"timezone": "UTC", "freq": "15min"},
        "MS": {"freq": "MS"},
    }
    bundle = make_bundle(tmp_path, model="tokens", **{**others, **KINDS}[kind])
    schema, frame = bundle.schema, history(bundle)
    expected = Predictor(bundle).predict(frame, levels=(0.1, 0.9))
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        tab.paste(frame.to_csv(index=False))
        tab.wait(SHOWN)
        if schema.items:
            assert tab.run("document.querySelector('#item').options.length") == len(schema.items)
            tab.run("document.querySelector('#item').selectedIndex = 1")
            item = tab.run("document.querySelector('#item').value")
            tab.run("document.querySelector('#status').textContent = ''")
            tab.run("document.querySelector('#item').dispatchEvent(new Event('change'))")
            tab.wait(SHOWN)
            if schema.id:
                ids = list(schema.id)
                expected = expected[expected[ids].agg(" / ".join, axis=1) == item].drop(columns=ids)
            else:
                names = [schema.time, item, f"{item} 0.1", f"{item} 0.9"]
                expected = expected[names].set_axis([schema.time, "y", "y 0.1", "y 0.9"], axis=1)
        answer = values(tab)
    expected = expected.reset_index(drop=True)
    stamps = pd.to_datetime(answer.pop(schema.time)).to_list()
    assert stamps == expected.pop(schema.time).dt.tz_localize(None).to_list()
    pd.testing.assert_frame_equal(answer, expected, rtol=1e-6, atol=1e-5)
    assert tab.run("document.querySelector('#column').options.length") == len(schema.targets)


def test_a_series_of_a_wide_panel_ends_with_its_last_value(tab: Tab, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, **KINDS["wide"])
    frame = history(bundle)
    expected = Predictor(bundle).predict(frame[1:-2])
    name = bundle.schema.items[0]
    frame.loc[[0, len(frame) - 2, len(frame) - 1], name] = np.nan
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        tab.paste(frame.to_csv(index=False))
        tab.wait(SHOWN)
    assert pd.to_datetime(values(tab)["time"]).to_list() == expected["time"].to_list()
    np.testing.assert_allclose(values(tab)["y"], expected[name], rtol=1e-6, atol=1e-5)


def test_what_stands_out_is_listed(tab: Tab, tmp_path: Path) -> None:
    bundle = warning(make_bundle(tmp_path)).save(tmp_path)
    said: list[str] = []
    frame = history(bundle)[-PAST:]
    Predictor(bundle).predict(frame, levels=(0.1, 0.9), say=said.append)
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        tab.paste(frame.to_csv(index=False))
        tab.wait(SHOWN)
        listed = tab.run("[...document.querySelectorAll('#warnings li')].map((e) => e.textContent)")
    assert len(listed) >= 4
    assert set(listed) >= {sentence for sentence in said if isinstance(sentence, Notice)}


def test_a_short_history_can_be_taken(tab: Tab, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    keep(blended(bundle, network=0.5, cycle=0.3, last=0.2), tmp_path)
    frame = history(bundle).tail(3)
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        assert "from 1 rows on" in tab.text("#drop-field")
        assert not tab.run("document.querySelector('#drop-field').hidden")
    with serving(tmp_path) as url:  # the browser complains of a 422
        tab.open(url)
        tab.paste(frame.to_csv(index=False))
        tab.wait(FAILED)
        assert "short_history=drop" in tab.text("#error")
        tab.run("document.querySelector('#drop').click()")
        tab.wait(SHOWN)
        assert "100 % last value alone" in tab.text("#warnings")
        assert '"short_history":"drop"' in tab.text("#curl")
        assert 'short_history="drop"' in tab.text("#python")
        expected = Predictor.load(tmp_path, "cpu").predict(frame, short_history="drop")
    np.testing.assert_allclose(values(tab)["load"], expected["load"], rtol=1e-5)


class TestHistories:
    @pytest.fixture(autouse=True)
    def _opened(self, tab: Tab, plain: tuple[str, Predictor]) -> None:
        tab.open(plain[0])

    @pytest.fixture
    def frame(self, plain: tuple[str, Predictor]) -> pd.DataFrame:
        return history(plain[1].bundle)

    def test_a_file_can_be_chosen(self, tab: Tab, frame: pd.DataFrame, tmp_path: Path) -> None:
        frame.to_csv(tmp_path / "mine.csv", index=False, sep=";")
        tab.choose(tmp_path / "mine.csv")
        tab.wait(SHOWN)
        assert 'predict("mine.csv", horizon=6, levels=(0.1, 0.9))' in tab.text("#python")
        assert f"the newest {PAST} of {len(frame)} rows were read" in tab.text("#warnings")
        assert "missing value" in tab.text("#warnings")
        assert "inputs[" not in tab.text("#warnings"), "the page sends one series"

    def test_a_file_can_be_dropped(self, tab: Tab, frame: pd.DataFrame) -> None:
        tab.run("document.querySelector('#status').textContent = ''")
        tab.run(
            "{ const dataTransfer = new DataTransfer();"
            f"dataTransfer.items.add(new File([{json.dumps(frame.to_csv(index=False))}], 'x.csv'));"
            "document.querySelector('#source').dispatchEvent("
            "new DragEvent('drop', { dataTransfer, cancelable: true, bubbles: true })) }"
        )
        tab.wait(SHOWN)
        assert 'predict("x.csv"' in tab.text("#python")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                lambda frame: frame.tail(3),
                "target: expected at least 24 rows, got",
            ),
            (lambda frame: frame.drop(columns="wind"), "missing: wind."),
            (lambda frame: frame.assign(wind=np.nan), "column 'wind' has no value at all"),
            (lambda frame: frame.drop(index=9), "row 10, column 'time': expected 2026-03-01 09:00"),
            (
                lambda frame: frame.assign(wind="calm"),
                "column 'wind': expected a number, got 'calm'",
            ),
            (
                lambda frame: frame.drop(columns="time"),
                "there is no column of times: expected 'time'",
            ),
            (lambda frame: frame[["time"]], "expected load, wind, Zürich °C; got time"),
            (lambda frame: frame.head(0), "the CSV is empty"),
        ],
    )
    def test_what_does_not_fit_is_said(
        self, tab: Tab, frame: pd.DataFrame, change: Any, words: str
    ) -> None:
        tab.paste(change(frame).to_csv(index=False))
        tab.wait(FAILED)
        assert words in tab.text("#error")
        assert tab.run("document.querySelector('#result').hidden")
        assert tab.run("document.querySelector('#error').getAttribute('role')") == "alert"
        tab.paste(frame.to_csv(index=False))
        tab.wait(SHOWN)
        assert tab.run("document.querySelector('#error').hidden")

    def test_a_long_file_is_kept_out_of_the_field(
        self, tab: Tab, plain: tuple[str, Predictor], tmp_path: Path
    ) -> None:
        frame = history(plain[1].bundle, 20_000)
        frame.to_csv(tmp_path / "long.csv", index=False)
        tab.choose(tmp_path / "long.csv")
        tab.wait(SHOWN)
        assert tab.run("document.querySelector('#csv').value") == ""
        assert tab.run("document.querySelector('#csv').placeholder").startswith("long.csv, 1.")
        expected = plain[1].predict(frame)["load"]
        np.testing.assert_allclose(values(tab)["load"], expected, rtol=1e-6, atol=1e-5)

    def test_the_python_lines_give_the_same_forecast(
        self, tab: Tab, frame: pd.DataFrame, tmp_path: Path
    ) -> None:
        frame.rename(columns={"time": "date"}).to_csv(tmp_path / "mine.csv", index=False)
        tab.choose(tmp_path / "mine.csv")
        tab.wait(SHOWN)
        lines = tab.text("#python").replace("print(ahead)", "print(ahead.to_csv(index=False))")
        done = subprocess.run(
            [sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        answer = pd.read_csv(io.StringIO(done.stdout)).drop(columns="time")
        pd.testing.assert_frame_equal(
            answer, values(tab).drop(columns="time"), rtol=1e-6, atol=1e-5
        )

    def test_a_row_of_another_length(self, tab: Tab, frame: pd.DataFrame) -> None:
        lines = frame.to_csv(index=False).splitlines()
        tab.paste("\n".join([*lines[:3], lines[3] + ",7", *lines[4:]]))
        tab.wait(FAILED)
        assert "row 3: Too many fields: expected 4 fields but parsed 5" in tab.text("#error")

    def test_a_horizon_beyond_the_model_is_the_services_to_refuse(self, tab: Tab) -> None:
        tab.run("document.querySelector('#horizon').value = 7")
        tab.run("document.querySelector('#horizon').dispatchEvent(new Event('change'))")
        tab.wait(FAILED)
        assert "parameters.prediction_length: this model forecasts at most 6" in tab.text("#error")

    def test_the_keyboard_is_enough(self, tab: Tab) -> None:
        seen = []
        for _ in range(20):
            tab.press("Tab")
            seen.append(tab.run("document.activeElement.id || document.activeElement.textContent"))
            if seen[-1] == "chart":
                break
        wanted = ["file", "example", "csv", "horizon", "forecast", "column", "chart"]
        assert [name for name in seen if name in wanted] == wanted
        tab.press("ArrowRight")
        assert "load, 2026-01-02 01:00: forecast" in tab.text("#readout")
        tab.press("ArrowLeft")
        tab.press("ArrowLeft")
        assert "load, 2026-01-01 23:00: history" in tab.text("#readout")
        assert tab.run("document.querySelector('#readout').tagName") == "OUTPUT"

    def test_each_column_can_be_drawn(self, tab: Tab) -> None:
        before = tab.run("document.querySelector('path.forecast').getAttribute('d')")
        tab.run("document.querySelector('#column').selectedIndex = 2")
        tab.run("document.querySelector('#column').dispatchEvent(new Event('change'))")
        assert tab.run("document.querySelector('path.forecast').getAttribute('d')") != before
        assert COLUMNS[2] in tab.run("document.querySelector('#chart').getAttribute('aria-label')")

    def test_the_curl_line_gives_the_same_forecast(self, tab: Tab) -> None:
        command = tab.text("#curl")
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True
        )
        mean = [row[0] for row in json.loads(done.stdout)["predictions"][0]["mean"]]
        np.testing.assert_allclose(values(tab)["load"], mean, rtol=1e-12)

    def test_every_control_has_a_name(self, tab: Tab) -> None:
        tree = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "textbox", "combobox", "spinbutton", "image", "link"}
        controls = [node for node in tree if node.get("role", {}).get("value") in roles]
        assert len(controls) >= 8
        assert [node for node in controls if not node.get("name", {}).get("value")] == []


TWO = """
const real = window.fetch;
window.fetch = async (address, options) => {
  if (!String(address).endsWith("/models")) return real(address, options);
  const { models: [card] } = await (await real(address)).json();
  const short = { ...card, name: card.name + "@champion", horizon: 3, targets: ["wind"] };
  return new Response(JSON.stringify({ models: [card, short] }));
};
"""
"""Two models where there is one: the second is told of as shorter, under the name of an alias."""


def test_models_can_be_switched(tab: Tab, tmp_path: Path) -> None:
    make_bundle(tmp_path)
    script = tab.call("Page.addScriptToEvaluateOnNewDocument", source=TWO)["identifier"]
    try:
        with serving(tmp_path) as url:
            tab.open(url)
            assert len(values(tab)) == HORIZON
            tab.run("document.querySelector('#model').selectedIndex = 1")
            tab.run("document.querySelector('#model').dispatchEvent(new Event('change'))")
            tab.wait(FAILED)
            assert f"no such model here; there is {NAME}" in tab.text("#error")
            assert "wind: up to 3 steps" in tab.text("#facts")
            assert tab.run("document.querySelector('#horizon').value") == "3"
            tab.run("document.querySelector('#model').selectedIndex = 0")
            tab.run("document.querySelector('#model').dispatchEvent(new Event('change'))")
            tab.wait(SHOWN)
            assert f'model="{NAME}"' in tab.text("#python")
            assert len(values(tab)) == HORIZON
    finally:
        tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_models_of_one_name_are_told_apart(tab: Tab, tmp_path: Path, registry: Registry) -> None:
    for number, alias in enumerate(("champion", "next")):
        bundle = make_bundle(tmp_path / alias, columns=("load", "wind")[number:])
        version = str(number)
        registry.put(f"a@{alias}", tmp_path / alias, name="a", version=version, alias=alias)
    forecaster = Predictor(bundle)
    expected = forecaster.predict(forecaster.example)
    with serving(Path("a@champion,a@next")) as url, quiet(tab):
        tab.open(url)
        assert len(values(tab).columns) == 1 + 3 * 2
        tab.run("document.querySelector('#status').textContent = ''")
        tab.run("document.querySelector('#model').selectedIndex = 1")
        tab.run("document.querySelector('#model').dispatchEvent(new Event('change'))")
        tab.wait(SHOWN)
        assert tab.run("document.querySelector('#model').value") == "a@next"
        assert 'model="a@next"' in tab.text("#python")
    np.testing.assert_allclose(values(tab)["wind"], expected["wind"], rtol=1e-6, atol=1e-5)


def test_a_service_without_a_model_says_why(tab: Tab, tmp_path: Path) -> None:
    with serving(tmp_path / "none") as url:
        tab.call("Page.navigate", url=url)
        tab.wait(FAILED)
        assert "the model could not be found" in tab.text("#error")


def test_a_key_is_asked_for_and_told_to_nobody(tab: Tab, tmp_path: Path) -> None:
    make_bundle(tmp_path)
    key = "s3cret"
    with serving(tmp_path, api_keys=(f"anna:{sha256(key.encode()).hexdigest()}",)) as url:
        tab.call("Page.navigate", url=url)
        tab.wait(FAILED)
        assert tab.text("#error") == "this service wants an API key"
        assert tab.run("document.activeElement.id") == "key"
        for typed in ("wrong", key):
            tab.run("document.querySelector('#error').textContent = ''")
            for letter in typed:
                tab.call("Input.dispatchKeyEvent", type="char", text=letter)
            tab.press("Enter")
            tab.wait(SHOWN if typed == key else f"({FAILED}) && {TEXT}.includes('not known here')")
        assert tab.run("document.querySelector('#access').hidden")
        assert key not in tab.run("document.documentElement.outerHTML + location + document.cookie")
        assert tab.run("localStorage.length + sessionStorage.length") == 0
        mean = [
            row[0] for row in json.loads(shown(tab.text("#curl"), key))["predictions"][0]["mean"]
        ]
        np.testing.assert_allclose(values(tab)["load"], mean, rtol=1e-12)
        assert 'Client("' + url + '", api_key=os.environ["FORECASTER_API_KEY"])' in tab.text(
            "#python"
        )


def shown(command: str, key: str) -> str:
    """What a command prints where the key is in the environment."""
    environment = {**os.environ, "FORECASTER_API_KEY": key}
    return subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=True
    ).stdout
