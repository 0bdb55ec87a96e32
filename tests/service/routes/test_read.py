"""The text of a file in, a series for /predict out: as the client reads the file."""

import re
import sys
from io import BytesIO

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError
from forecaster.forecast.predictor import keep, load_bundle
from forecaster_service.body import XLSX
from forecaster_service.routes import read
from tests.bundles import blended
from tests.datasets.reader.test_formats import workbook
from tests.service.toy import COLUMNS, HORIZON, KINDS, NAME, PAST, make_bundle, refused, start
from tests.test_client import history

CSV = {"Content-Type": "text/csv"}


def posted(client, text, **query):
    answer = client.post("/read", content=text, headers=CSV, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def wrong(client, text, status=422):
    """Why a text is refused."""
    return refused(client, text, status, "/read", **CSV)["detail"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_forecast_is_that_of_the_library(kind, serve):
    """And the example of every kind can be posted."""
    client, forecaster, example = serve(kind)
    (answer,) = client.post("/predict", json={"inputs": [example]}).json()["predictions"]
    frame, schema = history(forecaster.bundle), forecaster.schema
    assert answer["item_id"] == (schema.items or ("example",))[0]
    table, text = forecaster.predict(frame), frame.to_csv(index=False)
    found = posted(client, text)
    missing = [note for note in found["notes"] if note.startswith("Missing values")]
    holes = [int(count) for count in re.findall(r"' (\d+)", " ".join(missing))]
    assert 0 < sum(holes) <= 3 * max(len(schema.items), 1), "rows ahead miss nothing"
    assert sorted(found["items"]) == sorted(schema.items)
    assert found["rows"] == len(frame) / max(len(schema.items) * bool(schema.id), 1) - (
        HORIZON if schema.known.columns else 0
    )
    for item in found["items"] or [""]:
        series = posted(client, text, **({"item": item} if item else {}))["series"]
        (answer,) = client.post("/predict", json={"inputs": [series]}).json()["predictions"]
        expected = table
        if schema.id:
            expected = table[table[list(schema.id)].agg(" / ".join, axis=1) == item]
        names = [item] if schema.wide else list(schema.targets)
        np.testing.assert_allclose(answer["mean"], expected[names], rtol=1e-5, atol=1e-5)


times = pd.date_range("2026-01-28", periods=PAST + 2, freq="h", name="time")
numbers = np.random.default_rng(1).normal((1000, 5, 20), (9, 1, 3), (PAST + 2, 3))
GERMAN_TABLE = pd.DataFrame(numbers, times, COLUMNS).to_csv(
    sep=";", decimal=",", date_format="%d.%m.%Y %H:%M", float_format="%.2f"
)
TABLES = {
    "of Excel": "sep=;\r\n" + GERMAN_TABLE.replace("\n", "\r\n"),
    "with holes": re.sub(r"(?m);2\d,\d\d$", ";n/a", GERMAN_TABLE),
    "Windows": GERMAN_TABLE.encode("cp1252"),
    "UTF-16": GERMAN_TABLE.encode("utf-16"),
}
REFUSED = {
    "words": GERMAN_TABLE.replace(",", "?,", 1),
    "a stamp twice": GERMAN_TABLE + GERMAN_TABLE.splitlines()[-1],
    "no text": b"\x00\xff" * 50,
    "": "",
}
"""Of each kind some; tests/datasets/reader tries the forms of texts and stamps."""


@pytest.mark.parametrize("kind", [*TABLES, *REFUSED])
def test_a_table_is_read_and_refused_as_the_library_does_it(serve, kind, tmp_path):
    client, forecaster, _ = serve("plain")
    text, file = {**TABLES, **REFUSED}[kind], tmp_path / "mine.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    if kind in REFUSED:
        with pytest.raises(DataError) as error:
            forecaster.predict(file)
        assert wrong(client, text) == str(error.value).replace(str(file), "the file")
        return
    expected, series = forecaster.predict(file), posted(client, text)["series"]
    (answer,) = client.post("/predict", json={"inputs": [series]}).json()["predictions"]
    assert answer["start"] == expected["time"][0].isoformat()
    np.testing.assert_allclose(answer["mean"], expected.drop(columns="time"), rtol=1e-5, atol=1e-5)


def test_a_short_history_is_taken_on_request(tmp_path):
    bundle = make_bundle(tmp_path)
    keep(blended(bundle, network=0.5, cycle=0.3, last=0.2), tmp_path)
    text = history(bundle).tail(3).to_csv(index=False)
    with start(model=str(tmp_path)) as client:
        assert "the file has 3 rows, the model needs 24" in wrong(client, text)
        assert len(posted(client, text, short_history="drop")["series"]["target"]) == 3


def test_of_a_panel_one_series_may_be_too_short(tmp_path):
    bundle = make_bundle(tmp_path, **KINDS["panel"])
    frame = history(bundle)
    text = frame[(frame["town"] != "Bern") | (frame.index % 29 > 9)].to_csv(index=False)
    with start(model=str(tmp_path)) as client:
        assert posted(client, text, item="None")["rows"] == PAST + 5
        for item, words in (("Bern", "series 'Bern' has"), ("Basel", "no series 'Basel'")):
            answer = client.post("/read", content=text, headers=CSV, params={"item": item})
            assert answer.status_code == 422
            assert words in answer.json()["detail"]


def as_workbook(frame, *before):
    """The bytes of a workbook whose last sheet holds a frame."""
    cells = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    workbook(data := BytesIO(), *before, [[*frame], *cells])
    return data.getvalue()


@pytest.mark.parametrize("kind", ["plain", "wide", "words"])
def test_a_workbook_is_read_as_the_same_rows_in_a_text(serve, kind):
    client, forecaster, _ = serve(kind, "tokens")
    frame = history(forecaster.bundle)
    sent = as_workbook(frame, [])
    assert client.post("/read", content=sent, headers={"Content-Type": XLSX}).status_code == 200
    one, other = (posted(client, each) for each in (sent, frame.to_csv(index=False)))
    assert one.pop("notes")[0] == "the file has the sheets 'S0', 'S1': 'S1' is read."
    other.pop("notes")
    assert one == other
    if forecaster.schema.known.columns:
        rows = client.post("/future", content=sent, headers=CSV).text
        assert rows == client.post("/future", content=frame.to_csv(index=False), headers=CSV).text
        filled = as_workbook(frame.tail(HORIZON))
        answer = client.post("/read/future", content=filled, headers=CSV)
        assert answer.json()["start"] == frame["time"].iloc[-HORIZON].isoformat()


def test_a_workbook_that_is_not_read_is_refused_with_a_remedy(client, folder, monkeypatch):
    data = as_workbook(history(load_bundle(folder)))
    with start(model=str(folder), max_bodies_bytes=2000, max_rows=10) as small:
        assert "the file: the workbook is not read: it unpacks to more than" in wrong(small, data)
    with start(model=str(folder), max_rows=10) as small:
        assert "at most 10 rows" in wrong(small, data)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    words = wrong(client, data, 415)
    assert "pip install 'attention-forecaster[excel]'. Save it as CSV" in words


class TestBounds:
    """What a stranger may send, and what is never opened."""

    @pytest.mark.parametrize("path", ["/read", "/read/future", "/future"])
    def test_other_types_and_compressed_texts_are_415(self, client, path):
        for kind in ("text/plain", "application/json", ""):
            refused(client, b"a", 415, path, **{"Content-Type": kind})
        refused(client, b"a", 415, path, **CSV, **{"Content-Encoding": "gzip"})

    def test_nothing_packed_is_opened_and_names_of_files_are_texts(self, client, folder):
        for data in (b"PAR1", b"PK\3\4", b"\x1f\x8b", b"ARROW1", b"\xd0\xcf\x11\xe0"):
            assert wrong(client, data + b"x" * 50)
        assert wrong(client, str(folder / "metrics.json"))

    def test_lengths(self, folder, monkeypatch):
        monkeypatch.setattr(read, "LONGEST_LINE", 1000)
        with start(model=str(folder), max_rows=100, max_body_bytes=10_000) as client:
            assert "at most 100 rows" in wrong(client, "\n" * 300)
            assert "lines of at most 1,000 bytes" in wrong(client, "," * 2000)
            wrong(client, "a" * 20_000, 413)

    def test_a_gap_costs_no_memory(self, client, monkeypatch):
        monkeypatch.setattr(read, "MOST_CELLS", 30_000)
        text = client.get(f"/models/{NAME}/example", headers={"Accept": "text/csv"}).text
        assert len(posted(client, text)["series"]["target"]) == PAST
        lines = text.splitlines()
        lines[1] = lines[1].replace("2026", "1926")
        assert "steps of h lie between" in wrong(client, "\n".join(lines))

    def test_a_gap_of_a_wide_panel_costs_no_memory(self, serve, monkeypatch):
        client, *_ = serve("wide", "tokens")
        monkeypatch.setattr(read, "MOST_CELLS", 30_000)
        whole = pd.DataFrame(dict.fromkeys(KINDS["wide"]["items"], 1.0), times[: PAST + 1])
        for first, words in (("2024", "25 rows for"), ("1926", "steps of h lie between")):
            rows = whole.set_axis(times[: PAST + 1].insert(0, pd.Timestamp(first))[:-1])
            assert words in wrong(client, rows.rename_axis("time").to_csv())

    def test_long_names_make_no_long_answer(self, client):
        names = ["ü" * 250 + str(number) for number in range(99)]
        text = ",".join(names) + "\n" + ",".join("1" * 99) + "\n"
        assert len(wrong(client, text)) == 1000

    def test_without_a_model_the_text_is_not_read(self):
        with start() as empty:
            assert empty.post("/read", content=b"x", headers=CSV).status_code == 503
