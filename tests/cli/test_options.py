import typer

from forecaster import cli
from forecaster.base.spelling import option
from forecaster.cli.options import configured
from forecaster.config.flags import FLAGS
from forecaster.config.run_config import declared


def options(*words):
    """The options of a command as they are typed, with their help."""
    command = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    return {each.opts[0]: each.help for each in command.params if each.opts[0].startswith("--")}


SHARED = {option(name): declared(path).description for name, path in FLAGS.items()}


def test_every_flag_of_the_table_is_an_option_in_its_order():
    for command, own in {"train": ["--cutoffs", "--resume"], "config": []}.items():
        found = options(command)
        expected = [*SHARED, "--config", "--set", *own]
        assert list(found)[: len(expected)] == expected
        assert SHARED.items() <= found.items()


def test_an_option_of_the_same_name_has_the_same_help():
    for command in ("evaluate", "predict", "serve", "report", "data check"):
        found = options(*command.split())
        shared = found.keys() & {"--device", "--horizon", "--policy"}
        assert shared
        assert {name: found[name] for name in shared} == {name: SHARED[name] for name in shared}


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
    flags = {"horizon": 5, "season": "24,168", "static": "kind,shop", "lookback": "504"}
    assert asked.flags == {**flags, "refit": False}
    assert (asked.config, asked.sets, extra) == (None, ["a=1", "b=2"], "x")
    again = asked.command("train", horizon=9, freq="h")
    assert again.startswith("forecaster train --horizon 5 "), "what was given, not what was found"
    assert "--freq h --season 24,168 " in again
