import gzip
import os
import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.base.errors import DataError, UsageError
from forecaster.datasets.card import Bare, Source, load_card
from forecaster.datasets.fetch import locate
from forecaster.datasets.reader import history, read_card
from forecaster.datasets.reader.cards import card_reading
from forecaster.datasets.reading import Reading

STAMPS = [f"2020-01-01 {hour:02}:00:00" for hour in range(6)]
ROWS = [f"{row},{row}.5" for row in range(6)]
VALUES = np.array([[row, row + 0.5] for row in range(6)])
GOOD = "\n".join(["date,a,b", *(f"{s},{row}" for s, row in zip(STAMPS, ROWS, strict=True)), ""])


def card_of(columns=("a", "b"), **facts):
    own = {"columns": columns, "target": columns[0], "freq": "h", "timezone": "UTC"}
    return load_card("ETTh1").model_copy(update={**own, **facts})


def read(tmp_path, text, columns=("a", "b"), **facts):
    (tmp_path / "some.csv").write_text(text)
    return read_card(card_of(columns, **facts), tmp_path / "some.csv").series


def test_the_rows_of_an_irregular_card_count_as_evenly_spaced(tmp_path):
    def text(*hours):
        return "\n".join(["date,a", *(f"{STAMPS[hour]},{row}" for row, hour in enumerate(hours))])

    series = read(tmp_path, text(0, 1, 1, 2, 5), ("a",), irregular=True)
    assert [str(time) for time in series.times] == [STAMPS[hour] for hour in (0, 1, 1, 2, 5)]
    assert series.values[:, 0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="repeated stamps"):
        read(tmp_path, text(0, 1, 1, 2, 5), ("a",))
    with pytest.raises(DataError, match="rows out of order: 1"):
        read(tmp_path, text(0, 1, 0, 2), ("a",), irregular=True)
    stretch = pd.DataFrame({"date": [STAMPS[hour] for hour in (1, 1, 2, 5)], "a": range(4)})
    found = history(stretch, card_reading(card_of(("a",), irregular=True), Path("some.csv")))
    assert found.series.values[:, 0].tolist() == [0, 1, 2, 3]


def test_the_columns_and_roles_of_a_card(tmp_path):
    series = read(tmp_path, GOOD.replace("\n", ",x\n"))
    assert (series.values == VALUES).all()
    assert list(series.times) == [pd.Timestamp(stamp) for stamp in STAMPS]
    assert (series.columns, series.freq) == (("a", "b"), "h")
    assert (read(tmp_path, GOOD, columns=("b", "a")).values == VALUES[:, ::-1]).all()
    with pytest.raises(DataError, match="column 'c' not found"):
        read(tmp_path, GOOD, columns=("a", "c"))
    card, file = card_of(), tmp_path / "some.csv"
    found = read_card(card, file, Reading(targets=("b",)))
    assert (found.targets, found.series.columns, found.features) == (("b",), ("a", "b"), "MS")
    alone = read_card(card, file, Reading(targets=("b",), future_covariates=("a",)), "S")
    assert (alone.series.columns, alone.series.known_columns) == (("b",), ("a",))
    assert found.digest == alone.digest == read_card(card, file).digest
    with pytest.raises(UsageError, match=r"ETTh1 has no column 'c'\. It has a, b\."):
        read_card(card, file, Reading(targets=("c",)))


@pytest.mark.parametrize(
    ("targets", "said", "features", "columns", "known"),
    [
        ((), {}, None, ("c",), ("a", "b")),
        ((), {}, "S", ("c",), ()),
        ((), {}, "M", ("a", "b", "c"), ()),
        ((), {"future_covariates": ("a",)}, "S", ("c",), ("a",)),
        ((), {"future_covariates": ("a",)}, None, ("b", "c"), ("a",)),
        ((), {"past_covariates": ("a",)}, None, ("a", "c"), ("b",)),
        ((), {"targets": ("a",)}, None, ("a", "c"), ("b",)),
        (("b", "c"), {}, None, ("b", "c"), ("a",)),
        (("b", "c"), {"targets": ("b",)}, None, ("b", "c"), ("a",)),
    ],
)
def test_the_future_covariates_of_a_card(tmp_path, targets, said, features, columns, known):
    lines = ["date, a, b,c", *(f"{stamp},{row},1" for stamp, row in zip(STAMPS, ROWS, strict=True))]
    (tmp_path / "some.csv").write_text("\n".join(lines))
    ahead = ("a",) if targets else ("a", "b")
    card = card_of(("a", "b", "c"), target="c", targets=targets, future_covariates=ahead)
    found = read_card(card, tmp_path / "some.csv", Reading(**said), features)
    assert (found.series.columns, found.series.known_columns) == (columns, known)
    assert found.features == (features or "MS")
    if features != "M":
        assert found.targets == said.get("targets", targets or ("c",))


def frame():
    return pd.DataFrame({"date": pd.to_datetime(STAMPS), "a": VALUES[:, 0], "b": VALUES[:, 1]})


def series_of(table):
    return history(table, card_reading(card_of(), Path("some.csv")), where="the history").series


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.set_index("date"),
        lambda f: f.set_index("date").rename_axis(None),
        lambda f: f.assign(date=f["date"].dt.as_unit("ns")),
        lambda f: f.assign(date=f["date"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        lambda f: f.assign(date=f["date"].astype(object)),
        lambda f: f.assign(date=STAMPS),
        lambda f: f.assign(a=f["a"].astype(object)),
        lambda f: f.assign(a=f["a"].astype(str)),
        lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
        lambda f: f.set_axis(range(10, 16)),
    ],
)
def test_frames_of_many_kinds_give_the_same_series(change):
    table = change(frame())
    before = table.copy()
    assert series_of(table).digest == series_of(frame()).digest
    pd.testing.assert_frame_equal(table, before)


def test_a_frame_that_does_not_fit():
    for wrong, row in ((1j, 1), ([1, "x", None, 4, 5, 6], 2)):
        with pytest.raises(
            DataError, match=rf"the history, row {row} .*column 'a': expected a num"
        ):
            series_of(frame().assign(a=wrong))


def bare_series(tmp_path, *lines, columns=None, header=False):
    file = tmp_path / "bare.txt.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    bare = Bare(first=datetime(2020, 1, 1), columns=columns, header=header)
    source = Source(files=("bare.txt.gz",), sha256="0" * 64, bare=bare)
    return read_card(card_of(sources=(source,), target="b"), file).series


def test_a_file_of_values_alone_takes_names_and_stamps_from_its_card(tmp_path):
    expected = series_of(frame()).digest
    assert bare_series(tmp_path, *ROWS).digest == expected
    swapped = [",".join(row.split(",")[::-1]) for row in ROWS]
    assert bare_series(tmp_path, *swapped, columns=("b", "a")).digest == expected
    assert bare_series(tmp_path, "b,a", *swapped, header=True).digest == expected


def test_a_file_of_values_alone_that_does_not_fit(tmp_path):
    for text, message in (
        ("", "the file is empty"),
        ("0,0.5\n1\n2,2.5\n", "row 2: expected 2 fields as in the card, got 1: '1'"),
        ("0,0.5\nx,1.5\n", "row 2 (2020-01-01 01:00:00), column 'a': expected a number, got 'x'"),
        ("a,b\n1,1.5\n", "column 'date' not found"),
    ):
        with pytest.raises(DataError, match=rf"bare\.txt\.gz.*{re.escape(message)}"):
            bare_series(tmp_path, text)


def test_numbers_are_read_to_the_last_bit(tmp_path):
    numbers = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    times = pd.date_range("2020-01-01", periods=200, freq="h")
    text = pd.DataFrame({"date": times, "a": numbers}).to_csv(index=False)
    assert (read(tmp_path, text, ("a",)).values[:, 0] == numbers).all()


def test_the_packaged_sample_is_the_same_everywhere():
    digest = "sha256:90d0180b33d8498dbc9322a35f688efd903341e9cca6c907536965d3ebecee32"
    assert read_card(load_card("vic_elec")).series.digest == digest


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shape", "known", "first", "last"),
    [
        ("ETTm2", (69_680, 7), 0, "2016-07-01 00:00:00", "2018-06-26 19:45:00"),
        ("epf-NP", (52_416, 1), 2, "2013-01-01 00:00:00", "2018-12-24 23:00:00"),
        ("europe-prices", (26_304, 38), 38, "2021-12-31 23:00:00", "2024-12-31 22:00:00"),
        ("nn5", (731, 111), 0, "1996-03-18 00:00:00", "1998-03-18 00:00:00"),
        ("weather", (52_696, 21), 0, "2020-01-01 00:10:00", "2021-01-01 00:00:00"),
        ("electricity-client0-OT", (26_304, 2), 0, "2016-07-01 02:00:00", "2019-07-02 01:00:00"),
    ],
)
def test_the_public_files_are_those_of_the_cards(name, shape, known, first, last):
    series = read_card(load_card(name)).series
    assert (series.values.shape, len(series.known_columns)) == (shape, known)
    assert (str(series.times[0]), str(series.times[-1])) == (first, last)
    if name == "weather":  # it is used as it is
        steps = series.times[[19_044, 21_514]] - series.times[[19_043, 21_513]]
        assert steps.total_seconds().tolist() == [0, 6000]
        assert (series.values == -9999).sum() == 81


@pytest.mark.data
def test_both_forms_of_the_exchange_rates_are_one_series():
    card = load_card("exchange_rate")
    files = [Path(os.environ["FORECASTER_DATA"]) / source.files[0] for source in card.sources]
    both = [read_card(card, file).series for file in files]
    assert both[0].digest == both[1].digest
    assert (both[0].values.shape, str(both[1].times[-1])) == ((7_588, 8), "2010-10-10 00:00:00")
    for source, file in zip(card.sources, files, strict=True):
        assert locate(card.model_copy(update={"sources": (source,)})) == file
