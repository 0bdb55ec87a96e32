"""The client with real services: its answers are the forecasts of the model itself."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import requests
import uvicorn
from pytest_httpserver import HTTPServer
from werkzeug import Response

from forecaster import client as module
from forecaster.base.errors import DataError, ForecasterError, UnavailableError, UsageError
from forecaster.client import Client
from forecaster.datasets.dataset import id_parts
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.notices import Notice
from forecaster.forecast.predictor import Predictor, keep
from forecaster_service.app import create_app
from forecaster_service.settings import Settings
from tests.bundles import blended, warning
from tests.service.processes import free_port
from tests.service.toy import HORIZON, KINDS, NAME, PAST, make_bundle, rename


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[str]:
    """The URL of a service in a thread of this process, on a real socket."""
    port = free_port()
    app = create_app(Settings(model=str(folder), **settings))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started or app.state.store.status == "loading":
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Predictor]]:
    """The URL of a service, and its model."""
    folder = tmp_path_factory.mktemp("bundle")
    forecaster = Predictor(make_bundle(folder))
    with serving(folder) as url:
        yield url, forecaster


def history(bundle: Bundle, rows: int = PAST + 5) -> pd.DataFrame:
    """Noise around the means with holes, of every series; covariates reach over the horizon."""
    schema, rng = bundle.schema, np.random.default_rng(0)
    names = schema.items + schema.columns[1:] if schema.wide else schema.columns
    ahead = bundle.horizon if schema.known.columns else 0
    parts = []
    for item in schema.items if schema.id else ("",):
        frame = pd.DataFrame(rng.normal(10, 3, (rows + ahead, len(names))), columns=list(names))
        frame.iloc[rng.integers(0, rows, 3), 0] = np.nan
        frame.iloc[rows - 1] = 10.0
        frame.iloc[0] = 10.0
        frame.iloc[rows:] = np.nan
        for name in schema.known.columns:
            frame[name] = rng.normal(size=len(frame))
        for name, words in schema.reading.categories.items():
            there = frame[schema.reading.read_as([name])[-1]].notna()
            frame[name] = np.where(there, rng.choice(words, len(frame)), None)
            frame = frame.drop(columns=list(schema.reading.read_as([name])))
        for attribute in schema.known.attributes:
            frame[attribute.name] = attribute.words[-1] if attribute.words else 120.0
        times = pd.date_range("2026-03-01", periods=len(frame), freq=schema.freq)
        frame.insert(0, schema.time, times)
        for place, column in enumerate(schema.id):
            frame.insert(place, column, id_parts(item, len(schema.id))[place])
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def same(answer: pd.DataFrame, wanted: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(answer, wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "UTC"])
def test_it_answers_as_the_model_itself(kind: str, tmp_path: Path) -> None:
    others = {"UTC": {"timezone": "UTC", "freq": "15min"}}
    bundle = make_bundle(tmp_path, **{**others, **KINDS}[kind])
    frame, levels = history(bundle), (0.9, 0.1, 0.25)
    joint: list[dict[str, Any]] = [{"samples": 3}, {"total": "horizon"}, {"total": "horizon"}]
    if bundle.schema.items:
        joint[-1] |= {"by": "all", "levels": (0.5, 0.9)}
    predictor = Predictor(bundle)
    expected = predictor.predict(frame, 4, levels)
    with serving(tmp_path) as url:
        answer = Client(url).predict(frame, 4, levels)
        for asked in joint:
            same(Client(url).predict(frame, 4, **asked), predictor.predict(frame, 4, **asked))
    same(answer, expected)
    assert len(answer.select_dtypes("number").columns) >= 4


class TestPredict:
    def test_the_model_that_is_named_among_several_for_the_right_key(self, tmp_path: Path) -> None:
        one = make_bundle(tmp_path / "one", columns=("x",))
        two = rename(make_bundle(tmp_path / "two", columns=("y",)), tmp_path / "two", "other")
        keys = (f"anna:{sha256(b'abc').hexdigest()}",)
        with serving(Path(f"{tmp_path / 'one'},{tmp_path / 'two'}"), api_keys=keys) as url:
            client = Client(url, "abc")
            answers = [client.predict(history(one)), client.predict(history(two), model="other")]
            assert client.predict(history(one), model=NAME).equals(answers[0])
            with pytest.raises(UnavailableError, match=f"no model third; there is {NAME}, other"):
                client.model("third")
            for key in (None, "abd"):
                with pytest.raises(UsageError, match=r"key|header"):
                    Client(url, key).models()
        for answer, bundle in zip(answers, (one, two), strict=True):
            same(answer, Predictor(bundle).predict(history(bundle)))

    def test_files_frames_and_a_future_apart(self, tmp_path: Path) -> None:
        bundle = make_bundle(tmp_path / "bundle", **KINDS["ahead"])
        frame = history(bundle)
        frame.to_csv(tmp_path / "whole.csv", index=False)
        frame[:-HORIZON].to_csv(tmp_path / "history.csv", index=False)
        future = frame[-HORIZON:][["time", "holiday", "target"]]
        with serving(tmp_path / "bundle") as url:
            whole = Client(url).predict(tmp_path / "whole.csv")
            apart = Client(url + "/").predict(tmp_path / "history.csv", future=future)
            polar = Client(url).predict(pl.from_pandas(frame))
        assert len(whole) == HORIZON
        pd.testing.assert_frame_equal(apart, whole)
        assert isinstance(polar, pl.DataFrame)
        assert polar["load"].to_list() == pytest.approx(whole["load"].to_list())

    def test_a_panel_in_several_requests_and_what_is_said_of_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "SERIES", 2)
        bundle = warning(make_bundle(tmp_path, **KINDS["panel"])).save(tmp_path)
        frame, levels = history(bundle).replace({"town": {"None": "Basel"}}), (0.1, 0.9)
        expected: list[str] = []
        wanted = Predictor(bundle).predict(frame, levels=levels, say=expected.append)
        said: list[str] = []
        real, sent = requests.request, []

        def request(method: str, url: str, **options: Any) -> Any:
            sent.append(len(options["json"]["inputs"]) if "json" in options else url)
            return real(method, url, **options)

        monkeypatch.setattr(requests, "request", request)
        with serving(tmp_path) as url:
            answer = Client(url).predict(frame, levels=levels, say=said.append)
        assert sent == [f"{url}/models", 2, 1]
        same(answer, wanted)
        assert {*said} == {*expected}
        assert {each.code for each in said if isinstance(each, Notice)} == {
            "own_scale", "lost_to_floor", "coverage", "first_step", "unlike_training",
        }  # fmt: skip
        assert any(each.startswith("series 'Basel': it is scaled by its own") for each in said)

    @pytest.mark.parametrize("kind", ["plain", "all"])
    def test_a_short_history_is_the_service_s_to_forecast(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        real, starts = requests.request, set()

        def request(*where: str, **options: Any) -> Any:
            starts.update(each["start"] for each in options.get("json", {}).get("inputs", ()))
            return real(*where, **options)

        monkeypatch.setattr(requests, "request", request)
        bundle = blended(make_bundle(tmp_path, **KINDS[kind]), network=0.5, cycle=0.25, last=0.25)
        forecaster = Predictor(keep(bundle, tmp_path))
        frame = history(bundle)
        ahead = HORIZON if bundle.schema.known.columns else 0
        towns = frame.groupby(list(bundle.schema.id)) if bundle.schema.id else [("", frame)]
        frame = pd.concat([own.tail(10 + ahead) for _, own in towns])
        expected: list[str] = []
        wanted = forecaster.predict(frame, short_history="drop", say=expected.append)
        said: list[str] = []
        with serving(tmp_path) as url:
            answer = Client(url).predict(frame, short_history="drop", say=said.append)
            with pytest.raises(DataError, match="has 10 rows, the model needs 24"):
                Client(url).predict(frame, short_history="refuse")
        same(answer, wanted)
        assert said == expected
        assert [each.code for each in said if isinstance(each, Notice)] == ["short_history"]
        assert starts == {frame[bundle.schema.time].iloc[0].isoformat()}

    def test_what_does_not_fit_is_the_error_that_the_model_would_raise(
        self, plain: tuple[str, Predictor]
    ) -> None:
        url, forecaster = plain
        frame = history(forecaster.bundle)
        wrong: list[tuple[Any, dict[str, Any]]] = [
            (frame.tail(3), {}),
            (frame.drop(index=9), {}),
            (frame.drop(columns="wind"), {}),
            (frame, {"horizon": 7}),
            (frame, {"levels": ["0.1"]}),
            (frame, {"policy": "fill"}),
            (frame, {"short_history": "x"}),
        ]
        for given, options in wrong:
            with pytest.raises(ForecasterError) as expected:
                forecaster.predict(given, **options)
            with pytest.raises(type(expected.value)) as caught:
                Client(url).predict(given, **options)
            assert str(caught.value) == str(expected.value)
        for level in (0.99, 2.0):
            with pytest.raises(UsageError):
                Client(url).predict(frame, levels=level)
        empty = frame.assign(load=[*frame["load"][:4], *[np.nan] * (len(frame) - 4)])
        with pytest.raises(DataError, match=r"http.*column 'load' has no value at all"):
            Client(url).predict(empty)
        with pytest.raises(UsageError, match=r"expected a DataFrame .* or a file, got Series"):
            Client(url).predict(frame["load"])

    def test_the_series_that_does_not_fit_is_named(self, tmp_path: Path) -> None:
        frame = history(make_bundle(tmp_path, **KINDS["attributes"]))
        frame.loc[frame["town"] == "None", "kind"] = "up"
        message = r"http\S*: series 'None', static_covariates.kind: expected one of in, out$"
        with serving(tmp_path) as url, pytest.raises(DataError, match=message):
            Client(url).predict(frame)


class TestAnswers:
    """Answers of a simulated server."""

    @pytest.mark.parametrize(
        ("status", "kind", "header", "wait"),
        [
            (429, "application/json", "0", 0),
            (500, "text/plain; charset=utf-8", None, 1),
            (503, "text/plain; charset=utf-8", None, 1),
        ],
    )
    def test_who_is_busy_or_lost_behind_a_proxy_is_asked_once_more(
        self, status: int, kind: str, header: str | None, wait: int,
        httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        waits: list[float] = []
        monkeypatch.setattr("time.sleep", waits.append)
        headers = {"Retry-After": header} if header else {}
        lost = Response('{"detail": "busy"}', status, headers, content_type=kind)
        httpserver.expect_ordered_request("/models").respond_with_response(lost)
        httpserver.expect_ordered_request("/models").respond_with_json({"models": []})
        assert Client(httpserver.url_for("")).models() == []
        httpserver.expect_request("/models").respond_with_response(lost)
        with pytest.raises(ForecasterError):
            Client(httpserver.url_for("")).models()
        assert (len(httpserver.log), waits) == (4, [wait, wait])

    @pytest.mark.parametrize("lost", [1, 2])
    def test_a_connection_that_breaks_is_made_once_more(self, lost: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(10)
            client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
            with ThreadPoolExecutor(1) as pool:
                found = pool.submit(client.models)
                for number in range(2):
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(2**16)
                        if number == lost:
                            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                            connection.sendall(head + b'Content-Length: 14\r\n\r\n{"models": []}')
                if lost == 1:
                    assert found.result() == []
                else:
                    with pytest.raises(UnavailableError, match="cannot be reached"):
                        found.result()

    def test_problems_are_errors_with_their_detail(self, httpserver: HTTPServer) -> None:
        kinds = {
            401: UsageError, 405: UnavailableError, 413: DataError, 500: ForecasterError,
            503: UnavailableError,
        }  # fmt: skip
        for status, kind in kinds.items():
            long = Response('{"detail": "because"}', status, {"Retry-After": "61"})
            httpserver.expect_ordered_request("/models").respond_with_response(long)
            with pytest.raises(ForecasterError, match=r"^http.*: because$") as caught:
                Client(httpserver.url_for("")).models()
            assert type(caught.value) is kind
        assert len(httpserver.log) == len(kinds), "a long wait is left to the caller"
        httpserver.expect_ordered_request("/models").respond_with_data("<html>")
        with pytest.raises(UnavailableError, match="not an answer of `forecaster serve`"):
            Client(httpserver.url_for("")).predict(pd.DataFrame())

    def test_silence(self, httpserver: HTTPServer) -> None:
        release = threading.Event()
        httpserver.expect_request("/models").respond_with_handler(
            lambda request: release.wait() and Response()
        )
        with pytest.raises(UnavailableError, match=r"did not answer within 0\.2 seconds"):
            Client(httpserver.url_for(""), timeout=0.2).models()
        release.set()

    def test_nobody_there(self, plain: tuple[str, Predictor]) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(UnavailableError, match=f"{url} cannot be reached"):
            Client(url).models()
        with pytest.raises(UnavailableError, match="answers 404 Not Found"):
            Client(f"{plain[0]}/docs").models()
        with pytest.raises(UsageError, match=r"expected a URL"):
            Client("127.0.0.1:8000")

    def test_a_service_without_a_model_says_why(self, tmp_path: Path) -> None:
        card = {"wide": True, "items": 1001, "item_names": ["a"] * 1000}
        with pytest.raises(UsageError, match="1,001 columns, of which the service names 1,000"):
            module._form(card)
        with (
            serving(tmp_path / "none") as url,
            pytest.raises(UnavailableError, match="the model could not be found"),
        ):
            Client(url, timeout=1).predict(pd.DataFrame())


def test_the_command(plain: tuple[str, Predictor], tmp_path: Path) -> None:
    url, forecaster = plain
    frame = history(forecaster.bundle)
    frame.to_parquet(tmp_path / "x.parquet")
    program = "import sys; from forecaster.cli import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", program, "predict", "--url", url]
    command += ["--input", "x.parquet", "--levels", "0.1", "--output", "ahead.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    same(pd.read_parquet(tmp_path / "ahead.parquet"), forecaster.predict(frame, levels=(0.1,)))
    assert " torch\n" not in done.stderr, "the client has no need of it"
