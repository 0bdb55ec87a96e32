"""The page in a real browser. What it reads, tests/service/routes/test_read.py tests."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.datasets.reader.archive import ENCRYPTED
from forecaster.forecast.notices import Notice
from forecaster.forecast.predictor import Predictor, keep
from tests.browser import FAILED, SHOWN, TEXT, complaints, quiet, wants_chromium
from tests.bundles import blended, rejudged, warning
from tests.service.processes import until
from tests.service.routes.test_read import as_workbook
from tests.service.toy import COLUMNS, HORIZON, KINDS, NAME, PAST, make_bundle
from tests.test_client import history, serving

pytestmark = [pytest.mark.slow, wants_chromium]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The URL of a service, and its model."""
    folder = tmp_path_factory.mktemp("bundle")
    forecaster = Predictor(make_bundle(folder))
    with serving(folder) as url:
        yield url, forecaster


@pytest.fixture
def frame(plain):
    return history(plain[1].bundle)


def values(tab):
    """The forecast that the page shows."""
    return pd.read_csv(io.StringIO(tab.text("#values")))


@contextmanager
def opened(tab, folder, width=1280):
    """The page of a service with that model, while the browser complains of nothing."""
    with serving(folder) as url, quiet(tab):
        tab.open(url, width)
        yield url


def below(tab, selector):
    """Where an element ends, in pixels from the top of the page."""
    return tab.run(f"document.querySelector('{selector}').getBoundingClientRect().bottom")


def pick(tab, field, change, then=SHOWN):
    """Change a field as a user does, once the page shows nothing."""
    tab.run("document.querySelector('#status').textContent = ''")
    tab.run(f"document.querySelector('{field}').{change}")
    tab.run(f"document.querySelector('{field}').dispatchEvent(new Event('change'))")
    tab.wait(then)


def printed(command, **how):
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, **how).stdout


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_it_opens_with_the_example_of_the_model(tab, width, scheme, tmp_path):
    """The policy refuses nothing, the colours follow the scheme, nothing sticks out, and axe finds
    nothing: in the example, in a forecast with every kind of notice, and in an error."""
    bundle = warning(make_bundle(tmp_path)).save(tmp_path)
    with serving(tmp_path) as url:
        with quiet(tab):
            tab.open(url, width, scheme)
        assert NAME in tab.text("#facts")
        assert "100 % network (prob)" in tab.text("#facts")
        assert tab.text("#result-title") == "Forecast of a made-up example, not your data"
        assert len(values(tab)) == HORIZON
        assert tab.run("document.querySelectorAll('#chart path').length") == 3
        pixels = tab.picture()
        paper = np.array([1, 1, 1] if scheme == "light" else [0x0F, 0x17, 0x2A] / np.array(255.0))
        written = np.abs(pixels - paper).max(axis=2) > 0.02
        assert 0.01 < written.mean() < 0.5, "ink on paper of the right colour"
        assert not written[:, -8:].any()
        assert below(tab, "figure") < (700 if width == 1280 else 650), "above the fold"
        tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        frame, shown, said = history(bundle)[-PAST:], [], []
        for text in (None, frame.to_csv(index=False), "time;load\n2026-01-01;1,5"):
            if text:
                tab.paste(text, then=f"{SHOWN} || {FAILED}")
            assert complaints(tab) == []
            assert tab.run("document.documentElement.scrollWidth <= innerWidth")
            shown.append(tab.text("#warnings"))
        assert tab.run("document.querySelector('#result').hidden"), "of the error"
    Predictor(bundle).predict(frame, levels=(0.1, 0.9), say=said.append)
    remarks = "; ".join(str(each).removesuffix(".") for each in said if isinstance(each, Notice))
    assert shown[1].lower() == f"{remarks}.".lower(), "in one sentence"


@pytest.mark.parametrize("kind", ["two ids", "wide", "all", "UTC"])
def test_its_forecast_is_that_of_the_model(tab, kind, tmp_path):
    others = {"UTC": {"timezone": "UTC", "freq": "15min"}}
    bundle = make_bundle(tmp_path, **{**others, **KINDS}[kind])
    schema, frame = bundle.schema, history(bundle)
    expected = Predictor(bundle).predict(frame, levels=(0.1, 0.9))
    with opened(tab, tmp_path):
        tab.paste(frame.to_csv(index=False))
        if schema.items:
            assert tab.run("document.querySelector('#item').options.length") == len(schema.items)
            pick(tab, "#item", "selectedIndex = 1")
            item = tab.run("document.querySelector('#item').value")
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


def test_each_target_can_be_drawn_with_what_its_band_covered(tab, plain, tmp_path):
    tab.open(plain[0])
    assert tab.text("#legend-band") == "80 % band; its coverage was not measured"
    bundle = make_bundle(tmp_path)
    columns = dict(zip(COLUMNS, ({"coverage": each} for each in (0.71, 0.66, None)), strict=True))
    found = {"80": {"coverage": 0.74, "columns": columns}, "95": {"coverage": 0.91}}
    rejudged(bundle, intervals=found).save(tmp_path)
    with opened(tab, tmp_path):
        told = "80 % band, covered 74 % of the test values"
        buttons, drawn = "[...document.querySelectorAll('#targets button')]", set()
        for place, of in enumerate((", of load 71 %", ", of wind 66 %", "")):
            tab.run(f"{buttons}[{place}].focus()")
            tab.press("Enter")
            assert tab.text("#legend-band") == told + of
            assert tab.run("document.querySelector('#column').value") == COLUMNS[place]
            drawn.add(tab.run("document.querySelector('path.forecast').getAttribute('d')"))
        pressed = tab.run(f"{buttons}.map(e => e.getAttribute('aria-pressed'))")
        assert (pressed, len(drawn)) == (["false", "false", "true"], 3)
        assert "95 % band: covered 91 % of the test values" in tab.text("#facts")


def test_the_total_of_the_horizon_and_paths_can_be_seen(tab, tmp_path):
    bundle = make_bundle(tmp_path, **KINDS["panel"])
    with opened(tab, tmp_path):
        ahead = values(tab)["load"].sum()
        words = tab.text("#total")
        assert words.startswith(f"Total of load over the {HORIZON} hours: {ahead:.5g}"[:40])
        assert re.search(r"\(80 % band -?[\d.]+ to [\d.]+\)", words)
        count = "document.querySelectorAll('#chart path.sample').length"
        assert tab.run(count) == 0
        pick(tab, "#paths", "checked = true")
        assert tab.run(count) == 20
    replace(bundle, intervals=replace(bundle.intervals, errors=None)).save(tmp_path)
    with opened(tab, tmp_path):
        assert tab.text("#total") == ""
        assert tab.run("document.querySelector('#paths-field').hidden")


def test_a_long_history_does_not_squeeze_the_forecast(tab, tmp_path):
    """Two seasons of 5 steps or three horizons of 6 are drawn, of 24 steps; all on request."""
    bundle = make_bundle(tmp_path)
    reading = replace(bundle.schema.reading, seasons=(5,))
    keep(replace(bundle, schema=replace(bundle.schema, reading=reading)), tmp_path)
    steps = (
        "[...document.querySelectorAll('path.history')].map("
        "(path) => path.getAttribute('d').match(/[ML]/g).length)"
    )
    with opened(tab, tmp_path, 375):
        assert tab.run(steps) == [3 * HORIZON] * 4, "in the chart and in those of the targets"
        tab.run("document.querySelector('#download').focus()")
        tab.press("Tab")
        tab.press(" ")
        assert tab.run(steps) == [PAST] * 4
        tab.run("document.querySelector('#whole').click()")
        pick(tab, "#horizon", "value = 2")
        assert tab.run(steps) == [12] * 4, "at least"


def test_a_short_history_can_be_taken(tab, tmp_path):
    bundle = make_bundle(tmp_path)
    keep(blended(bundle, network=0.5, cycle=0.3, last=0.2), tmp_path)
    frame = history(bundle).tail(3)
    with serving(tmp_path) as url:
        tab.open(url)
        assert "at least 1 (24 for all parts of the model)" in tab.text("#wanted")
        assert "drop" not in tab.text("#python")
        tab.paste(frame.to_csv(index=False))
        assert "100 % last value alone" in tab.text("#warnings")
        assert 'short_history="drop"' in tab.text("#python")
        expected = Predictor.load(tmp_path, "cpu").predict(frame, short_history="drop")
    np.testing.assert_allclose(values(tab)["load"], expected["load"], rtol=1e-5)


class TestHistories:
    @pytest.fixture(autouse=True)
    def _opened(self, tab, plain):
        tab.open(plain[0])

    @pytest.mark.parametrize(
        ("encoding", "rows"), [("utf-8", 29), ("cp1252", 29), ("utf-8", 20_000)]
    )
    def test_a_file_that_is_chosen_can_be_downloaded_and_asked_elsewhere(
        self, tab, plain, tmp_path, encoding, rows
    ):
        """The download has all targets with their bands, by RFC 4180."""
        frame = history(plain[1].bundle, rows)
        text = frame.to_csv(index=False, sep=";", lineterminator="\n")
        (tmp_path / "mine.csv").write_text(text, encoding=encoding)
        tab.choose(tmp_path / "mine.csv")
        short = text if (encoding, rows) == ("utf-8", 29) else ""  # else kept out of the field
        assert tab.run("document.querySelector('#csv').value") == short
        assert f"The newest {PAST} of {len(frame)} rows were read." in tab.text("#notes")
        assert "inputs[" not in tab.text("#notes"), "the page sends one series"
        assert tab.text("#result-title") == "Forecast of mine.csv"
        assert tab.run("document.querySelector('#made-up').hidden")
        tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        tab.run("document.querySelector('#download').click()")
        file = tmp_path / "mine-forecast.csv"
        until(lambda: file.exists() and file.stat().st_size)
        data = file.read_bytes()
        assert data.endswith(b"\r\n")
        assert data.count(b"\r\n") == data.count(b"\n") == 1 + HORIZON
        answer, expected = pd.read_csv(file), plain[1].predict(frame, levels=(0.1, 0.9))
        assert pd.to_datetime(answer.pop("time")).to_list() == expected.pop("time").to_list()
        pd.testing.assert_frame_equal(answer, expected, rtol=1e-6, atol=1e-5)
        lines = tab.text("#python").replace("print(ahead)", "print(ahead.to_csv(index=False))")
        python = printed([sys.executable, "-c", lines], cwd=tmp_path)
        answer = pd.read_csv(io.StringIO(python)).drop(columns="time")
        pd.testing.assert_frame_equal(answer, expected, rtol=1e-6, atol=1e-5)
        found = json.loads(printed(["bash", "-c", tab.text("#curl")]))["predictions"][0]["mean"]
        np.testing.assert_allclose(values(tab)["load"], [row[0] for row in found], rtol=1e-12)

    def test_a_workbook_can_be_chosen(self, tab, plain, tmp_path):
        frame = history(plain[1].bundle)
        (tmp_path / "mine.xlsx").write_bytes(as_workbook(frame, []))
        tab.choose(tmp_path / "mine.xlsx")
        assert tab.text("#result-title") == "Forecast of mine.xlsx"
        assert "The file has the sheets 'S0', 'S1': 'S1' is read." in tab.text("#notes")
        expected = plain[1].predict(frame)["load"]
        np.testing.assert_allclose(values(tab)["load"], expected, rtol=1e-6, atol=1e-5)
        (tmp_path / "old.xls").write_bytes(ENCRYPTED * 9)
        tab.choose(tmp_path / "old.xls", then=FAILED)
        assert tab.text("#notes") == ""
        assert tab.run("document.querySelector('#elsewhere').hidden"), "of the file before"
        assert "it is encrypted, or older than Excel 2007" in tab.text("#error")

    def test_a_file_can_be_dropped(self, tab, frame):
        tab.run("document.querySelector('#status').textContent = ''")
        tab.run(
            "{ const dataTransfer = new DataTransfer();"
            f"dataTransfer.items.add(new File([{json.dumps(frame.to_csv(index=False))}], 'x.csv'));"
            "document.querySelector('#chart').dispatchEvent("
            "new DragEvent('drop', { dataTransfer, cancelable: true, bubbles: true })) }"
        )
        tab.wait(SHOWN)
        assert 'predict("x.csv"' in tab.text("#python")

    def test_what_does_not_fit_is_said_and_mended(self, tab, frame):
        tab.paste(frame.assign(wind="calm").to_csv(index=False), then=FAILED)
        assert "row 1 (2026-03-01 00:00:00), column 'wind'" in tab.text("#error")
        assert tab.run("document.querySelector('#result').hidden")
        assert tab.run("document.querySelector('#error').getAttribute('role')") == "alert"
        tab.paste(frame.to_csv(index=False))
        assert tab.run("document.querySelector('#error').hidden")
        pick(tab, "#horizon", "value = 7", then=FAILED)
        assert tab.text("#error") == "This model forecasts at most 6 steps."

    def test_the_keyboard_is_enough(self, tab):
        seen = []
        while not seen or (seen[-1] != "chart" and len(seen) < 20):
            tab.press("Tab")
            seen.append(tab.run("document.activeElement.id || document.activeElement.textContent"))
        wanted = ["model", "file", "horizon", "column", "chart"]
        assert [name for name in seen if name in wanted] == wanted
        tab.press("ArrowRight")
        assert "load, 2026-01-02 01:00: forecast" in tab.text("#readout")


def test_models_of_one_name_can_be_switched(tab, tmp_path, registry):
    wide = tuple(f"column {number}" for number in range(300))
    for number, alias in enumerate(("champion", "wide", "next")):
        columns = (("load", "wind"), wide, ("wind",))[number]
        bundle = make_bundle(tmp_path / alias, columns=columns, model="tokens")
        version = str(number)
        registry.put(f"a@{alias}", tmp_path / alias, name="a", version=version, alias=alias)
    forecaster = Predictor(bundle)
    expected = forecaster.predict(forecaster.example)
    with opened(tab, Path("a@champion,a@wide,a@next"), 375):
        assert len(values(tab).columns) == 1 + 3 * 2
        pick(tab, "#model", "selectedIndex = 1")
        tab.run("document.querySelector('nav a').click()")
        assert "column 11 and 288 more" in tab.text("#facts")
        assert tab.run("document.querySelector('#card').open")
        assert "286 more targets" in tab.text("#more-targets")
        assert tab.run("document.documentElement.scrollWidth") == 375
        assert complaints(tab) == []
        pick(tab, "#model", "selectedIndex = 2")
        assert tab.run("document.querySelector('#model').value") == "a@next"
        assert 'model="a@next"' in tab.text("#python")
    np.testing.assert_allclose(values(tab)["wind"], expected["wind"], rtol=1e-6, atol=1e-5)


def test_a_service_without_a_model_says_why(tab, tmp_path):
    with serving(tmp_path / "none") as url:
        tab.call("Page.navigate", url=url)
        tab.wait(FAILED)
        assert "The model could not be found" in tab.text("#error")


def test_a_key_is_asked_for_and_told_to_nobody(tab, tmp_path):
    make_bundle(tmp_path)
    key = "s3cret"
    with serving(tmp_path, api_keys=(f"anna:{sha256(key.encode()).hexdigest()}",)) as url:
        tab.call("Page.navigate", url=url)
        tab.wait(FAILED)
        assert tab.text("#error") == "This service needs an API key."
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
        environment = {**os.environ, "FORECASTER_API_KEY": key}
        found = json.loads(printed(["bash", "-c", tab.text("#curl")], env=environment))
        assert len(found["predictions"][0]["mean"]) == HORIZON
        assert 'api_key=os.environ["FORECASTER_API_KEY"]' in tab.text("#python")
