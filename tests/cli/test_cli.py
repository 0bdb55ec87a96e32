import errno
import importlib.metadata
import json
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import typer

from forecaster import cli
from forecaster.attention import ATTENTIONS
from forecaster.base.errors import ConfigError
from forecaster.config.run_config import load_dict
from forecaster.run import experiment

COMMANDS = [
    ("train",),
    ("evaluate",),
    ("reproduce",),
    ("tune",),
    ("sync",),
    ("promote",),
    ("predict",),
    ("export",),
    ("serve",),
    ("compare",),
    ("report",),
    ("advise",),
    ("attentions",),
    ("config",),
    ("doctor",),
    ("data", "list"),
    ("data", "show"),
    ("data", "fetch"),
    ("data", "check"),
    ("bench", "attention"),
]


def child(program, *arguments, **options):
    """Run a Python program in a separate process."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class TestHelp:
    def test_it_answers_at_once_and_imports_nothing_heavy(self):
        program = """
            import sys
            from forecaster.cli import main
            sys.argv = ["forecaster", "--help"]
            try:
                main()
            except SystemExit:
                heavy = {"torch", "numpy", "pandas", "mlflow", "lightning", "fastapi"}
                print(heavy & set(sys.modules))
        """
        took = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = child(program)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            assert done.stdout.splitlines()[-1] == "set()"
        assert min(took) < 0.5, "processor seconds"

    def test_the_overview(self, run):
        status, out, err = run("--help")
        assert (status, err) == (0, "")
        assert "forecaster train --attn prob --horizon 336" in out
        assert "Exit codes: 0 done, 2 usage" in out
        assert "--version" in out
        assert "--debug" in out
        listed = out.partition("Commands:")[2]
        assert all(command[0] in listed for command in COMMANDS)
        assert "..." not in listed, "every summary fits its line"

    def test_the_commands_above_are_all_there_are(self):
        root = typer.main.get_command(cli.app)
        names = set()
        for name, command in root.commands.items():
            names |= {(name, inner) for inner in getattr(command, "commands", ())} or {(name,)}
        assert names == set(COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_each_command_has_an_example_that_it_understands(self, command, run):
        status, out, err = run(*command, "--help")
        assert (status, err) == (0, "")
        (example,) = [line for line in out.splitlines() if "Example" in line]
        words = example.partition("forecaster ")[2].split()
        parsed = typer.main.get_command(cli.app)
        while hasattr(parsed, "commands"):
            name, parsed, words = parsed.resolve_command(parsed.make_context("x", words[:]), words)
        parsed.make_context(name, words)

    @pytest.mark.parametrize("arguments", [(), ("data",), ("bench",)])
    def test_a_group_alone_shows_its_help(self, arguments, run):
        status, out, err = run(*arguments)
        assert status == 2
        assert "Commands:" in out + err

    def test_version(self, run):
        expected = f"forecaster {importlib.metadata.version('attention-forecaster')}\n"
        assert run("--version") == (0, expected, "")


class TestMistakes:
    """One helpful line on stderr, nothing on stdout, no traceback, and the right status."""

    def check(self, outcome, status, *words):
        got, out, err = outcome
        assert (got, out) == (status, "")
        assert "Traceback" not in err
        assert "defect" not in err
        for word in words:
            assert word in err

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["trian"], ["No such command 'trian'", "'train'"]),
            (["train", "--atn", "prob"], ["No such option", "--attn"]),
            (["train", "prob"], ["unexpected extra argument", "prob"]),
            (["train", "--horizon", "x"], ["--horizon", "integer"]),
            (["train", "--device", "gpu"], ["--device", "'auto', 'cpu', 'cuda'"]),
            (["train", "--features", "X"], ["--features", "'M', 'S', 'MS'"]),
            (["train", "--attn", "porb"], ["--attn: unknown attention", "Did you mean 'prob'?"]),
            (["train", "--attn", "informer"], ["Did you mean 'prob'?"]),
            (["train", "--horizon", "0"], ["--horizon: window.horizon", "got 0"]),
            (["train", "--horizon", "-1"], ["--horizon: window.horizon", "got -1"]),
            (["train", "--lookback", "0"], ["--lookback", '"21 cycles"', "got 0"]),
            (["train", "--lookback", "-5"], ["--lookback", '"21 cycles"', "got '-5'"]),
            (["train", "--lookback", "3 weeks"], ["--lookback", '"21 cycles"', "got '3 weeks'"]),
            (["train", "--seed", "-1"], ["--seed", "got -1"]),
            (["train", "--set", "horizon"], ["--set expects KEY=VALUE"]),
            (["train", "--set", "trian.epochs=1"], ["'trian'", "Did you mean 'train'?"]),
            (["train", "--config", "infromer"], ["Did you mean 'informer'?"]),
            (["train", "--data", "etth9"], ["unknown data set 'etth9'", "Did you mean"]),
            (["config", "--features", "M", "--target", "OT"], ["data.features=M", "choose MS"]),
            (["data", "show", "vic-elek"], ["Did you mean 'vic_elec'?"]),
            (["data", "fetch"], ["Missing argument"]),
            (["predict"], ["either --model or the --url"]),
            (["predict", "--model", "x", "--url", "http://x"], ["either --model or the --url"]),
            (["predict", "--url", "http://x"], ["--url needs --input"]),
            (["predict", "--model", "x", "--runtime", "onnx"], ["--input FILE"]),
            (["export", "--model", "../nothing/here", "--format", "onnx"], ["names no model"]),
            (["predict", "--url", "localhost:1", "--input", "x.csv"], ["http://", "localhost:1"]),
            (
                ["predict", "--model", "x", "--output", "f.txt"],
                ["FILE.parquet", "got f.txt"],
            ),
            (["predict", "--model", "../nothing/here"], ["names no model", "a bundle's folder"]),
            (["serve", "--port", "0"], ["--port"]),
            (["attentions", "informer"], ["unknown attention", "Did you mean 'prob'?"]),
            (["attentions", "--names", "porb"], ["Did you mean 'prob'?"]),
            (["bench", "attention", "--attn", "fulll"], ["Did you mean 'full'?"]),
            (["bench", "attention", "--attn", "none"], ["unknown attention to measure 'none'"]),
            (["bench", "attention", "--length", "9:3"], ["--length: expected a range", "got 9:3"]),
            (["bench", "attention", "--width", "7"], ["--width must be even", "got 7"]),
            (["bench", "attention", "--limit", "0"], ["--limit"]),
        ],
        ids=lambda value: "_".join(value)[:40],
    )
    def test_usage(self, arguments, words, run):
        self.check(run(*arguments), 2, *words)
        assert list(Path().iterdir()) == [], "nothing was begun"

    def test_configuration_files_and_variables(self, run, monkeypatch):
        Path("run.yaml").write_text("train: {epocs: 3}")
        outcome = run("train", "--config", "run.yaml")
        self.check(outcome, 78, "run.yaml: unknown key 'train.epocs'", "Did you mean 'epochs'?")
        monkeypatch.setenv("FORECASTER_TRAIN__EPOCHS", "many")
        self.check(run("train"), 78, "$FORECASTER_TRAIN__EPOCHS: train.epochs", "got 'many'")
        monkeypatch.delenv("FORECASTER_TRAIN__EPOCHS")
        monkeypatch.setenv("FORECASTER_DATA", "/no/where")
        self.check(run("data", "fetch", "ETTh1"), 78, "FORECASTER_DATA=/no/where: no such folder")

    def test_bundles(self, folder, csv, run):
        self.check(run("predict", "--model", folder.parent), 69, "holds no bundle")
        self.check(run("predict", "--model", "forecaster-x"), 69, "no MLflow database")
        (folder / "config.json").write_text("{}")
        for command in (["predict", "--input", csv], ["evaluate"]):
            self.check(run(*command, "--model", folder), 65, "config.json is damaged")

    def test_histories(self, folder, csv, run):
        outcome = run("predict", "--model", folder, "--input", "nothing.csv")
        self.check(outcome, 69, "nothing.csv", "does not exist")
        csv.write_text(csv.read_text().replace("-3.5", "calm", 1))
        outcome = run("predict", "--model", folder, "--input", csv)
        self.check(outcome, 65, "row 1", "'wind'", "got 'calm'")

    def test_output_that_cannot_be_written(self, folder, csv, run):
        for name in ("no/where/f.csv", "no/where/f.parquet"):
            outcome = run("predict", "--model", folder, "--input", csv, "--output", name)
            self.check(outcome, 74, f"{name} could not be written")

    @pytest.mark.usefixtures("offline")
    def test_data_that_the_user_named_are_never_replaced(self, run):
        for command in (
            ["train", "--data", "ETTh1"],
            ["train", "--set", "data.name=ETTh1"],
            ["data", "fetch", "ETTh1"],
        ):
            outcome = run(*command)
            ways = ("data/raw", "FORECASTER_DATA", "--set data.path=FILE")
            self.check(outcome, 69, "cannot be downloaded", *ways)
            assert "vic_elec" not in outcome[2]
        assert not Path("mlflow.db").exists()

    def test_data_named_by_path(self, run):
        outcome = run("train", "--set", "data.path=nothing.csv")
        self.check(outcome, 69, "the data file nothing.csv does not exist")


class TestWrongNames:
    """A misspelt name is reported before anything heavy is imported."""

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("train", "--data", "etth3"), "--data: unknown data set 'etth3'. Did you mean"),
            (("train", "--data", "x.xlsb"), "A file of your own has a name ending in .csv"),
            (("train", "--config", "defualt"), "no configuration 'defualt'"),
            (("train", "--set", "trian.lr=1"), "unknown key 'trian'. Did you mean 'train'?"),
            (
                ("train", "--attn", "fulll"),
                "--attn: unknown attention 'fulll'. Did you mean 'full'?",
            ),
            (("train", "--attn", "Informer"), "Did you mean 'prob'?"),
            (("attentions", "--names", "porb"), "Did you mean 'prob'?"),
            (("config", "--set", "train.rl=1"), "unknown key 'train.rl'. Did you mean 'lr'?"),
            (("config", "--epochs", "0"), "--epochs: train.epochs: "),
            (("train", "--season", "24,x"), "--season: expected comma-separated numbers"),
            (("data", "check", "etth3"), "data check: expected a file, a folder or a pattern"),
            (("data", "check", "x.csv", "--set", "data.tmie=x"), "Did you mean 'time'?"),
            (("predict", "--model", "nope/x"), "'nope/x' names no model"),
            (("evaluate", "--model", "nope/x"), "'nope/x' names no model"),
            (("report", "runs", "nope/x"), "'nope/x' names no model"),
        ],
        ids=lambda value: "_".join(value)[:30],
    )
    def test_at_once(self, arguments, words):
        program = """
            import sys
            from forecaster.cli import main
            sys.argv[:1] = ["forecaster"]
            try:
                main()
            finally:
                heavy = {"torch", "numpy", "pandas", "mlflow", "lightning", "sklearn"}
                print(sorted(heavy & set(sys.modules)))
        """
        done = child(program, *arguments)
        assert (done.returncode, done.stdout) == (2, "[]\n")
        assert words in done.stderr


def test_a_file_that_cannot_be_had_is_no_defect(run, monkeypatch):
    denied = PermissionError(errno.EACCES, "Permission denied", "/some/file")
    monkeypatch.setattr(experiment, "run", Mock(side_effect=denied))
    status, out, err = run("train")
    assert (status, out) == (74, "")
    assert err.splitlines()[-1] == "error: [Errno 13] Permission denied: '/some/file'"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 2 bytes")]
)
def test_too_little_memory_is_no_defect(error, run, monkeypatch):
    monkeypatch.setattr(experiment, "run", Mock(side_effect=error))
    status, out, err = run("train")
    assert (status, out) == (69, "")
    assert "error: not enough memory: " in err


class TestDefects:
    """Unexpected exceptions."""

    @pytest.fixture(autouse=True)
    def _broken(self, monkeypatch):
        monkeypatch.setattr(experiment, "run", lambda *arguments: 1 / 0)

    def test_it_is_called_a_defect_of_ours(self, run):
        status, out, err = run("train")
        assert (status, out) == (70, "")
        assert "ZeroDivisionError: division by zero" in err
        assert "--debug" in err
        assert "Traceback" not in err

    @pytest.mark.parametrize("arguments", [["--debug", "train"], ["train", "--debug"]])
    def test_debug_shows_the_traceback(self, arguments, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["forecaster", *arguments])
        with pytest.raises(ZeroDivisionError):
            cli.main()

    def test_of_a_users_mistake_as_well(self, monkeypatch):
        Path("run.yaml").write_text("seed: x")
        monkeypatch.setattr(
            sys, "argv", ["forecaster", "config", "--config", "run.yaml", "--debug"]
        )
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
            finally:
                left.append("in order")

        monkeypatch.setattr(experiment, "run", work)
        outside = signal.signal(number, signal.SIG_DFL)  # a background job may ignore it
        try:
            found, out, err = run("train")
            assert (found, out, err.splitlines()[1:]) == (status, "", ["stopped"])
            assert left == ["in order"]
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

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_the_second_one_ends_the_process_at_once(self, number):
        program = f"""
            import signal, sys, time
            signal.signal({int(number)}, signal.SIG_DFL)
            from forecaster import cli

            def work():
                try:
                    print("working", flush=True)
                    time.sleep(60)
                finally:
                    print("cleaning", flush=True)
                    time.sleep(60)

            cli.app.command("work")(work)
            sys.argv = ["forecaster", "work"]
            cli.main()
        """
        command = [sys.executable, "-c", textwrap.dedent(program)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "working\n"
            process.send_signal(number)
            assert process.stdout.readline() == "cleaning\n"
            begun = time.monotonic()
            process.send_signal(number)
            assert process.wait(10) == -number
            assert time.monotonic() - begun < 5

    @pytest.mark.parametrize(
        "command", ["data show ETTh1", "attentions --json", "config --config informer --json"]
    )
    @pytest.mark.parametrize("reader", ["| true", "| head -c 1", "2>&1 | true"])
    def test_a_reader_that_leaves_early_is_no_error(self, command, reader):
        script = f"set -o pipefail; {sys.executable} -m forecaster {command} {reader}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert done.returncode in (0, 141)

    @pytest.mark.parametrize("command", ["data show ETTh1", "attentions --json"])
    def test_a_full_disk_is_told(self, command):
        script = f"{sys.executable} -m forecaster {command} > /dev/full"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 74
        assert "No space left on device" in done.stderr
        assert len(done.stderr.splitlines()) == 1


class TestJson:
    """Exactly one document on stdout."""

    @pytest.mark.parametrize(
        "command",
        [
            ("attentions",),
            ("config",),
            ("doctor",),
            ("data", "list"),
            ("data", "show", "ETTh1"),
            ("data", "fetch", "vic_elec"),
        ],
        ids=" ".join,
    )
    def test_one_document_and_nothing_else(self, command, run):
        status, out, err = run(*command, "--json")
        assert (status, err) == (0, "")
        assert json.loads(out)

    def test_what_they_hold(self, run):
        def document(*arguments):
            return json.loads(run(*arguments, "--json")[1])

        assert [row["name"] for row in document("attentions")] == list(ATTENTIONS)
        assert "ETTh1" in [card["name"] for card in document("data", "list")]
        assert document("data", "show", "etth1")["seasons"] == [24, 168]
        fetched = document("data", "fetch", "VIC-ELEC")
        assert fetched["name"] == "vic_elec"
        assert Path(fetched["file"]).is_file()
        resolved = document("config", "--seed", "3")
        assert resolved["origins"]["seed"] == "--seed"
        assert load_dict(resolved["config"], "the test").seed == 3


def test_the_installed_command_is_this_one():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="forecaster")
    assert script.load() is cli.main
