"""The page in a real browser."""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.client import Client
from forecaster.datasets import reader
from forecaster.datasets.reading import Reading, Stamps, Text
from forecaster.forecast.notices import Notice
from forecaster.forecast.predictor import Predictor, keep
from tests.browser import FAILED, SHOWN, TEXT, Tab, complaints, quiet, wants_chromium
from tests.bundles import blended, rejudged, warning
from tests.service.toy import COLUMNS, HORIZON, KINDS, NAME, PAST, Registry, make_bundle
from tests.test_client import history, serving

pytestmark = [pytest.mark.slow, wants_chromium]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Predictor]]:
    """The URL of a service, and its model."""
    folder = tmp_path_factory.mktemp("bundle")
    forecaster = Predictor(make_bundle(folder))
    with serving(folder) as url:
        yield url, forecaster


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
    assert "This is a made-up example, not your data" in tab.text("#made-up")
    assert not tab.run("document.querySelector('#made-up').hidden")
    assert tab.text("#wanted").startswith("One row per hour, at least 24 of them, with the columns")
    assert "load, wind, Zürich °C: up to 6 hours ahead" in tab.text("#facts")
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
        warned = tab.run("[...document.querySelectorAll('.remark')].map((e) => e.textContent)")
    remarks = [str(each) for each in said if isinstance(each, Notice)]
    assert len(listed) >= 4
    assert {*listed} >= {*warned} == {each[0].upper() + each[1:] + "." for each in remarks}


def test_what_a_band_covered_stands_beside_it(tab: Tab, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    columns = dict(zip(COLUMNS, ({"coverage": each} for each in (0.71, 0.66, None)), strict=True))
    found = {"80": {"coverage": 0.74, "columns": columns}, "95": {"coverage": 0.91}}
    rejudged(bundle, intervals=found).save(tmp_path)
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        assert tab.text("#legend-band") == (
            "80 % band, covered 74 % of the test values, of load 71 %"
        )
        small = tab.run("[...document.querySelectorAll('#targets button')].map(e => e.innerText)")
        assert ["80 % band, covered" in each for each in small] == [True, True, False]
        assert "covered 66 %" in small[1]
        tab.run("document.querySelectorAll('#targets button')[1].click()")
        assert tab.text("#legend-band").endswith("of wind 66 %")
        tab.run("document.querySelectorAll('#targets button')[2].click()")
        assert tab.text("#legend-band") == "80 % band, covered 74 % of the test values"
        assert "95 % band, covered 91 % of the test values." in tab.text("#facts")
        assert "the 80 % band covered 74.0% of the test values" in tab.text("#warnings").replace(
            "The", "the"
        )


def test_a_band_that_was_not_measured(tab: Tab, plain: tuple[str, Predictor]) -> None:
    tab.open(plain[0])
    assert tab.text("#legend-band") == "80 % band; its coverage was not measured"


def test_of_many_targets_some_are_drawn_and_all_are_given(tab: Tab, tmp_path: Path) -> None:
    make_bundle(tmp_path, columns=tuple(f"c{number}" for number in range(30)))
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url, 375)
        assert tab.run("document.querySelectorAll('#targets button').length") == 24
        assert tab.text("#more-targets").startswith("6 more targets are in the list above")
        assert tab.run("document.querySelectorAll('#column option').length") == 30
        assert len(values(tab).columns) == 1 + 3 * 30
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 375])
def test_a_long_history_does_not_squeeze_the_forecast(tab: Tab, tmp_path: Path, width: int) -> None:
    """Two seasons of 5 steps or three horizons of 6 are drawn, of 24 steps; all on request."""
    bundle = make_bundle(tmp_path)
    reading = replace(bundle.schema.reading, seasons=(5,))
    keep(replace(bundle, schema=replace(bundle.schema, reading=reading)), tmp_path)
    steps = (
        "[...document.querySelectorAll('path.history')].map("
        "(path) => path.getAttribute('d').match(/[ML]/g).length)"
    )
    label = "document.querySelector('#chart').getAttribute('aria-label')"
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url, width)
        assert tab.run(steps) == [3 * HORIZON] * 4, "in the chart and in those of the targets"
        assert "18 steps of history and 6 of forecast" in tab.run(label)
        tab.run("document.querySelector('#column').focus()")
        tab.press("Tab")
        assert tab.run("document.activeElement.labels[0].innerText.trim()") == (
            "Draw the whole history"
        )
        assert complaints(tab) == []
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        tab.press(" ")
        assert tab.run(steps) == [PAST] * 4
        assert "24 steps of history" in tab.run(label)
        tab.run("document.querySelector('#horizon').value = 2")
        tab.run("document.querySelector('#whole').click()")
        tab.run("document.querySelector('#status').textContent = ''")
        tab.run("document.querySelector('#horizon').dispatchEvent(new Event('change'))")
        tab.wait(SHOWN)
        assert tab.run(steps) == [12] * 4, "at least"


def test_a_short_history_is_drawn_whole(tab: Tab, plain: tuple[str, Predictor]) -> None:
    tab.open(plain[0])
    assert tab.run("document.querySelector('#whole-field').hidden")
    assert "24 steps of history" in tab.run(
        "document.querySelector('#chart').getAttribute('aria-label')"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda frame: frame.assign(sky=["fog", *frame["sky"][1:]]),
            "Row 1 (line 2), column 'sky': 'fog' is not one of the words that the model knows: "
            "clear, rain.",
        ),
        (
            lambda frame: frame[:-2],
            "The model needs 'sky', 'holiday' for the 6 hours ahead, in rows at the end with no "
            "other values; the file has 4 rows of this kind.",
        ),
        (
            lambda frame: frame.assign(holiday=[*frame["holiday"][:-1], None]),
            "column 'holiday': the value is missing, but covariates known ahead must be complete.",
        ),
        (lambda frame: frame.drop(columns="sky"), "The file lacks the column 'sky'."),
    ],
)
def test_what_is_known_ahead_is_asked_for_in_the_words_of_the_file(
    tab: Tab, tmp_path: Path, change: Any, words: str
) -> None:
    frame = history(make_bundle(tmp_path, model="tokens", **KINDS["words"]))
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        assert "'sky', 'holiday' also for the 6 hours ahead:" in tab.text("#wanted")
        tab.paste(change(frame).to_csv(index=False))
        tab.wait(FAILED)
        assert words in tab.text("#error")


def test_a_short_history_can_be_taken(tab: Tab, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    keep(blended(bundle, network=0.5, cycle=0.3, last=0.2), tmp_path)
    frame = history(bundle).tail(3)
    with serving(tmp_path) as url, quiet(tab):
        tab.open(url)
        assert "of at least 1 row" in tab.text("#drop-field")
        assert not tab.run("document.querySelector('#drop-field').hidden")
    with serving(tmp_path) as url:  # the browser complains of a 422
        tab.open(url)
        tab.paste(frame.to_csv(index=False))
        tab.wait(FAILED)
        assert tab.text("#error").startswith("The file has 3 rows; this model needs at least 24. ")
        assert "Tick the box for a shorter history" in tab.text("#error")
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
        assert f"The newest {PAST} of {len(frame)} rows were read." in tab.text("#warnings")
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
                "The file has 3 rows; this model needs at least 24.",
            ),
            (
                lambda frame: frame.drop(columns="wind"),
                "The file lacks the column 'wind'. Its columns are time, load,",
            ),
            (
                lambda frame: frame.assign(wind=np.nan),
                "Column 'wind' has no value at all in the newest 24 rows.",
            ),
            (
                lambda frame: frame.drop(index=9),
                "Row 10 (line 11), column 'time': expected 2026-03-01 09:00, because the file has "
                "one row per hour, got 2026-03-01 10:00.",
            ),
            (
                lambda frame: frame.iloc[[*range(10), *range(9, len(frame))]],
                "Row 11 (line 12), column 'time': 2026-03-01 09:00 is repeated. Keep one row for "
                "every hour.",
            ),
            (
                lambda frame: frame.iloc[[*range(9), 10, 9, *range(11, len(frame))]],
                "Row 11 (line 12), column 'time': the rows are out of order, 2026-03-01 09:00 "
                "comes after 2026-03-01 10:00. Sort them by time, the oldest first.",
            ),
            (
                lambda frame: frame[::-1],
                "out of order, 2026-03-01 22:00 comes after 2026-03-01 23:00.",
            ),
            (
                lambda frame: frame.assign(wind="calm"),
                "Row 1 (line 2), column 'wind': 'calm' is not a number.",
            ),
            (
                lambda frame: frame.drop(columns="time"),
                "The file has no time column: expected 'time'",
            ),
            (
                lambda frame: frame[["time"]],
                "The file lacks the columns 'load', 'wind', 'Zürich °C'.",
            ),
            (lambda frame: frame.head(0), "There are no rows below the header line"),
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

    @pytest.mark.parametrize("text", ["", " \n\n", "sep=;\n"])
    def test_a_file_or_field_without_text(self, tab: Tab, text: str, tmp_path: Path) -> None:
        (tmp_path / "empty.csv").write_text(text, encoding="utf-8")
        with quiet(tab):
            for put in (lambda: tab.paste(text), lambda: tab.choose(tmp_path / "empty.csv")):
                tab.run("document.querySelector('#error').hidden = true")
                put()
                tab.wait(FAILED)
                assert tab.text("#error") == (
                    "The file or the field is empty: give a header line, and one row for each time "
                    "step."
                )

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
        assert "Row 3 (line 4): the header has 4 fields, this row has 5." in tab.text("#error")

    def test_a_horizon_beyond_the_model_is_the_services_to_refuse(self, tab: Tab) -> None:
        tab.run("document.querySelector('#horizon').value = 7")
        tab.run("document.querySelector('#horizon').dispatchEvent(new Event('change'))")
        tab.wait(FAILED)
        assert tab.text("#error") == "This model forecasts at most 6 steps."

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

    def test_all_targets_are_drawn(self, tab: Tab) -> None:
        buttons = "[...document.querySelectorAll('#targets button')]"
        assert tab.run(f"{buttons}.map(e => e.querySelector('strong').textContent)") == [*COLUMNS]
        paths = tab.run(f"{buttons}.map(e => e.querySelector('path.forecast').getAttribute('d'))")
        assert len(set(paths)) == 3
        tab.run(f"{buttons}[1].focus()")
        tab.press("Enter")
        assert tab.run("document.querySelector('#column').value") == COLUMNS[1]
        pressed = tab.run(f"{buttons}.map(e => e.getAttribute('aria-pressed'))")
        assert pressed == ["false", "true", "false"]
        assert COLUMNS[1] in tab.text("#readout")

    def test_the_forecast_can_be_downloaded(
        self, tab: Tab, plain: tuple[str, Predictor], frame: pd.DataFrame, tmp_path: Path
    ) -> None:
        """All targets with their bands, by RFC 4180."""
        frame.to_csv(tmp_path / "mine.csv", index=False)
        tab.choose(tmp_path / "mine.csv")
        tab.wait(SHOWN)
        tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        tab.run("document.querySelector('#download').click()")
        file = tmp_path / "mine-forecast.csv"
        while not file.exists():
            time.sleep(0.05)
        data = file.read_bytes()
        assert data.endswith(b"\r\n")
        assert data.count(b"\r\n") == data.count(b"\n") == 1 + HORIZON
        answer, expected = pd.read_csv(file), plain[1].predict(frame, levels=(0.1, 0.9))
        assert pd.to_datetime(answer.pop("time")).to_list() == expected.pop("time").to_list()
        pd.testing.assert_frame_equal(answer, expected, rtol=1e-6, atol=1e-5)

    def test_the_example_is_no_data_of_ours(self, tab: Tab, frame: pd.DataFrame) -> None:
        assert tab.text("#result-title") == "Forecast of the example"
        assert "made up" in tab.text("#csv-label")
        tab.paste(frame.to_csv(index=False))
        tab.wait(SHOWN)
        assert tab.run("document.querySelector('#made-up').hidden")
        assert tab.text("#result-title") == "Forecast"
        assert tab.text("#csv-label") == "CSV with a header line"
        tab.run("document.querySelector('#status').textContent = ''")
        tab.run("document.querySelector('#example').click()")
        tab.wait(SHOWN)
        assert not tab.run("document.querySelector('#made-up').hidden")

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
"""Two models in place of one: the second has a shorter horizon, under the name of an alias."""


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
            assert f"here is no such model here; the models are: {NAME}" in tab.text("#error")
            assert "wind: up to 3 hours ahead" in tab.text("#facts")
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
        assert "The model could not be found" in tab.text("#error")


def test_a_key_is_asked_for_and_told_to_nobody(tab: Tab, tmp_path: Path) -> None:
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
        mean = [
            row[0] for row in json.loads(shown(tab.text("#curl"), key))["predictions"][0]["mean"]
        ]
        np.testing.assert_allclose(values(tab)["load"], mean, rtol=1e-12)
        assert 'Client("' + url + '", api_key=os.environ["FORECASTER_API_KEY"])' in tab.text(
            "#python"
        )


def shown(command: str, key: str) -> str:
    """What a command prints with the key in the environment."""
    environment = {**os.environ, "FORECASTER_API_KEY": key}
    return subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=True
    ).stdout


def written(separator: str, decimal: str, stamps: str, **marks: str) -> str:
    """A table as people write it: two columns of numbers that show their decimal sign."""
    rng, lines = np.random.default_rng(1), [f"time{separator}load{separator}Zürich °C"]
    for stamp in pd.date_range("2026-01-28", periods=PAST + 2, freq="h"):
        load, degrees = (f"{each:,.2f}" for each in (1000 + rng.normal(0, 9), rng.normal(20, 3)))
        load = load.translate({ord(","): marks.get("thousands", ""), ord("."): decimal})
        cells = [f"{stamp:{stamps}}", load, degrees.replace(".", decimal)]
        lines.append(separator.join(f'"{cell}"' if separator in cell else cell for cell in cells))
    return "\n".join([*lines, ""])


ISO, GERMAN, AMERICAN = "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p"
TABLES = {
    "German": written(";", ",", GERMAN),
    "German, of thousands": written(";", ",", GERMAN, thousands="."),
    "French": written(";", ",", "%d/%m/%Y %H:%M", thousands="\u202f"),
    "Swiss": written(";", ".", GERMAN, thousands="'"),
    "commas in quotes": written(",", ",", ISO),
    "American": written(",", ".", AMERICAN, thousands=","),
    "tabs": written("\t", ",", ISO),
    "years of two digits": written(";", ",", "%d.%m.%y %H:%M"),
    "of Excel": "sep=;\r\n" + written(";", ",", GERMAN).replace("\n", "\r\n"),
    "with holes": re.sub(r"(?m);2\d,\d\d$", ";n/a", written(";", ",", GERMAN)),
    "both signs": written(";", ",", ISO).replace(",", ".", 1),
    "words": written(";", ",", ISO).replace(",", "?,", 1),
    "no zone here": written(";", ",", "%Y-%m-%dT%H:%M+01:00"),
    "no such day": written(";", ",", GERMAN).replace("28.01", "30.02", 1),
    "unclear numbers": "\n".join(
        ["time;load;Zürich °C", *(f"2026-01-01 {i:02}:00;1,{234 + i};7" for i in range(PAST))]
    ),
    "days or months": "\n".join(
        ["time;load;Zürich °C", *(f"0{i}/02/2026;1,5;7" for i in range(1, 10))]
    ),
    "unclear stamps": "\n".join(
        ["time;load;Zürich °C", *(f"01/02/2026 {i:02}:00;1,5;7" for i in range(PAST))]
    ),
}
"""Texts by kind; the last ones are refused."""
REFUSED = {
    "both signs": "'1002,97' has a decimal comma, '1003.11' a decimal point.",
    "words": "is not a number",
    "no zone here": "has a time zone",
    "no such day": "expected a time such as",
    "unclear numbers": "'1,234' may be 1234 or 1.234.",
    "days or months": "'01/02/2026' is 1 February 2026 or 2 January 2026",
    "unclear stamps": "'01/02/2026 00:00' is 1 February 2026 or 2 January 2026",
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service whose model reads two columns."""
    folder = tmp_path_factory.mktemp("two")
    make_bundle(folder, columns=("load", "Zürich °C"))
    with serving(folder) as url:
        yield url


class TestTables:
    """The page reads what the Python client reads, to the same forecast, and guesses as little."""

    @pytest.mark.parametrize("kind", TABLES)
    def test_a_table_is_read_as_the_client_reads_it(
        self, tab: Tab, two: str, kind: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "mine.csv"
        file.write_text(TABLES[kind], encoding="utf-8", newline="")
        tab.open(two)
        tab.choose(file)
        if kind in REFUSED:
            tab.wait(FAILED)
            assert REFUSED[kind] in tab.text("#error")
            with pytest.raises(DataError):
                Client(two).predict(file)
            return
        tab.wait(f"{SHOWN} || {FAILED}")
        assert tab.text("#error") == ""
        expected = Client(two).predict(file, levels=(0.1, 0.9))
        answer = values(tab)
        assert pd.to_datetime(answer.pop("time")).to_list() == expected.pop("time").to_list()
        pd.testing.assert_frame_equal(answer, expected, rtol=1e-6, atol=1e-5)

    @pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
    def test_letters_of_windows(self, tab: Tab, two: str, encoding: str, tmp_path: Path) -> None:
        (tmp_path / "mine.csv").write_text(TABLES["German"], encoding=encoding)
        tab.open(two)
        tab.choose(tmp_path / "mine.csv")
        tab.wait(SHOWN)
        assert [*values(tab)][4] == "Zürich °C"

    def test_a_cell_that_is_no_number_is_told_by_row_and_column(self, tab: Tab, two: str) -> None:
        lines = TABLES["German"].splitlines()
        lines[17] = lines[17].rpartition(";")[0] + ";calm"
        tab.open(two)
        tab.paste("\n".join([*lines[:5], "", *lines[5:]]))
        tab.wait(FAILED)
        assert tab.text("#error") == (
            "Row 17 (line 19), column 'Zürich °C': 'calm' is not a number."
        )


READS = """((text, card) => {
  try {
    const csv = readCsv(text);
    const decimal = decimalOf(csv, card);
    const form = formOf(csv.rows.map((row) => row["=time"]), card, "time");
    const times = csv.rows.map((row) => parseTime(row["=time"], form));
    if (times.some(Number.isNaN)) throw new Refused("no time");
    return [times, ...["a", "b"].map((name) => numbersOf(csv, csv.rows, name, card, decimal))];
  } catch (error) {
    if (error instanceof Refused) return error.message;
    throw error;
  }
})"""
"""How the page reads a table: times in milliseconds and two columns, or why it refuses."""


def a_table(rng: np.random.Generator) -> tuple[str, Reading]:
    """A table as people might write it, with mistakes, and what a model knows of others."""
    of = rng.choice
    separator, decimal = of([",", ";", "\t", "|"]), of([".", ","])
    thousands = of(["", "", *{".", ",", " ", "\u202f", "'"} - {decimal}])
    digits, size, freq = of([0, 1, 2, 3]), of([1, 50, 999, 1e6]), of(["h", "D", "MS"])
    form = of([ISO, GERMAN, AMERICAN, "%d/%m/%Y %H:%M", "%Y/%m/%d", "%d.%m.%y"])

    def number(value: float) -> str:
        odd = rng.random()
        if odd < 0.04:
            return str(of(["", "n/a", "-", "NaN"]))
        if odd < 0.043:
            return str(of(["x", "1,2,3", "12.34.56", "1.5e3", "true", "--5", "5 %"]))
        text = f"{abs(value):,.{digits}f}".translate({ord(","): thousands, ord("."): decimal})
        return ("-" if value < 0 else "") + text

    lines = [separator.join(("time", "a", "b"))]
    for stamp in pd.date_range(of(["2026-01-28", "2026-02-01"]), periods=of([4, 30]), freq=freq):
        cells = [f"{stamp:{form}}", number(rng.normal(0, size)), number(rng.uniform(0, 50))]
        lines.append(separator.join(f'"{each}"' if separator in each else each for each in cells))
    known = Text(separator=of([",", ";"]), decimal=of([".", ",", ""]))
    reading = Reading(
        time="time", targets=("a", "b"), freq=str(freq), timezone="naive", panel=False,
        policy="resample", text=of([None, known]), seasons=(1,),
        stamps=of([None, Stamps("iso"), Stamps("day-first"), Stamps("month-first")]),
    )  # fmt: skip
    return "\n".join([*lines, ""]), reading


def test_any_table_is_read_as_the_reader_reads_it(tab: Tab, two: str, tmp_path: Path) -> None:
    rng, read = np.random.default_rng(0), 0
    tab.open(two)
    for _ in range(300):
        text, reading = a_table(rng)
        (tmp_path / "table.csv").write_text(text, encoding="utf-8")
        card = json.dumps({"freq": reading.freq, "reading": reading.to_dict()})
        found = tab.run(f"{READS}({json.dumps(text)}, {card})")
        series, why = None, ""
        try:
            series = reader.history(tmp_path / "table.csv", reading).series
        except DataError as error:
            why = str(error)
        if "no value at all" in why:  # which the service reports to the page
            continue
        assert isinstance(found, str) == (series is None), (text, found, why)
        if series is not None and len(found[0]) == len(series.times):
            stamps = series.times.astype("datetime64[ms]").astype("int64")
            assert found[0] == stamps.to_list(), text
            numbers = np.array(found[1:], dtype=np.float64).T
            np.testing.assert_allclose(series.values, numbers, rtol=1e-6, err_msg=text)
            read += 1
    assert read > 100


@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tab: Tab, tmp_path: Path, width: int, scheme: str) -> None:
    """In the example, in a forecast with every kind of notice, and in an error."""
    bundle = warning(make_bundle(tmp_path)).save(tmp_path)
    with serving(tmp_path) as url:
        tab.open(url, width, scheme)
        tab.run("document.querySelector('details').open = true")
        assert complaints(tab) == []
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        tab.paste(history(bundle)[-PAST:].to_csv(index=False))
        tab.wait(SHOWN)
        assert tab.text("#warnings")
        assert complaints(tab) == []
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        tab.paste("time;load\n2026-01-01;1,5")
        tab.wait(FAILED)
        assert complaints(tab) == []
