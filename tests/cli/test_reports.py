import json
from pathlib import Path

import pytest


class TestReport:
    @pytest.mark.parametrize("arguments", [(), ("a-run", "--grid", "a-grid")])
    def test_it_is_about_runs_or_about_a_grid(self, arguments, run):
        status, _, err = run("report", *arguments)
        assert status == 2
        assert "either runs (folders, MLflow run ids or registered names) or one --grid" in err

    def test_what_is_not_there(self, run):
        status, _, err = run("report", "--grid", "mine")
        assert status == 69
        assert "no grid 'mine' in " in err
        assert "There is none yet. `forecaster compare` makes one." in err
        assert not Path("report.html").exists()

    def test_the_file_and_its_command(self, run, monkeypatch):
        from forecaster.report import Page
        from forecaster.report import runs as of

        monkeypatch.setattr(of, "of_runs", lambda names, command, on: Page(command, str(names), []))
        Path("two words").mkdir()
        status, out, _ = run("report", "one", "two words", "--device", "cpu")
        assert (status, out) == (0, "report.html\n")
        text = Path("report.html").read_text()
        assert "forecaster report one &#39;two words&#39; --device cpu" in text
        assert "[&#39;one&#39;, &#39;two words&#39;]" in text
        status, out, _ = run("report", "one", "--output", "there/it.html", "--json")
        file = Path("there/it.html")
        assert json.loads(out) == {"file": str(file), "bytes": file.stat().st_size}
