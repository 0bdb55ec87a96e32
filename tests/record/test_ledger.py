import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forecaster.base.errors import DataError
from forecaster.record import ledger as module
from forecaster.record.ledger import Ledger, read


def rows(*values):
    return pd.DataFrame({"series": "a", "value": values})


def write(ledger, *numbers):
    """Each number as a file of its own."""
    for number in numbers:
        ledger.add("actuals", rows(float(number)))
        ledger.flush()


def test_what_several_writers_added_is_read_in_the_order_of_writing(tmp_path):
    one, two = Ledger(tmp_path / "l"), Ledger(tmp_path / "l")
    one.add("actuals", rows(1.0))
    assert not (tmp_path / "l").exists(), "adding writes nothing"
    one.add("actuals", rows(2.0, 3.0))
    assert one.flush() == 3
    assert one.flush() == 0
    two.add("actuals", rows(4.0))
    two.flush()
    assert read(tmp_path / "l", "actuals")["value"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert len(list((tmp_path / "l/actuals").iterdir())) == 2
    assert read(tmp_path / "l", "forecasts").empty


def test_threads_may_write_at_once(tmp_path):
    ledger = Ledger(tmp_path)

    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda _: write(ledger, *range(20)), range(4)))
    assert sorted(read(tmp_path, "actuals")["value"]) == sorted([*map(float, range(20))] * 4)
    assert ledger.lost == 0


def test_many_small_files_become_few(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MERGED", 3)
    ledger = Ledger(tmp_path)
    for number in range(19):
        given = rows(float(number)).assign(made=pd.Timestamp(2026, 1, 1))
        ledger.add("actuals", given.assign(**{f"q0.{1 + number % 2}": 1.0}))
        ledger.flush()
    found = read(tmp_path, "actuals")
    assert found["value"].tolist() == [*map(float, range(19))]
    assert found["made"].dtype == given["made"].dtype
    assert found["q0.1"].notna().tolist() == [number % 2 == 0 for number in range(19)]
    files = sorted((tmp_path / "actuals").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [9, 9, 1]
    monkeypatch.setattr(module, "MOST_MERGED", 18)
    write(ledger, *range(19, 27))
    files = sorted((tmp_path / "actuals").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [9, 9, 9], "27 are too many"


def test_files_that_cannot_be_one_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MERGED", 2)
    ledger = Ledger(tmp_path)
    for time in (pd.Timestamp(2026, 1, 1), "2026-01-01"):
        ledger.add("actuals", rows(1.0).assign(time=time))
        assert ledger.flush() == 1
    assert len([*(tmp_path / "actuals").iterdir()]) == 2


def test_a_reader_finds_what_is_merged_while_it_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MERGED", 3)
    ledger, whole = Ledger(tmp_path), pq.read_table
    write(ledger, 0, 1)

    def meanwhile(*asked, **named):
        monkeypatch.setattr(pq, "read_table", whole)
        table = whole(*asked, **named)
        write(ledger, 2)
        return table

    monkeypatch.setattr(pq, "read_table", meanwhile)
    assert set(read(tmp_path, "actuals")["value"]) == {0.0, 1.0, 2.0}


def test_what_cannot_be_written_is_counted_and_raises_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    ledger = Ledger(tmp_path / "file")
    ledger.add("actuals", rows(1.0, 2.0))
    assert (ledger.flush(), ledger.lost) == (0, 2)
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    for _ in range(2):
        ledger.add("actuals", rows(1.0, 2.0))
    assert ledger.lost == 4


def test_old_files_and_the_oldest_beyond_the_size_are_deleted(tmp_path):
    ledger = Ledger(tmp_path, days=10)
    write(ledger, 0, 1, 2, 3)
    files = sorted((tmp_path / "actuals").iterdir())
    for days, file in zip((30, 3, 2, 1), files, strict=True):
        then = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        os.utime(file, (then, then))
    write(Ledger(tmp_path), 9)
    assert 0.0 in read(tmp_path, "actuals")["value"].tolist(), "without an age nothing is deleted"
    next(iter({*(tmp_path / "actuals").iterdir()} - {*files})).unlink()
    write(ledger, 4)
    assert read(tmp_path, "actuals")["value"].tolist() == [1.0, 2.0, 3.0, 4.0]
    small = Ledger(tmp_path, most_bytes=3 * files[1].stat().st_size)
    write(small, 5)
    assert read(tmp_path, "actuals")["value"].tolist() == [3.0, 4.0, 5.0]


def test_files_of_another_version_are_named_and_damaged_ones_an_error(tmp_path):
    ledger, said = Ledger(tmp_path), []
    ledger.add("actuals", rows(1.0).assign(model="a"))
    ledger.flush()
    pq.write_table(pa.Table.from_pandas(rows(9.0)), tmp_path / "actuals/0.parquet")
    found = read(tmp_path, "actuals", said.append, model="a")  # which the other has no column for
    assert found["value"].tolist() == [1.0]
    assert said == [f"1 files of {tmp_path / 'actuals'} are of another version and are left out"]
    (tmp_path / "actuals/1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"1\.parquet cannot be read"):
        read(tmp_path, "actuals")
    with pytest.raises(DataError, match=r"--ledger .*nowhere` begins one"):
        read(tmp_path / "nowhere", "actuals")
