import json
from pathlib import Path

from forecaster.tracking import publish
from forecaster.tracking.publish import Synced

DONE = Synced("toy-1", "forecaster-toy version 1 is the champion", "")
LEFT = Synced("toy-2", "", "http://host: Connection refused")
UNDER_WAY = Synced("toy-3", "", "", under_way=True)


def test_what_was_uploaded_and_what_is_left_is_said(run, monkeypatch):
    asked, found = [], [DONE, UNDER_WAY, Synced("toy-4", "", "")]
    monkeypatch.setattr(publish, "sync", lambda names: asked.append(names) or found)
    status, out, err = run("sync")
    assert (status, asked) == (0, [[]])
    assert out == f"toy-1: uploaded; {DONE.told}\ntoy-4: uploaded\n"
    assert err == "toy-3: in progress, its own process uploads it\n"
    found[:] = [DONE, LEFT]
    status, out, err = run("sync", "toy-1", "toy-2")
    assert (status, asked[-1]) == (69, ["toy-1", "toy-2"])
    assert out == f"toy-1: uploaded; {DONE.told}\n"
    assert err.splitlines()[0] == "toy-2: not all uploaded: http://host: Connection refused"
    assert "error: 1 of 2 runs could not be uploaded: toy-2. The rest is kept" in err
    status, out, _ = run("sync", "--json")
    assert (status, [each["left"] for each in json.loads(out)["runs"]]) == (69, ["", LEFT.left])


def test_nothing_to_upload(done, refused):
    assert done("sync") == ("MLflow has all of the runs in runs/\n", "")
    err = refused(2, "sync", "toy-1")
    assert err == "error: no run 'toy-1' in runs/; left to upload: nothing\n"
    Path("runs/toy-1").mkdir(parents=True)
    for name in ("toy-1", "runs/toy-1"):
        assert done("sync", name) == (f"MLflow has all of {name}\n", "")
