import io
import sys

import pytest

from forecaster.base.progress import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work() -> None:
    with Bar("baking", 4, 1) as bar:
        bar.advance("bread", 1)
        bar.line("[one] is done")


def test_without_a_terminal_there_are_lines_alone(capfd: pytest.CaptureFixture[str]) -> None:
    work()
    assert capfd.readouterr() == ("", "[one] is done\n")


def test_a_terminal_shows_a_bar_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    work()
    assert isinstance(sys.stderr, Terminal)
    shown = sys.stderr.getvalue()
    assert "baking" in shown
    assert "50%" in shown
    assert "bread" in shown
    assert "[one] is done" in shown
    assert shown.count("\x1b[?25h") == 1, "the cursor is back"


def test_a_failure_leaves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(ValueError, match="burnt"), Bar("baking", 1):
        raise ValueError("burnt")
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.getvalue().count("\x1b[?25h") == 1
