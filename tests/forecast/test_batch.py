"""Many files: each is forecast once, completely or not at all, and a stop can be continued."""

import os
from pathlib import Path

import pandas as pd
import pytest

from forecaster.base.errors import DataError, StorageError, UnavailableError, UsageError
from forecaster.base.workers import FailedError
from forecaster.cli.output import write
from forecaster.forecast import batch
from forecaster.forecast.batch import LOG, Work, draft_apart, parts
from tests.bundles import unsaved
from tests.forecast.test_predictor import history

OUT = Path("out")
REQUEST = {"model": "sha256:a", "horizon": 2}


def panel(file: Path, *names: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame({"id": names, "time": "2026-01-01", "load": [1.5] * len(names)})
    write(table, file)
    return file


class Forecaster:
    """Returns what it reads; counts, and stops at a file on request."""

    def __init__(self, stop: str = "") -> None:
        self.asked: list[str] = []
        self.stop = stop

    def __call__(self, file: Path, where: str, say) -> pd.DataFrame:
        self.asked.append(file.name)
        if self.stop and file.name == self.stop:
            raise KeyboardInterrupt
        return pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype=str)


def run(forecast=None, files=None, output=OUT, request=REQUEST, say=lambda text: None, each=None):
    files = parts("in", OUT) if files is None else files
    each = each or drafts(forecast or Forecaster(), output)
    return batch.forecast_all(each, files, output, "time", request, say)


def drafts(forecast, output):
    work = Work(write, output, "time")
    return lambda missing: ((part, work.draft(forecast, part)) for part in missing)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place, name in enumerate("abc"):
        panel(Path("in") / f"{name}.parquet", f"{name}-0", f"{name}-{place + 1}")


class TestParts:
    def test_of_a_folder_and_of_a_pattern(self):
        own = ("year=2026/d.csv", panel(Path("in/year=2026/d.csv"), "d"))
        Path("in/notes.txt").write_text("none")
        plain = ["a.parquet", "b.parquet", "c.parquet"]
        assert [name for name, _ in parts("in", OUT)] == [*plain, own[0]]
        assert [name for name, _ in parts("in/*.parquet", OUT)] == plain
        assert parts("in/**/d.csv", OUT)[0] == own
        assert parts("in/b.parquet", OUT)[0][0] == "b.parquet"
        panel(Path("in/D.csv"), "d").rename("in/D.CSV")
        assert parts("in/*.CSV", OUT) == [("D.csv", Path("in/D.CSV"))]

    def test_an_output_inside_the_input_is_no_input(self):
        files = parts("in", Path("in/out"))
        assert run(files=files, output=Path("in/out"))["written"] == 3
        assert parts("in", Path("in/out")) == files

    def test_none_and_two_that_would_be_one(self):
        with pytest.raises(UnavailableError, match=r"in/\*.xyz"):
            parts("in/*.xyz", OUT)
        panel(Path("in/a.feather.csv"), "x").rename("in/a.tsv")
        panel(Path("in/a.csv"), "x")
        with pytest.raises(UsageError, match=r"in/a.csv and of in/a.tsv would both be .* a.csv"):
            parts("in", OUT)


def test_each_file_gets_its_own():
    panel(Path("in/year=2026/d.csv"), "d")
    assert run() == {"written": 4, "kept": 0, "rows": 7}
    assert Path("out/year=2026/d.csv").is_file()
    pd.testing.assert_frame_equal(pd.read_parquet("out/b.parquet"), pd.read_parquet("in/b.parquet"))


def test_it_goes_on_where_it_was_stopped():
    with pytest.raises(KeyboardInterrupt):
        run(Forecaster(stop="b.parquet"))
    log = Path("out") / LOG
    log.write_bytes(log.read_bytes() + b'\n{"file": "b.par')  # killed while it wrote
    Path("out/.b.parquet").write_text("half")
    going_on = Forecaster()
    assert run(going_on) == {"written": 2, "kept": 1, "rows": 4}
    assert going_on.asked == ["b.parquet", "c.parquet"]
    assert not Path("out/.b.parquet").exists()
    assert run(going_on) == {"written": 0, "kept": 3, "rows": 0}


def test_what_changed_or_went_is_forecast_again():
    run()
    panel(Path("in/a.parquet"), "a-0", "a-1", "a-2")
    os.utime("in/b.parquet", ns=(1, 1))
    Path("out/c.parquet").unlink()
    again = Forecaster()
    assert run(again)["written"] == 3
    assert len(pd.read_parquet("out/a.parquet")) == 3
    assert run(again)["written"] == 0
    with pytest.raises(UsageError, match=r"horizon: 2 there, 3 here\."):
        run(request=REQUEST | {"horizon": 3})


def test_a_series_in_two_files():
    said: list[str] = []
    run()
    panel(Path("in/d.parquet"), "d-0", "b-0")
    with pytest.raises(DataError, match=r"1 of 4 files could not be forecast, the first is d\."):
        run(say=said.append)
    (text,) = said
    assert text.startswith("in/d.parquet: series 'b-0' is in two files")
    assert not Path("out/d.parquet").exists()


@pytest.mark.parametrize(
    ("kind", "words"),
    [(DataError, "no column 'load'"), (UsageError, "in/a.parquet: no column 'load'")],
)
def test_a_bad_file_is_named_and_costs_no_other(kind, words):
    class Bad(Forecaster):
        def __call__(self, file, where, say):
            say("it is old")  # what is said of all is told once
            if file.name == "a.parquet":
                raise kind(words)
            return super().__call__(file, where, say)

    said: list[str] = []
    with pytest.raises(DataError, match=r"1 of 3 files .* the others are in out\."):
        run(Bad(), say=said.append)
    assert said == ["in/a.parquet: it is old", "in/a.parquet: no column 'load'"]
    assert run() == {"written": 1, "kept": 2, "rows": 2}


class TestElsewhere:
    """What `--ray` needs from this module, without a cluster."""

    def test_a_process_that_is_lost_costs_no_other_file(self):
        said: list[str] = []

        def each(missing):
            yield from drafts(Forecaster(), OUT)(missing[:0:-1])
            yield missing[0], FailedError("was lost: out of memory")

        with pytest.raises(DataError, match=r"1 of 3 files .* the first is a\.parquet"):
            run(each=each, say=said.append)
        assert said == ["in/a.parquet: its process was lost: out of memory"]
        assert run() == {"written": 1, "kept": 2, "rows": 2}

    def test_a_full_disk_or_another_folder_there_ends_it(self):
        with pytest.raises(StorageError, match=r"no space left"):
            run(each=lambda missing: [(missing[0], StorageError("no space left"))])
        with pytest.raises(StorageError, match=r"the folder must be the same one on all"):
            run(each=drafts(Forecaster(), Path("elsewhere")))

    def test_it_finds_files_from_the_folder_of_the_command(self, tmp_path, monkeypatch):
        history().to_csv("x.csv", index=False)
        work = Work(write, OUT, "time", {"horizon": 2}, here=tmp_path, bundle=unsaved())
        monkeypatch.chdir("/")
        draft = draft_apart(work, ("x.csv", Path("x.csv")))
        assert (draft.rows, draft.refused) == (2, "")
        assert (tmp_path / "out" / ".x.csv").is_file()
        draft = draft_apart(work, ("a.parquet", Path("in/a.parquet")))
        assert draft.refused.startswith(f"{tmp_path}/in/a.parquet: columns 'wind', ")


def test_an_output_that_is_no_folder():
    Path("out").write_text("a file")
    with pytest.raises(StorageError, match="out cannot be used as a folder"):
        run()
