import json
from pathlib import Path

from forecaster.report import Page
from forecaster.report import runs as of


def test_it_is_about_runs_or_about_a_grid_that_is_there(refused):
    for arguments in ((), ("a-run", "--grid", "a-grid")):
        err = refused(2, "report", *arguments)
        assert "either runs (folders, MLflow run ids or registered names) or one --grid" in err
    assert "no grid 'mine' in " in refused(69, "report", "--grid", "mine")


def test_the_file_and_its_command(done, monkeypatch):
    monkeypatch.setattr(of, "of_runs", lambda names, *rest: Page(rest[0], str(names), []))
    Path("two words").mkdir()
    assert done("report", "one", "two words")[0] == "report.html\n"
    text = Path("report.html").read_text()
    assert "forecaster report one &#39;two words&#39;" in text
    assert "[&#39;one&#39;, &#39;two words&#39;]" in text
    out, _ = done("report", "one", "--output", "there/it.html", "--json")
    file = Path("there/it.html")
    assert json.loads(out) == {"file": str(file), "bytes": file.stat().st_size}
