import typer

from forecaster import cli
from forecaster.base.spelling import option
from forecaster.cli.options import configured
from forecaster.config.flags import FLAGS
from forecaster.config.run_config import declared


def test_every_flag_of_the_table_is_an_option_with_its_help():
    shared = {option(name): declared(path).description for name, path in FLAGS.items()}
    for command in ("train", "config"):
        found = typer.main.get_command(cli.app).commands[command].params
        assert shared.items() <= {each.opts[0]: each.help for each in found}.items()


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
