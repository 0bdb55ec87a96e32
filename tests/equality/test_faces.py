"""Commands take the parameters and end with the statuses of release 0.2.0; routes are as recorded.

What differs on purpose is named in `CHANGED` or `ENDS`, or recorded anew (CONTRIBUTING.md).
"""

import json
import shutil
from typing import Any

import typer

from forecaster import cli
from forecaster.cli.options import REPEATED
from forecaster.config.flags import Blend
from forecaster_service.app import create_app
from forecaster_service.settings import Settings
from tests.equality import cases
from tests.equality.cases import RECORDS

BUDGET = ("lookback", "budget-ms", "memory", "curves", "device")
CHANGED: dict[str, dict[str, Any]] = {f"advise --{name}": {} for name in BUDGET} | {
    # networks are small: one process trains each
    **{f"train --{name}": {} for name in ("devices", "nodes")},
    "predict --short-history": {"default": None},  # by default what suits a panel or one series
    # one closed form may be served by its name
    **{f"{name} --blend": {"type": str(Blend)} for name in ("train", "config")},
    # columns may be named one by one
    **{
        f"{name} --{flag.replace('_', '-')}": {"multiple": True, "type": "list[str]"}
        for name in ("train", "config", "tune", "advise", "data check")
        for flag in REPEATED
        if flag != "categorical"
    },
    # a run is trained again from its configuration
    **{name: {} for name in ("reproduce", "reproduce run", "reproduce --json")},
    # cut-offs are always trained anew
    "evaluate --refit": {},
    # a report computes nothing
    "report --device": {},
    # the format of torch.export went
    "export --format": {"required": False, "default": "onnx", "type": "typing.Literal['onnx']"},
}
"""What a parameter has now, by command and name, such as {"train --attn": {...}}; {} is gone."""
ENDS: dict[str, int] = dict.fromkeys(("reproduce", "reproduce no/where", "reproduce damaged"), 2)
"""How a recorded line ends now."""
SAID = ("description", "title", "summary", "example", "examples")


def commands():
    """Every parameter of every command, by command and name, without its help."""
    found = {}

    def walk(command, words):
        found[" ".join(words)] = {}
        for each in command.params:
            told = {
                name: getattr(each, name) for name in ("required", "multiple", "nargs", "envvar")
            }
            told |= {name: getattr(each, name, None) for name in ("min", "max", "is_flag")}
            kind = each.type_descriptor.annotation
            told |= {"names": [*each.opts, *each.secondary_opts], "default": each.default}
            told |= {"type": kind.__name__ if isinstance(kind, type) else str(kind)}
            found[" ".join((*words, each.opts[0]))] = told
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))

    walk(typer.main.get_command(cli.app), ())
    return json.loads(json.dumps(found, default=str))


def statuses(folder):
    """How each recorded line ends in a folder with a bundle and some files."""
    rows = cases.two(cases.ROWS)
    made = folder / "made"
    made.mkdir()
    rows.to_csv(made / "own.csv", index=False)
    with cases.at(made):
        assert cases.status(*cases.OWN) == 0
    (trained,) = (made / "runs").iterdir()
    shutil.copytree(trained, folder / "damaged")
    trained.rename(folder / "bundle")
    (folder / "damaged" / "config.json").write_text("{}")
    text = rows.tail(60).to_csv(index=False)
    (folder / "own.csv").write_text(text)
    (folder / "short.csv").write_text("".join(text.splitlines(keepends=True)[:6]))
    (folder / "text.csv").write_text("a poem\nof two lines\n")
    (folder / "wrong.yaml").write_text("train: {epocs: 3}")
    with cases.at(folder):
        return {line: cases.status(*line.split()) for line in recorded("statuses")}


def routes():
    """/openapi.json without its sentences."""

    def bare(node):
        if isinstance(node, dict):
            return {
                key: bare(each)
                for key, each in node.items()
                if key not in SAID or (isinstance(each, dict) and key in ("title", "description"))
            }
        return [bare(each) for each in node] if isinstance(node, list) else node

    described = create_app(Settings()).openapi()
    return {name: bare(described[name]) for name in ("paths", "components")}


def recorded(name):
    return json.loads((RECORDS / f"{name}.json").read_text())


def test_commands_take_the_same_parameters():
    expected = recorded("commands")
    for name, change in CHANGED.items():
        expected[name] = {**expected.get(name, {}), **change}
    gone = [name for name, change in CHANGED.items() if not change]
    found = {name: each for name, each in commands().items() if name in expected}
    assert found == {name: each for name, each in expected.items() if name not in gone}


def test_commands_end_with_the_same_statuses(tmp_path):
    assert statuses(tmp_path) == {**recorded("statuses"), **ENDS}


def test_routes_are_the_same():
    assert routes() == recorded("routes")
