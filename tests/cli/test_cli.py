import errno
import importlib.metadata
import json
import re
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import typer

from forecaster import cli
from forecaster.base.errors import ConfigError
from forecaster.config.run_config import load_dict
from forecaster.run import experiment

ROOT = typer.main.get_command(cli.app)


def commands(group, *words):
    """All of a group, as they are typed."""
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        yield from commands(command, *words, name) if inner else [" ".join((*words, name))]


def child(*arguments):
    """Run a command in a separate process, which prints what it has imported."""
    command = [sys.executable, "-c", textwrap.dedent(IMPORTED), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
    def test_it_answers_at_once_and_imports_nothing_heavy(self):
        took = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = child("--help")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            assert done.stdout.splitlines()[-1] == "[]"
        assert min(took) < 0.5, "processor seconds"

    def test_the_overview(self, run):
        status, out, err = run("--help")
        assert (status, err) == (0, "")
        assert "forecaster train --attn prob --horizon 336" in out
        assert "Exit codes: 0 done, 2 usage" in out
        assert "--version" in out
        assert "--debug" in out
        assert all(f"\n{group}:\n" in out for group in cli.GROUPS)
        listed = out.partition("Forecast:")[2]
        assert all(command in listed for command in ROOT.commands)
        assert "..." not in listed, "every summary fits its line"

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

    @pytest.mark.parametrize("arguments", [(), ("data",), ("bench",)])
    def test_a_group_alone_shows_its_help(self, arguments, run):
        status, out, err = run(*arguments)
        assert status == 2
        assert ("Commands:" if arguments else "Forecast:") in out + err

    def test_version(self, run):
        expected = f"forecaster {importlib.metadata.version('attention-forecaster')}\n"
        assert run("--version") == (0, expected, "")


USAGE = """
trian | No such command 'trian'
train --atn prob | --attn
train prob | unexpected extra argument
train --horizon x | integer
train --features X | 'M', 'S', 'MS'
train --attn porb | --attn: unknown attention 'porb'. Did you mean 'prob'?
train --attn informer | Did you mean 'prob'?
train --horizon -1 | --horizon: window.horizon
train --lookback -5 | got '-5'
train --seed -1 | --seed
train --season 24,x | --season: expected comma-separated numbers
train --set horizon | --set expects KEY=VALUE
train --set trian.epochs=1 | Did you mean 'train'?
train --config infromer | Did you mean 'informer'?
train --data etth9 | --data: unknown data set 'etth9'. Did you mean
train --data x.xlsb | A file of your own has a name ending in .csv
config --features M --target OT | choose MS
data show vic-elek | Did you mean 'vic_elec'?
data fetch | Missing argument
data check etth3 | expected a file, a folder or a pattern
data check x.csv --set data.tmie=x | Did you mean 'time'?
evaluate --model nope/x | names no model
report runs nope/x | names no model
predict | either --model or the --url
predict --model x --url http://x | either --model or the --url
predict --url http://x | --url needs --input
predict --url localhost:1 --input x.csv | localhost:1
predict --model x --runtime onnx | --input FILE
predict --model x --output f.txt | got f.txt
predict --model ../nothing/here | names no model
export --model ../nothing/here --format onnx | names no model
serve --port 0 | --port
attentions informer | Did you mean 'prob'?
bench attention --attn fulll | Did you mean 'full'?
bench attention --attn none | unknown attention to measure 'none'
bench attention --length 9:3 | got 9:3
bench attention --width 7 | got 7
"""
"""Wrong commands, and words that help with each."""
LIGHT = """
train --data etth3
train --attn fulll
train --set trian.lr=1
data check x.csv --set data.tmie=x
report runs nope/x
"""


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
        monkeypatch.setenv("FORECASTER_TRAIN__EPOCHS", "many")
        assert re.search(r"\$FORECASTER_TRAIN__EPOCHS: .*, got 'many'", refused(78, "train"))
        monkeypatch.setenv("FORECASTER_DATA", "/no/where")
        err = refused(78, "data", "fetch", "ETTh1")
        assert "FORECASTER_DATA=/no/where: no such folder" in err

    def test_bundles_and_histories(self, folder, csv, refused):
        predict = ("predict", "--input", csv, "--model")
        assert "holds no bundle" in refused(69, *predict, folder.parent)
        assert "no MLflow database" in refused(69, *predict, "forecaster-x")
        err = refused(69, "predict", "--input", "nothing.csv", "--model", folder)
        assert re.search(r"nothing\.csv.* does not exist", err)
        for name in ("no/where/f.csv", "no/where/f.parquet"):
            err = refused(74, *predict, folder, "--output", name)
            assert f"{name} could not be written" in err
        csv.write_text(csv.read_text().replace("-3.5", "calm", 1))
        assert re.search(r"row 1\b.*'wind'.*got 'calm'", refused(65, *predict, folder))
        (folder / "config.json").write_text("{}")
        for command in ((*predict, folder), ("evaluate", "--model", folder)):
            assert "config.json is damaged" in refused(65, *command)

    @pytest.mark.usefixtures("offline")
    @pytest.mark.parametrize(
        "command", ["train --data ETTh1", "train --set data.name=ETTh1", "data fetch ETTh1"]
    )
    def test_data_that_the_user_named_are_never_replaced(self, command, refused):
        err = refused(69, *command.split())
        for words in ("cannot be downloaded", "data/raw", "FORECASTER_DATA", "--set data.path="):
            assert words in err
        assert "vic_elec" not in err
        assert not Path("mlflow.db").exists()
        err = refused(69, "train", "--set", "data.path=nothing.csv")
        assert "the data file nothing.csv does not exist" in err

    @pytest.mark.parametrize("line", LIGHT.strip().splitlines())
    def test_a_misspelt_name_is_told_before_anything_heavy_is_imported(self, line):
        done = child(*line.split())
        assert (done.returncode, done.stdout) == (2, "[]\n"), done.stderr


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
    monkeypatch.setattr(experiment, "run", Mock(side_effect=error))
    found, out, err = run("train")
    assert (found, out) == (status, "")
    assert words in err
    assert "Traceback" not in err
    for arguments in (["--debug", "train"], ["train", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["forecaster", *arguments])
        with pytest.raises(type(error)):
            cli.main()


def test_debug_shows_the_traceback_of_a_mistake_as_well(monkeypatch):
    Path("run.yaml").write_text("seed: x")
    words = ["forecaster", "config", "--config", "run.yaml", "--debug"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(ConfigError):
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

        monkeypatch.setattr(experiment, "run", work)
        outside = signal.signal(number, signal.SIG_DFL)  # a background job may ignore it
        try:
            found, out, err = run("train")
            assert (found, out, err.splitlines()[1:]) == (status, "", ["stopped"])
            assert left == [signal.SIG_DFL]
            assert signal.getsignal(number) is signal.SIG_DFL
        finally:
            signal.signal(number, outside)

    def test_what_is_ignored_stays_ignored(self, run, monkeypatch):
        result = SimpleNamespace(to_dict=dict)

        def work(*arguments):
            signal.raise_signal(signal.SIGHUP)
            return result

        monkeypatch.setattr(experiment, "run", work)
        outside = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            assert run("train", "--json")[:2] == (0, "{}\n")
        finally:
            signal.signal(signal.SIGHUP, outside)


@pytest.mark.parametrize(
    ("words", "statuses", "told"),
    [
        ("data show ETTh1 | true", {0, 141}, ""),
        ("attentions --json | head -c 1", {0, 141}, ""),
        ("config 2>&1 | true", {0, 141}, ""),
        ("data show ETTh1 > /dev/full", {74}, "No space left on device"),
        ("attentions --json > /dev/full", {74}, "No space left on device"),
    ],
)
def test_a_reader_that_leaves_early_is_no_error_and_a_full_disk_is_told(words, statuses, told):
    script = f"set -o pipefail; {sys.executable} -m forecaster {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in statuses
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == bool(told)


def test_json_is_one_document(done):
    def document(command):
        out, err = done(*command.split(), "--json")
        assert err == ""
        return json.loads(out)

    assert "ETTh1" in [card["name"] for card in document("data list")]
    assert document("data show etth1")["seasons"] == [24, 168]
    fetched = document("data fetch VIC-ELEC")
    assert fetched["name"] == "vic_elec"
    assert Path(fetched["file"]).is_file()
    resolved = document("config --seed 3")
    assert resolved["origins"]["seed"] == "--seed"
    assert load_dict(resolved["config"], "the test").seed == 3


def test_the_installed_command_is_this_one():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="forecaster")
    assert script.load() is cli.main
