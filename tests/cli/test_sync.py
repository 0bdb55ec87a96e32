import json
from pathlib import Path

import pytest

from forecaster.tracking import publish
from forecaster.tracking.publish import Synced

DONE = Synced("toy-1", "forecaster-toy version 1 is the champion", "")
LEFT = Synced("toy-2", "", "http://host: Connection refused")
UNDER_WAY = Synced("toy-3", "", "", under_way=True)


@pytest.fixture
def synced(monkeypatch):
    """The tracker's result for the names that it is asked for."""
    asked, found = [], []

    def sync(names):
        asked.append(names)
        yield from found

    monkeypatch.setattr(publish, "sync", sync)
    return asked, found


def test_what_was_uploaded_and_what_is_left_is_said(run, synced):
    synced[1].extend([DONE, UNDER_WAY, Synced("toy-4", "", "")])
    status, out, err = run("sync")
    assert (status, synced[0]) == (0, [[]])
    assert out == f"toy-1: uploaded; {DONE.told}\ntoy-4: uploaded\n"
    assert err == "toy-3: in progress, its own process uploads it\n"
    synced[1][:] = [DONE, LEFT]
    status, out, err = run("sync", "toy-1", "toy-2")
    assert (status, synced[0][-1]) == (69, ["toy-1", "toy-2"])
    assert out == f"toy-1: uploaded; {DONE.told}\n"
    assert err.splitlines()[0] == "toy-2: not all uploaded: http://host: Connection refused"
    assert "error: 1 of 2 runs could not be uploaded: toy-2. The rest is kept" in err
    status, out, _ = run("sync", "--json")
    assert (status, [each["left"] for each in json.loads(out)["runs"]]) == (69, ["", LEFT.left])


def test_nothing_to_upload(run):
    assert run("sync") == (0, "MLflow has all of the runs in runs/\n", "")
    status, _, err = run("sync", "toy-1")
    assert (status, err) == (2, "error: no run 'toy-1' in runs/; left to upload: nothing\n")
    Path("runs/toy-1").mkdir(parents=True)
    assert run("sync", "toy-1") == (0, "MLflow has all of toy-1\n", "")
    assert run("sync", "runs/toy-1") == (0, "MLflow has all of runs/toy-1\n", "")
