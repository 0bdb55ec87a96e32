import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.base.errors import DataError
from forecaster.datasets.reader import history, read
from forecaster.datasets.reader.dialect import find_encoding, read_head, shape
from forecaster.datasets.reading import Reading, Text

DAYS = [f"2020-01-{day:02}" for day in range(1, 13)]
VALUES = [[day + 0.5, 2 * day + 0.25] for day in range(12)]


def text(separator=",", decimal=".", header="t,a,b"):
    """Twelve days of two columns."""
    lines = [header.replace(",", separator)]
    for day, values in zip(DAYS, VALUES, strict=True):
        cells = [f"{value}".replace(".", decimal) for value in values]
        lines.append(separator.join([day, *cells]))
    return "\n".join(lines) + "\n"


def put(folder, data, name="sales.csv"):
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(folder / name)


PLAIN = text()


@pytest.mark.parametrize("batch", [64, 2**24])
def test_batches_do_not_matter(tmp_path, monkeypatch, batch):
    rows = [f'2020-01-{d:02} {h:02}:00;"a\n;{d}";{h},5' for d in range(1, 30) for h in range(24)]
    data = "\n".join(["# x", "Zeit;note;Wärme", ";;[°C]", *rows, ""]).encode("cp1252")
    monkeypatch.setattr("forecaster.datasets.reader.formats.BLOCK", batch)
    own = read(put(tmp_path, data))
    assert own.series.columns == ("Wärme",)
    assert own.series.values[:, 0].tolist() == [h + 0.5 for _ in range(29) for h in range(24)]
    assert "The text is not in UTF-8 and is read as CP1252." in own.said


@pytest.mark.parametrize("name", ["note", "nöte"])
def test_a_letter_of_another_encoding_may_come_late(tmp_path, name):
    rows = [f"2020-01-{d:02} {h:02}:00,{h},{'x' * 150}" for d in range(1, 30) for h in range(24)]
    late = "\n".join([f"t,a,{name}", *rows]) + "ü\n"
    reading = Reading(targets=("a",), static=(name,))
    assert len(read(put(tmp_path, late.encode())).series.values) == len(rows)
    data = late.replace("ü", "").encode() + b"2020-01-30 00:00,1,\xfc\n"
    with pytest.raises(DataError, match="some letter is not UTF-8"):
        read(put(tmp_path, data), reading)


ROWS = "region,t,y\n" + "".join(f"{r},{day},1\n" for r in ("A b", "Total") for day in DAYS)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (ROWS, 24),
        ("id,t,y\n" + "".join(f"#{i},{day},{i}\n" for i in (1, 2) for day in DAYS), 24),
        ("#,t,y\n" + "".join(f"{i},{day},{i}\n" for i, day in enumerate(DAYS)), 12),
        ("date,0,1\n" + PLAIN.partition("\n")[2], 12),
        ("Station,X\nLat,52.5\ntime,y\n[UTC],MW\n" + "".join(f"{d},1.5\n" for d in DAYS), 12),
        ("Export of plant 7,,\nt,y,z\n,kW,%\n" + "".join(f"{d},1.5,2\n" for d in DAYS), 12),
        ("t,y,,\n,,,\n" + "".join(f"{d},1.5,,\n" for d in DAYS), 12),
    ],
)
def test_lines_that_are_rows_and_lines_that_are_not(tmp_path, data, rows):
    assert len(read(put(tmp_path, data), Reading(freq="D")).series.values) == rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ROWS + "New Yo", "row 25: expected 3 fields as in the header, got 1: 'New Yo'"),
        (PLAIN + "Total,72,135\n", "row 13, column 't'"),
        (PLAIN + "\nSource: x, y\n", "row 13: expected 3 fields as in the header, got 2"),
        (text(";", ",").replace("9,5", "9.5"), "row 10 (2020-01-10), column 'a': '9.5', where"),
        (text(",", ",", "t,a"), "the rows have 5 fields, but the header, 't,a', has 2: give"),
        ("# a\n\n# b\n", "the file holds only comments"),
    ],
)
def test_what_is_wrong_is_not_left_out(tmp_path, data, message):
    with pytest.raises(DataError) as caught:
        read(put(tmp_path, data))
    assert message in str(caught.value)


GUESS = "t;a\n2020-01-01;1.500\n2020-01-02;2.250\n"


def known(**text):
    return Reading(time="t", targets=("a",), freq="D", timezone="naive", text=Text(**text))


def column(source, reading, read=history):
    return read(source, reading).series.values[:, 0].tolist()


def test_a_guess_is_refused_and_can_be_named(tmp_path):
    file = put(tmp_path, GUESS)
    with pytest.raises(DataError, match=r"row 1 .*'1\.500' may be 1500 or 1\.500; .* --decimal"):
        read(file)
    for decimal, values in ((".", [1.5, 2.25]), (",", [1500, 2250])):
        assert column(file, Reading(text=Text(decimal=decimal)), read) == values
        assert column(file, known(separator=";", decimal=decimal)) == values
    odd = put(tmp_path, "t:a\n2020-01-01:1.5\n2020-01-02:2.5\n")
    assert column(odd, Reading(text=Text(separator=":")), read) == [1.5, 2.5]


def test_the_sign_of_the_training_file_stands_where_no_number_tells(tmp_path):
    quoted = put(tmp_path, GUESS.replace(";", ","))
    assert column(quoted, known(separator=",", decimal=",")) == [1500, 2250]
    otherwise = known(separator=";", decimal=",")
    assert column(put(tmp_path, PLAIN), otherwise) == [value[0] for value in VALUES]
    for guess in (GUESS, GUESS.replace(".", ",")):
        with pytest.raises(DataError, match=r"'1[.,]500' may be 1500 or 1\.500"):
            history(put(tmp_path, guess), known(separator=",", decimal="."))


def test_the_files_of_a_table_are_written_alike(tmp_path):
    put(tmp_path, GUESS, "a.csv")
    put(tmp_path, "t;a\n2020-01-03;0,5\n2020-01-04;2,5\n", "b.csv")
    assert column(str(tmp_path), Reading(), read) == [1500, 2250, 0.5, 2.5]
    put(tmp_path, GUESS.replace(";", ","), "b.csv")
    with pytest.raises(DataError, match="separated by ',', ';'"):
        read(str(tmp_path))


def test_marks_of_thousands_that_could_be_a_decimal_sign_are_said(tmp_path):
    rows = [f"{day};{i}.234;{i},5;-" for i, day in enumerate(DAYS, 1)]
    own = read(put(tmp_path, "t;a;b;c\n" + "\n".join(rows)), Reading(targets=("a", "b")))
    assert own.series.values[0].tolist() == [1234, 1.5]
    assert own.said[:2] == (
        "Numbers have a decimal comma.",
        "Marks of thousands are left out: '1.234' is 1234.",
    )


def test_a_cell_of_many_digits_is_no_number_and_takes_no_time():
    assert shape("1" * 400) == "number"
    assert shape("1" * 100_000 + "x") == "stamp"  # by the expression alone, about an hour


def test_bytes_that_are_no_text():
    with pytest.raises(DataError, match="here: the bytes are not a text"):
        find_encoding(b"\0\1\2" * 99, "here")
    assert find_encoding("é ".encode("latin-1"), "here") == "cp1252"
    wrong = {"UTF-8": "é\n".encode() + b"\xe9\n", "CP1252": b"\x81", "UTF-16": b"\xff\xfe\0\xd8x\0"}
    for encoding, data in wrong.items():
        with pytest.raises(DataError, match=f"here: some letter is not {encoding}"):
            read_head(data, True, "here")


@settings(max_examples=80, deadline=None)
@given(
    separator=st.sampled_from([",", ";", "\t", "|"]),
    decimal=st.sampled_from([".", ","]),
    thousands=st.sampled_from(["", ",", ".", " ", "\u202f", "'"]),
    places=st.integers(0, 4),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "cp1252"]),
    above=st.sampled_from(
        ["", "sep=%\n", "\n\n", "# x\n#\n// no; matter, what\n", "Station Berlin, 52.5\nby x\n\n"]
    ),
    header=st.sampled_from(["day%ä%b", "day% ä%b ", "# day%ä%b"]),
    units=st.sampled_from(["", "%[kW]%[m]\n", "UTC%MW%EUR/MWh\n", "%[MW]%\n# m3\n", "--%--%--\n"]),
    below=st.sampled_from(["", "\n", "\n \n\n"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(0, 7),
    rows=st.integers(3, 40),
    seed=st.integers(0, 2**20),
)  # fmt: skip
def test_a_text_is_read_as_it_was_meant_or_refused(
    tmp_path_factory, separator, decimal, thousands, places, encoding, above, header, units, below,
    end, size, rows, seed,
):  # fmt: skip
    if thousands == decimal or (encoding == "cp1252" and thousands == "\u202f"):
        thousands = ""
    if (separator, thousands, places) == (",", ".", 0):
        thousands = ""  # in such a file a point is followed by decimals
    if header.startswith("#"):
        units = ""  # they would be the names
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(rows, 2)) * 10.0**size, places) + 0.0
    marks = str.maketrans({",": thousands, ".": decimal})

    def cell(value):
        text = f"{value:,.{places}f}".translate(marks)
        return f'"{text}"' if separator in text else text

    days = np.arange("2020-01-01", rows, dtype="M8[D]")
    lines = [separator.join([str(d), *map(cell, v)]) for d, v in zip(days, values, strict=True)]
    head = f"{above}{header}\n{units}".replace("%", separator)
    data = (head + "\n".join(lines) + "\n" + below).replace("\n", end)
    mark = "\ufeff" * (encoding == "utf-16-be")
    file = put(tmp_path_factory.mktemp("text"), (mark + data).encode(encoding))
    reading = Reading(targets=("ä", "b"))
    with contextlib.suppress(DataError):
        own = read(file, reading)
        assert own.series.values.tolist() == values.tolist()
        out = len([line for line in (above + units).splitlines() if line.strip()])
        assert [said.split(",")[1] for said in own.said if "above" in said] == (
            [f" left out: {out}"] * (out > 0)
        )
        return
    with pytest.raises(DataError, match=" may be "):
        read(file, reading)
    own = read(file, replace(reading, text=Text(decimal=decimal)))
    assert own.series.values.tolist() == values.tolist()
