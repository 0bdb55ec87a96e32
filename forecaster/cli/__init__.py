"""The command `forecaster`. Commands import their modules when they run, so --help is fast.

A file holds the commands of one purpose (GROUPS); `options` are those that several take, `output`
prints. It may import every room, and nothing imports it. Begin reading with `train`.
"""

import errno
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from forecaster.base import extras, signals
from forecaster.base.errors import ForecasterError, Stopped, StorageError, UnavailableError
from forecaster.base.version import __version__
from forecaster.cli import after, attentions, data, keep, predict, reports, serve, train
from forecaster.cli.output import say
from forecaster.tracking import SETTINGS

EXIT_CODES = """
Exit codes: 0 done, 2 usage, 65 data, 69 unavailable, 70 internal, 74 files, 78 configuration
file or environment, or training that diverged with it, 130 interrupted, 143 terminated.
"""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The system's error numbers for a disk, whichever code wrote to it."""
leave = os._exit
"""How a stopped command ends; the interpreter would first wait for the threads of other
libraries."""
GONE = 141
"""The status of a command whose output is no longer read, as if SIGPIPE had ended it."""


class _Grouped(TyperGroup):
    """Lists the commands by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title in GROUPS:
            rows = [
                (name, (command.short_help or command.help or "").partition("\n")[0])
                for name, command in self.commands.items()
                if getattr(command, "rich_help_panel", "") == title
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="forecaster",
    cls=_Grouped,
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


def _version(show: bool) -> None:
    if show:
        print(f"forecaster {__version__}")
        raise typer.Exit


@app.callback()
def overall(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere.")
    ] = False,
) -> None:
    """Read --version; `main` has already removed --debug."""


GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Forecast": (train.train, predict.future, predict.predict, predict.effects, serve.serve),
    "Judge": (train.evaluate, reports.report, reports.compare),
    "After": (after.score, after.renew),
    "Choose": (attentions.advise, train.tune, attentions.attentions, train.config),
    "Keep": (keep.promote, keep.sync, keep.export, keep.doctor),
}
"""The commands by what they are for, as --help lists them."""
for group, members in GROUPS.items():
    for member in members:
        first = (member.__doc__ or "").partition("\n")[0]  # else click would cut it short
        app.command(short_help=first, rich_help_panel=group)(member)
app.add_typer(data.app, name="data", rich_help_panel="Forecast")
app.add_typer(attentions.bench, name="bench", rich_help_panel="Judge")


def main() -> NoReturn:
    """The entry point: one line for a user's mistake, a traceback only with --debug."""
    debug = "--debug" in sys.argv
    argv = [argument for argument in sys.argv[1:] if argument != "--debug"]
    stopped = False
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if sys.platform == "win32":  # where a file or a pipe would get an old code page
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with signals.heeding():
        try:
            status = app(argv, standalone_mode=False)
        except Stopped as error:
            if not error.reported:
                say("stopped")
            stopped, status = True, error.exit_code
        except ForecasterError as error:
            if debug:
                raise
            say(f"error: {error}")
            status = error.exit_code
        except SystemExit as left:
            if not isinstance(left.__context__, BrokenPipeError):
                raise
            status = GONE  # typer reports it so, too
        except BrokenPipeError:
            status = GONE
        except Exception as error:
            status = _unexpected(error, debug)
        finally:
            lost = _empty()
    if stopped:
        leave(status)
    sys.exit(status or lost)


def _empty() -> int:
    """Flush the output; if the reader has gone, drop it, which is not an error."""
    for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if not isinstance(error, BrokenPipeError):
                say(f"error: the output could not be written: {error}")
                return StorageError.exit_code
    return 0


def _unexpected(error: Exception, debug: bool) -> int:
    show: Callable[[], None] | None = getattr(error, "show", None)
    if show is not None:  # an invalid command line: click explains it
        show()
        return int(getattr(error, "exit_code", 2))
    if type(error).__name__ == "Abort":
        return 130
    if debug:
        raise error
    if (advice := extras.told(error)) is not None:
        say(f"error: {advice}")
        return advice.exit_code
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):  # in torch's message
        say(f"error: not enough memory: {str(error) or type(error).__name__}")
        return UnavailableError.exit_code
    if isinstance(error, OSError) and (error.errno in FULL or error.filename is not None):
        say(f"error: {error}")
        return StorageError.exit_code
    say(
        f"error: {type(error).__name__}: {error}\nThis is a defect in forecaster; run again with "
        "--debug for the traceback and report it."
    )
    return ForecasterError.exit_code
