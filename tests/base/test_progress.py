import io
import sys

import pytest

from forecaster.base.progress import Bar, detail, details, lasting, time_left


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
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    work()
    shown = terminal.getvalue()
    assert all(words in shown for words in ("baking", "50%", "bread", "[one] is done"))
    with pytest.raises(ValueError, match="burnt"), Bar("baking", 1):
        raise ValueError("burnt")
    assert terminal.getvalue().count("\x1b[?25h") == 2, "the cursor is back"


def test_a_time_is_told_in_its_two_largest_units() -> None:
    for seconds, words in ((45.4, "45 s"), (99, "1 min 39 s"), (120, "2 min"), (7384, "2 h 3 min")):
        assert (lasting(seconds), time_left(seconds)) == (words, f"{words} left at most")
    assert time_left(0.2) == "1 s left at most"


@pytest.mark.parametrize("wanted", [True, False])
def test_details_are_for_those_who_want_them(wanted, capsys):
    said = []
    with details(wanted), Bar("it", 2) as bar:
        detail(said.append, "attention")
        bar.line("epoch 1", seldom=True)
        bar.line("at most a minute")
    assert said == ["attention"] * wanted
    assert capsys.readouterr().err == "epoch 1\n" * wanted + "at most a minute\n"
