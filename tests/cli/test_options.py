import typer

from forecaster import cli
from forecaster.base.spelling import option
from forecaster.config.flags import FLAGS
from forecaster.config.run_config import declared


def test_every_flag_of_the_table_is_an_option_with_its_help():
    shared = {option(name): declared(path).description for name, path in FLAGS.items()}
    for command in ("train", "config"):
        found = typer.main.get_command(cli.app).commands[command].params
        assert shared.items() <= {each.opts[0]: each.help for each in found}.items()
