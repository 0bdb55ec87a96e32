"""The command `forecaster`. Imports what a command runs when it runs: --help answers at once."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from forecaster.cli import attentions, data, doctor, export, predict, reports, serve, sync, train
from forecaster.cli.output import say
from forecaster.errors import ForecasterError, Stopped

EXIT_CODES = """
Exit codes: 0 done, 2 usage, 65 data, 69 unavailable, 70 internal, 74 files, 78 configuration
file or environment, 130 interrupted, 143 terminated.
"""

app = typer.Typer(
    name="forecaster",
    help="Long-sequence forecasting in which the attention is one interchangeable choice.\n\n"
    "  forecaster train --attn prob --horizon 336\n\n"
    "  forecaster serve\n\n"
    "  mlflow ui --backend-store-uri sqlite:///mlflow.db",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"forecaster {version('forecaster')}")
        raise typer.Exit


@app.callback()
def overall(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
) -> None:
    """Read --version; `main` has taken --debug already."""


for command in (
    train.train, train.evaluate, train.tune, sync.sync, predict.predict, export.export,
    serve.serve, reports.compare, reports.report, attentions.advise, attentions.attentions,
    train.config, doctor.doctor,
):  # fmt: skip
    app.command(epilog=serve.SETTINGS if command is serve.serve else None)(command)
app.add_typer(data.app, name="data")
app.add_typer(attentions.bench, name="bench")


def main() -> NoReturn:
    """The entry point: one line for a user's mistake, a traceback only with --debug."""
    debug = "--debug" in sys.argv
    argv = [argument for argument in sys.argv[1:] if argument != "--debug"]
    with _signals():
        try:
            status = app(argv, standalone_mode=False)
        except Stopped as stopped:
            say("stopped")
            status = stopped.exit_code
        except ForecasterError as error:
            if debug:
                raise
            say(f"error: {error}")
            status = error.exit_code
        except Exception as error:
            status = _unexpected(error, debug)
        finally:
            _empty_stdout()
    sys.exit(status or 0)


def _empty_stdout() -> None:
    """Write what is left; drop it where the reader has gone, which is no error."""
    try:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _unexpected(error: Exception, debug: bool) -> int:
    show: Callable[[], None] | None = getattr(error, "show", None)
    if show is not None:  # the command line itself was wrong: click says how
        show()
        return int(getattr(error, "exit_code", 2))
    if type(error).__name__ == "Abort":
        return 130
    if debug:
        raise error
    say(
        f"error: {type(error).__name__}: {error}\nThis is a defect of forecaster; run again with "
        "--debug for the traceback and report it."
    )
    return ForecasterError.exit_code


@contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal raise Stopped once; the second ends the process.

    A signal that is ignored, as under nohup, stays ignored.
    """

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Stopped(number)

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in wanted if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
