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


def text(separator=",", decimal=".", header="t,a,b", quote=""):
    """Twelve days of two columns."""
    lines = [header.replace(",", separator)]
    for day, values in zip(DAYS, VALUES, strict=True):
        cells = [f"{quote}{value}{quote}".replace(".", decimal) for value in values]
        lines.append(separator.join([day, *cells]))
    return "\n".join(lines) + "\n"


def put(folder, data, name="sales.csv"):
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(folder / name)


PLAIN = text()

FORMS = {
    "semicolons": (text(";"), "Fields are separated by semicolons."),
    "semicolons and commas": (text(";", ","), "Numbers have a decimal comma."),
    "tabs and commas": (text("\t", ","), "Fields are separated by tabs."),
    "tabs": (text("\t"), "Fields are separated by tabs."),
    "bars": (text("|"), "Fields are separated by bars."),
    "quoted commas": (text(",", ",", quote='"'), "Numbers have a decimal comma."),
    "sep=": ("sep=;\n" + text(";", ","), "Fields are separated by semicolons."),
    "byte order mark": (b"\xef\xbb\xbf" + PLAIN.encode(), ""),
    "UTF-16": (PLAIN.encode("utf-16"), "The text is not in UTF-8 and is read as UTF-16."),
    "UTF-16 BE": (b"\xfe\xff" + PLAIN.encode("utf-16-be"), "is read as UTF-16."),
    "CRLF": (PLAIN.replace("\n", "\r\n") + "\r\n\r\n", ""),
    "CR": (PLAIN.replace("\n", "\r"), ""),
    "blank lines": ("\n\n" + PLAIN + "\n \n\n", ""),
    "no end of line": (PLAIN.rstrip(), ""),
    "blanks in names": (text(header="t, a,b "), ""),
    "comments": ("# made by x\n#\n// no; matter, what\n" + PLAIN, "above the rows, left out: 3"),
    "free text": ("Station Berlin, 52.5\nby x\n\n" + PLAIN, "such as 'Station Berlin, 52.5'"),
    "units": (text(header="t,a,b\nUTC,MW,EUR/MWh"), "left out: 1, such as 'UTC,MW,EUR/MWh'"),
    "some units": (text(header="t,a,b\n,[MW],\n# m3/s"), "above the rows, left out: 2"),
    "a rule": (text(header="t,a,b\n--,--,--"), "left out: 1, such as '--,--,--'"),
    "header in a comment": (text(header="# by x\n# t,a,b"), "left out: 1, such as '# by x'"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_text(form, tmp_path):
    data, said = FORMS[form]
    own = read(put(tmp_path, data))
    assert own.columns == ("a", "b")
    assert own.series.values.tolist() == VALUES
    assert own.counts["rows"] == 12
    assert own.series.digest == read(put(tmp_path, PLAIN)).series.digest
    if said:
        assert said in " ".join(read(put(tmp_path, data)).said)
    else:
        assert read(put(tmp_path, data)).said[0] == "The time is column 't'."


@pytest.mark.parametrize("batch", [64, 1000, 2**24])
def test_batches_do_not_matter(tmp_path, monkeypatch, batch):
    rows = "".join(f"2020-01-{d:02} {h:02}:00;{d},{h}5\n" for d in range(1, 30) for h in range(24))
    data = f"# x\nZeit;Wärme\n;[°C]\n{rows}\n".encode("cp1252")
    monkeypatch.setattr("forecaster.datasets.reader.formats.BLOCK", batch)
    own = read(put(tmp_path, data))
    assert own.columns == ("Wärme",)
    assert own.counts["rows"] == 29 * 24
    assert own.series.values[25:27, 0].tolist() == [2.15, 2.25]
    assert "The text is not in UTF-8 and is read as Windows-1252." in own.said


def test_cells_in_quotes_may_hold_line_breaks(tmp_path, monkeypatch):
    rows = [f'2020-01-{d:02},"a ""b""\n{"x" * d}, c",{d}' for d in range(1, 30)]
    monkeypatch.setattr("forecaster.datasets.reader.formats.BLOCK", 99)
    own = read(put(tmp_path, "\n".join(["t,note,a", *rows]) + "\n"))
    assert own.series.values[:, 0].tolist() == [*range(1, 30)]


def test_a_letter_of_another_encoding_may_come_late(tmp_path):
    rows = [f"2020-01-{d:02} {h:02}:00,{h},{'x' * 150}" for d in range(1, 30) for h in range(24)]
    late = "\n".join(["t,a,note", *rows]) + "ü\n"
    own = read(put(tmp_path, late.encode()))
    assert (own.counts["rows"], own.said[0]) == (len(rows), "The time is column 't'.")
    with pytest.raises(DataError, match="line 697: byte 0xfc is not UTF-8, as the text before it"):
        read(put(tmp_path, late.encode("cp1252")), Reading(targets=("a",), static=("note",)))
    both = late.replace("note", "nöte").encode() + b"2020-01-30 00:00,1,\xfc\n"
    with pytest.raises(DataError, match="line 698: byte 0xfc is not UTF-8, as the text before it"):
        read(put(tmp_path, both), Reading(targets=("a",), static=("nöte",)))


ROWS = "region,t,y\n" + "".join(f"{r},{day},1\n" for r in ("A b", "Total") for day in DAYS)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (ROWS, 24),
        ("id,t,y\n" + "".join(f"#{i},{day},{i}\n" for i in (1, 2) for day in DAYS), 24),
        ("#,t,y\n" + "".join(f"{i},{day},{i}\n" for i, day in enumerate(DAYS)), 12),
        ("date,0,1\n" + PLAIN.partition("\n")[2], 12),
        ("Station,X\nLat,52.5\ntime,y\n[UTC],MW\n" + "".join(f"{d},1.5\n" for d in DAYS), 12),
        (
            "Export of plant 7,,\nMade on 3.8.2023,,\nt,y,z\n,kW,%\n"
            + "".join(f"{day},1.5,2\n" for day in DAYS),
            12,
        ),
        ("t,y,,\n,,,\n" + "".join(f"{d},1.5,,\n" for d in DAYS), 12),
    ],
)
def test_lines_that_are_rows_and_lines_that_are_not(tmp_path, data, rows):
    assert read(put(tmp_path, data), Reading(freq="D")).counts["rows"] == rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (PLAIN + "2020-01-13,4", "row 13: expected 3 fields as in the header, got 2: '2020-"),
        (PLAIN + "2020-0", "row 13: expected 3 fields as in the header, got 1: '2020-0'"),
        (ROWS + "New Yo", "row 25: expected 3 fields as in the header, got 1: 'New Yo'"),
        (ROWS + "Total,2020-01-13\n", "row 25: expected 3 fields as in the header, got 2"),
        (ROWS + "Total,,24\n", "row 25, column 't': an empty stamp"),
        (PLAIN.replace("0.5", "x"), "row 1 (2020-01-01), column 'a': expected a number, got 'x'"),
        (text(";", ",").replace("9,5", "9.5"), "row 10 (2020-01-10), column 'a': '9.5', where"),
        (text(",", ",", "t,a"), "the first line holds a stamp, '2020-01-01', where a name is exp"),
        (PLAIN + "Total,72,135\n", "row 13, column 't': expected a stamp with the year first"),
        (PLAIN + "\nSource: x, y\n", "row 13: expected 3 fields as in the header, got 2: 'Source"),
        ("# a\n\n# b\n", "the file holds only comments; expected a header and rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_not_left_out(tmp_path, data, message):
    with pytest.raises(DataError) as caught:
        read(put(tmp_path, data))
    assert message in str(caught.value)


GUESS = "t;a\n2020-01-01;1.500\n2020-01-02;2.250\n"


def test_a_guess_is_refused_and_can_be_named(tmp_path):
    file = put(tmp_path, GUESS)
    with pytest.raises(
        DataError, match=r"row 1 .*'1\.500' may be 1500 or 1\.500; name the decimal sign with --dec"
    ):
        read(file)
    for decimal, values in ((".", [1.5, 2.25]), (",", [1500, 2250])):
        own = read(file, Reading(text=Text(decimal=decimal)))
        assert own.series.values[:, 0].tolist() == values
    odd = put(tmp_path, "t:a\n2020-01-01:1.5\n2020-01-02:2.5\n")
    own = read(odd, Reading(text=Text(separator=":")))
    assert own.series.values[:, 0].tolist() == [1.5, 2.5]


def known(**text):
    return Reading(time="t", targets=("a",), freq="D", timezone="naive", text=Text(**text))


def test_the_next_file_is_read_alike(tmp_path):
    file = put(tmp_path, GUESS)
    for decimal, values in ((".", [1.5, 2.25]), (",", [1500, 2250])):
        own = history(file, known(separator=";", decimal=decimal))
        assert (own.series.values[:, 0].tolist(), own.said) == (values, ())


def test_the_sign_of_the_training_file_stands_where_no_number_tells(tmp_path):
    quoted = put(tmp_path, GUESS.replace(";", ","))
    own = history(quoted, known(separator=",", decimal=","))
    assert (own.series.values[:, 0].tolist(), own.said) == ([1500, 2250], ())


@pytest.mark.parametrize("text", [GUESS, GUESS.replace(".", ",")])
def test_no_number_is_guessed_where_the_separator_is_another(tmp_path, text):
    with pytest.raises(DataError, match=r"'1[.,]500' may be 1500 or 1\.500"):
        history(put(tmp_path, text), known(separator=",", decimal="."))


@pytest.mark.parametrize("ids", ["#1 B C", "B C #1", "B #1 C"])
def test_a_row_may_begin_with_a_name_like_a_comment(tmp_path, ids):
    rows = [f"{name},{day},5" for name in ids.split() for day in DAYS]
    series = read(put(tmp_path, "id,t,y\n" + "\n".join(rows) + "\n")).series
    assert series.items is not None
    assert series.items.bounds.tolist() == [0, 12, 24, 36]


def test_files_of_two_separators_are_refused(tmp_path):
    put(tmp_path, "t;a\n2020-01-01;0,5\n2020-01-02;2,5\n", "a.csv")
    put(tmp_path, GUESS.replace(";", ","), "b.csv")
    with pytest.raises(DataError, match="fields are separated by commas and by semicolons; write"):
        read(str(tmp_path))


def test_a_later_file_may_show_the_decimal_sign(tmp_path):
    put(tmp_path, GUESS, "a.csv")
    put(tmp_path, "t;a\n2020-01-03;0,5\n2020-01-04;2,5\n", "b.csv")
    assert read(str(tmp_path)).series.values[:, 0].tolist() == [1500, 2250, 0.5, 2.5]


def test_marks_are_said_also_where_another_column_tells_the_sign(tmp_path):
    own = read(put(tmp_path, "t;a;b\n2020-01-01;1.500;0,5\n2020-01-02;2.250;1,5\n"))
    assert own.series.values[:, 0].tolist() == [1500, 2250]
    assert "Marks of thousands are left out: '1.500' is 1500." in own.said


def test_the_next_file_may_be_written_otherwise(tmp_path):
    reading = known(separator=";", decimal=",")
    own = history(put(tmp_path, PLAIN), reading)
    assert own.series.values[:, 0].tolist() == [value[0] for value in VALUES]
    assert own.said == ()


def test_percent_stays_percent(tmp_path):
    reading = known(separator=",", decimal=".", signs={"a": "%"})
    rows = put(tmp_path, "t,a\n2020-01-01,5 %\n2020-01-02,7 %\n")
    assert history(rows, reading).series.values[:, 0].tolist() == [5, 7]
    bare = put(tmp_path, "t,a\n2020-01-01,0.05\n", "bare.csv")
    with pytest.raises(DataError, match=r"got '0\.05', but the other numbers are in percent"):
        history(bare, reading)
    with pytest.raises(DataError, match=r"got '5 %', but the other numbers have no sign"):
        history(rows, known(separator=","))


def test_what_is_taken_of_cells_is_said(tmp_path):
    rows = [f"{day};{i}.234,5;${i};{i} %;-" for i, day in enumerate(DAYS, 1)]
    own = read(put(tmp_path, "t;a;b;c;d\n" + "\n".join(rows)), Reading(targets=("a", "b", "c")))
    assert own.said[:5] == (
        "Fields are separated by semicolons.",
        "Numbers have a decimal comma.",
        "Marks of thousands are left out: '1.234,5' is 1234.5.",
        "The sign $ is left out: 'b'.",
        "Percent signs are left out, so that 5 % is 5: 'c'.",
    )


def test_how_a_text_is_written():
    head = read_head(b"# x\nt;a\n\n2020;1,5\n", True, "here")
    assert (head.text, head.names) == (Text("utf-8", ";"), ("t", "a"))
    assert (head.start, head.left_out) == (9, ("# x",))
    bare = read_head(b"1;2\n3;4\n", True, "here", Reading(header=("a", "b")))
    assert (bare.names, bare.start, bare.text.separator) == (("a", "b"), 0, ";")


def test_a_cell_of_many_digits_is_no_number_and_takes_no_time():
    assert shape("1" * 400) == "number"
    assert shape("1" * 100_000 + "x") == "stamp"  # by the expression alone, about an hour


def test_bytes_that_are_no_text():
    with pytest.raises(DataError, match="here: the bytes are not a text"):
        find_encoding(b"\0\1\2" * 99, "here")
    assert find_encoding("é ".encode("latin-1"), "here") == "cp1252"
    with pytest.raises(DataError, match="here, line 2: byte 0x81 is not CP1252"):
        find_encoding(b"a\n\x81 ", "here")


@settings(max_examples=60, deadline=None)
@given(
    separator=st.sampled_from([",", ";", "\t", "|"]),
    decimal=st.sampled_from([".", ","]),
    thousands=st.sampled_from(["", ",", ".", " ", "\u202f", "'"]),
    places=st.integers(0, 4),
    sign=st.sampled_from(["{}", "${}", "{} €", "{} %"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    above=st.sampled_from(["", "# x; y, z\n", "From x\n\n"]),
    units=st.booleans(),
    below=st.sampled_from(["", "\n"]),
    end=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(0, 7),
    rows=st.integers(3, 40),
    seed=st.integers(0, 2**20),
)  # fmt: skip
def test_a_text_is_read_as_it_was_meant_or_refused(
    tmp_path_factory, separator, decimal, thousands, places, sign, encoding, above, units, below,
    end, size, rows, seed,
):  # fmt: skip
    """No form may be read as other numbers than those it was written from."""
    if thousands == decimal or (encoding == "cp1252" and thousands == "\u202f"):
        thousands = ""
    if (separator, thousands, places) == (",", ".", 0):
        thousands = ""  # in such a file a point is followed by decimals
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(rows, 2)) * 10.0**size, places) + 0.0
    marks = str.maketrans({",": thousands, ".": decimal})

    def cell(value):
        text = sign.format(f"{value:,.{places}f}".translate(marks))
        return f'"{text}"' if separator in text else text

    lines = [separator.join(["day", "ä", "b"])]
    lines += [separator.join(["", "[kW]", "[m]"])] * units
    days = np.arange("2020-01-01", rows, dtype="M8[D]")
    lines += [separator.join([str(d), *map(cell, v)]) for d, v in zip(days, values, strict=True)]
    data = above + "\n".join(lines) + "\n" + below
    file = put(tmp_path_factory.mktemp("text"), data.replace("\n", end).encode(encoding))
    reading = Reading(targets=("ä", "b"))
    with contextlib.suppress(DataError):
        assert read(file, reading).series.values.tolist() == values.tolist()
        return
    with pytest.raises(DataError, match=" may be "):
        read(file, reading)
    own = read(file, replace(reading, text=Text(decimal=decimal)))
    assert own.series.values.tolist() == values.tolist()
