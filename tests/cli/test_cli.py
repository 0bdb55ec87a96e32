import errno
import json
import re
import signal
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import requests
import typer

from forecaster import cli
from forecaster.base.errors import ConfigError
from forecaster.config.run_config import load_dict
from forecaster.run import train

ROOT = typer.main.get_command(cli.app)


def commands(group, *words):
    """All of a group, as they are typed."""
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        yield from commands(command, *words, name) if inner else [" ".join((*words, name))]


IMPORTED = """
    import sys
    from forecaster.cli import main
    sys.argv[:1] = ["forecaster"]
    try:
        main()
    finally:
        heavy = {"torch", "numpy", "pandas", "mlflow", "lightning", "sklearn", "fastapi"}
        print(sorted(heavy & set(sys.modules)))
"""


class TestHelp:
    @pytest.mark.parametrize("command", [*commands(ROOT)])
    def test_each_command_has_an_example_that_it_understands(self, command, run):
        status, out, err = run(*command.split(), "--help")
        assert (status, err) == (0, "")
        (example,) = [line for line in out.splitlines() if "Example" in line]
        words = example.partition("forecaster ")[2].split()
        parsed = ROOT
        while hasattr(parsed, "commands"):
            name, parsed, words = parsed.resolve_command(parsed.make_context("x", words[:]), words)
        parsed.make_context(name, words)

    @pytest.mark.parametrize("words", [(), ("data",), ("bench",)])
    def test_a_group_alone_shows_its_help(self, words, run):
        status, out, err = run(*words)
        listed = (out + err).partition("Commands:" if words else "Forecast:")[2]
        group = ROOT.commands[words[0]] if words else ROOT
        assert status == 2
        assert all(command in listed for command in group.commands)
        assert "..." not in listed, "every summary fits its line"

    def test_version(self, run):
        assert run("--version") == (0, f"forecaster {version('attention-forecaster')}\n", "")


USAGE = """
trian | No such command 'trian'
train --atn prob | --attn
train --attn porb | --attn: unknown attention 'porb'. Did you mean 'prob'?
train --horizon -1 | --horizon: window.horizon
train --season 24,x | --season: expected comma-separated numbers
train --set trian.epochs=1 | Did you mean 'train'?
train --data etth9 | --data: unknown data set 'etth9'. Did you mean
train --data x.xlsb | A file of your own has a name ending in .csv
data show vic-elek | Did you mean 'vic_elec'?
data check etth3 | expected a file, a folder or a pattern
predict --model x --url http://x | either --model or the --url
predict --url http://x | --url needs --input
predict --url localhost:1 --input x.csv | localhost:1
predict --model x --runtime onnx | --input FILE
predict --model x --output f.txt | got f.txt
serve --port 0 | --port
bench attention --attn none | unknown attention to measure 'none'
"""
"""Wrong commands, and words that help with each."""
LIGHT = ["--help", "train --data etth3", "train --attn fulll", "train --set trian.lr=1"]


class TestMistakes:
    """One helpful line on stderr, nothing on stdout, no traceback, and the right status."""

    @pytest.mark.parametrize("line", USAGE.strip().splitlines())
    def test_usage(self, line, refused):
        command, words = line.split(" | ")
        assert words in refused(2, *command.split())
        assert list(Path().iterdir()) == [], "nothing was begun"

    def test_configuration_files_and_variables(self, refused, monkeypatch):
        Path("run.yaml").write_text("train: {epocs: 3}")
        err = refused(78, "train", "--config", "run.yaml")
        assert "run.yaml: unknown key 'train.epocs'" in err
        monkeypatch.setattr(
            sys, "argv", ["forecaster", "config", "--debug", "--config", "run.yaml"]
        )
        with pytest.raises(ConfigError):
            cli.main()
        monkeypatch.setenv("FORECASTER_TRAIN__EPOCHS", "many")
        assert re.search(r"\$FORECASTER_TRAIN__EPOCHS: .*, got 'many'", refused(78, "train"))
        monkeypatch.setenv("FORECASTER_DATA", "/no/where")
        assert "=/no/where: no such folder" in refused(78, "data", "fetch", "ETTh1")

    def test_data_that_the_user_named_are_never_replaced(self, refused, monkeypatch):
        monkeypatch.setattr("pooch.retrieve", Mock(side_effect=requests.ConnectionError))
        for command in ("train --data ETTh1", "train --set data.name=ETTh1", "data fetch ETTh1"):
            err = refused(69, *command.split())
            for words in ("cannot be downloaded", "FORECASTER_DATA", "--set data.path="):
                assert words in err
            assert "vic_elec" not in err
        err = refused(69, "train", "--set", "data.path=nothing.csv")
        assert "the data file nothing.csv does not exist" in err
        assert not Path("mlflow.db").exists()

    @pytest.mark.parametrize("line", LIGHT)
    def test_help_and_a_misspelt_name_are_told_before_anything_heavy_is_imported(self, line):
        command = [sys.executable, "-c", textwrap.dedent(IMPORTED), *line.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if line == "--help" else 2), done.stderr
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/some/file"), 74, "'/some/file'"),
        (MemoryError(), 69, "not enough memory: "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 69, "not enough memory: "),
        (ZeroDivisionError("by zero"), 70, "ZeroDivisionError: by zero\nThis is a defect in "),
    ],
)
def test_what_fails_inside_ends_with_a_sentence(error, status, words, run, monkeypatch):
    monkeypatch.setattr(train, "run", Mock(side_effect=error))
    found, out, err = run("train")
    assert (found, out) == (status, "")
    assert words in err
    assert "Traceback" not in err
    for arguments in (["--debug", "train"], ["train", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["forecaster", *arguments])
        with pytest.raises(type(error)):
            cli.main()


class TestSignals:
    @pytest.mark.parametrize(
        ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
    )
    def test_the_first_one_ends_the_command_in_order(self, number, status, run, monkeypatch):
        left = []

        def work(*arguments):
            try:
                signal.raise_signal(number)
            finally:  # in order, and the next one is for the system
                left.append(signal.getsignal(number))

        monkeypatch.setattr(train, "run", work)
        outside = signal.signal(number, signal.SIG_DFL)  # a background job may ignore it
        try:
            found, out, err = run("train")
            assert (found, out, err.splitlines()[1:]) == (status, "", ["stopped"])
            assert left == [signal.SIG_DFL]
            assert signal.getsignal(number) is signal.SIG_DFL
        finally:
            signal.signal(number, outside)

    def test_what_is_ignored_stays_ignored(self, run, monkeypatch):
        done = SimpleNamespace(to_dict=dict)
        work = Mock(side_effect=lambda *_: signal.raise_signal(signal.SIGHUP) or done)
        monkeypatch.setattr(train, "run", work)
        outside = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            assert run("train", "--json")[:2] == (0, "{}\n")
        finally:
            signal.signal(signal.SIGHUP, outside)


@pytest.mark.parametrize("command", ["data show ETTh1", "attentions --json"])
@pytest.mark.parametrize(
    ("to", "statuses", "told"), [("| head -c 1", {0, 141}, ""), ("> /dev/full", {74}, "No space")]
)
def test_a_reader_that_leaves_early_is_no_error_and_a_full_disk_is_told(
    command, to, statuses, told
):
    script = f"set -o pipefail; {sys.executable} -m forecaster {command} {to}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in statuses
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == bool(told)


def test_json_is_one_document(done):
    commands = "data list", "data show etth1", "data fetch VIC-ELEC", "config --seed 3"
    told = [done(*command.split(), "--json") for command in commands]
    assert {err for _, err in told} == {""}
    cards, card, fetched, resolved = (json.loads(out) for out, _ in told)
    assert "ETTh1" in [each["name"] for each in cards]
    assert card["seasons"] == [24, 168]
    assert Path(fetched["file"]).is_file()
    assert resolved["origins"]["seed"] == "--seed"
    assert load_dict(resolved["config"], "the test").seed == 3
