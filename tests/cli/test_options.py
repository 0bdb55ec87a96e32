import pytest
import typer

from forecaster import cli
from forecaster.base.spelling import option
from forecaster.cli.options import configured
from forecaster.config.flags import FLAGS


def options(*words):
    """The options of a command as they are typed, with their help."""
    command = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    return {each.opts[0]: each.help for each in command.params if each.opts[0].startswith("--")}


SHARED = {option(name): flag.help for name, flag in FLAGS.items()}
ABOUT_FILES = {
    option(name): flag.help
    for name, flag in FLAGS.items()
    if flag.path.startswith(("data.", "window.")) and name != "data"
}


@pytest.mark.parametrize(
    ("command", "flags", "own"),
    [
        (("train",), SHARED, ["--cutoffs", "--resume", "--force", "--devices", "--nodes"]),
        (("config",), SHARED, []),
        (("data", "check"), ABOUT_FILES, ["--picture"]),
    ],
)
def test_every_flag_of_the_table_is_an_option(command, flags, own):
    found = options(*command)
    assert list(found) == [*flags, "--config", "--set", *own, "--json"], "in the order of the table"
    assert flags.items() <= found.items()


@pytest.mark.parametrize("command", ["evaluate", "predict", "serve", "report", "advise"])
def test_an_option_of_the_same_name_has_the_same_help(command):
    found = options(command)
    assert found["--device"] == FLAGS["device"].help
    if command == "predict":
        assert found["--policy"] == FLAGS["policy"].help
        assert found["--horizon"] == FLAGS["horizon"].help


def test_a_command_gets_what_was_asked_for():
    seen = []

    @configured("horizon", "season", "static", "lookback", "refit", "seed")
    def command(asked, *, extra: str = "none"):
        seen.append((asked, extra))

    app = typer.Typer()
    app.command()(command)
    words = "--horizon 5 --season 24,168 --static kind,shop --lookback 504 --no-refit --extra x"
    app([*words.split(), "--set", "a=1", "--set", "b=2"], standalone_mode=False)
    ((asked, extra),) = seen
    assert asked.flags == {
        "horizon": 5, "season": "24,168", "static": "kind,shop", "lookback": "504",
        "refit": False,
    }  # fmt: skip
    assert (asked.config, asked.sets, extra) == (None, ["a=1", "b=2"], "x")
