"""For all tests: enforce shape annotations (jaxtyping and beartype), and obey markers."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from jaxtyping import install_import_hook

from forecaster.tracking import SETTINGS

install_import_hook(["forecaster.attention", "forecaster.model"], "beartype.beartype")

# Tensors here are tiny: on busy cores a second thread makes a test ten times slower, not faster.
torch.set_num_threads(1)

for name, value in SETTINGS.items():  # as in a command
    os.environ.setdefault(name, value)

DATA = os.environ.get("FORECASTER_DATA")  # as outside of the tests; a test may set its own
MISSING = pytest.StashKey[list[str]]()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A separate working directory, where the data set `small` is known."""
    from tests import small

    with small.at_home(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command in this process; returns its exit status, stdout and stderr."""
    from forecaster import cli

    monkeypatch.setattr(cli, "leave", sys.exit)  # those of this command, not of the tests

    def call(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["forecaster", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are kept in their folders, and no store is told of them."""
    run = MagicMock(id="none", registered="", ui_command="")
    monkeypatch.setattr("forecaster.tracking.run.start", lambda *_, **options: nullcontext(run))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The tab of a browser, a `tests.browser.Tab`."""
    from tests.browser import browser  # needs packages of the service

    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forbid-skips",
        action="store_true",
        help="a test that is skipped, but for want of a GPU or of data sets, is a failure",
    )


@cache
def share_tables(store: Any) -> None:
    """From the second new database of MLflow on, copy the first: its tables take five seconds."""
    answering: Callable[[str], Any] = store._answering
    tables: list[bytes] = []

    def answer(uri: str) -> Any:
        file = Path(uri.removeprefix("sqlite:///"))
        is_new = uri.startswith("sqlite:///") and not file.exists()
        if is_new and tables:
            file.write_bytes(tables[0])
        client = answering(uri)
        if is_new and not tables:
            tables.append(file.read_bytes())
        return client

    store._answering = answer


def pytest_runtest_setup(item: pytest.Item) -> None:
    if store := sys.modules.get("forecaster.tracking.store"):
        share_tables(store)
    if item.get_closest_marker("data") and not DATA:
        pytest.skip("wants the data sets: FORECASTER_DATA is not set")
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("wants a CUDA device")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.getoption("--forbid-skips"):
        return
    skipped = reporter.stats.get("skipped", [])
    allowed = {"gpu"} if DATA else {"gpu", "data"}
    config.stash[MISSING] = [
        report.nodeid for report in skipped if not allowed & set(getattr(report, "keywords", ()))
    ]
    if config.stash[MISSING]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for nodeid in config.stash.get(MISSING, []):
        terminalreporter.write_line(f"skipped, and that is a failure here: {nodeid}", red=True)
