import hashlib
import importlib.metadata
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import typer
import yaml

from forecaster import cli, experiment
from forecaster.attention import ATTENTIONS
from forecaster.config import load_dict
from forecaster.errors import ConfigError
from service.settings import Settings
from tests.bundles import COLUMNS, unsaved
from tests.test_predict import history

COMMANDS = [
    ("train",),
    ("evaluate",),
    ("predict",),
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


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """An empty folder, no cache, no data, no tracker, no network."""
    for name in [*os.environ]:
        if name.startswith(("FORECASTER_", "MLFLOW_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(
        "pooch.retrieve", lambda *arguments: pytest.fail("a test reached for the network")
    )


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process: its exit status, stdout and stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["forecaster", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def offline(monkeypatch):
    """Every download fails."""
    import requests

    def fail(*arguments):
        raise requests.ConnectionError

    monkeypatch.setattr("pooch.retrieve", fail)


@pytest.fixture
def folder(tmp_path):
    unsaved().save(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def csv(tmp_path):
    history().to_csv(tmp_path / "history.csv", index=False)
    return tmp_path / "history.csv"


def child(program, *arguments, **options):
    """Run a Python program in a process of its own."""
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
                heavy = {"torch", "numpy", "pandas", "mlflow", "lightning", "pydantic", "fastapi"}
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
        expected = f"forecaster {importlib.metadata.version('forecaster')}\n"
        assert run("--version") == (0, expected, "")


class TestMistakes:
    """One line that helps on stderr, nothing on stdout, no traceback, and the right status."""

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
            (["train", "--set", "horizon"], ["--set wants KEY=VALUE"]),
            (["train", "--set", "trian.epochs=1"], ["'trian'", "Did you mean 'train'?"]),
            (["train", "--config", "infromer"], ["Did you mean 'informer'?"]),
            (["train", "--data", "etth9"], ["unknown data set 'etth9'", "Did you mean"]),
            (["config", "--features", "M", "--target", "OT"], ["data.features=M", "choose MS"]),
            (["data", "show", "vic-elek"], ["Did you mean 'vic_elec'?"]),
            (["data", "fetch"], ["Missing argument"]),
            (["predict"], ["either a --model or the --url"]),
            (["predict", "--model", "x", "--url", "http://x"], ["either a --model or the --url"]),
            (["predict", "--url", "http://x"], ["--url wants --input"]),
            (["predict", "--url", "localhost:1", "--input", "x.csv"], ["http://", "localhost:1"]),
            (["predict", "--model", "x", "--output", "f.txt"], [".csv or .parquet", "f.txt"]),
            (["predict", "--model", "../nothing/here"], ["names no model", "a bundle's folder"]),
            (["serve", "--port", "0"], ["--port"]),
            (["attentions", "informer"], ["unknown attention", "Did you mean 'prob'?"]),
            (["attentions", "--names", "porb"], ["Did you mean 'prob'?"]),
            (["bench", "attention", "--attn", "fulll"], ["Did you mean 'full'?"]),
            (["bench", "attention", "--attn", "none"], ["'none' has no function to measure"]),
            (["bench", "attention", "--length", "9:3"], ["--length wants a range", "got 9:3"]),
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
            self.check(outcome, 69, "ETTh1 is not to be had", *ways)
            assert "vic_elec" not in outcome[2]
        assert not Path("mlflow.db").exists()

    def test_data_named_by_path(self, run):
        outcome = run("train", "--set", "data.path=nothing.csv")
        self.check(outcome, 69, "the data file nothing.csv does not exist")


class TestDefects:
    """What nobody foresaw."""

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
            assert run("train") == (status, "", "stopped\n")
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
            assert run("train", "--json") == (0, "{}\n", "")
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

    def test_a_reader_that_leaves_early_is_no_error(self):
        script = f"set -o pipefail; {sys.executable} -m forecaster.cli data show ETTh1 | true"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.stderr == ""


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


class TestConfig:
    def test_what_it_prints_can_be_given_back(self, run):
        _, out, _ = run("config", "--config", "informer", "--attn", "full", "--horizon", "9")
        Path("again.yaml").write_text(out)
        _, again, _ = run("config", "--config", "again.yaml", "--json")
        assert json.loads(again)["config"] == yaml.safe_load(out)

    def test_each_value_says_where_it_came_from(self, run, monkeypatch):
        monkeypatch.setenv("FORECASTER_SEED", "4")
        Path("my.yaml").write_text("train: {lr_of: {linear: 1e-3}}\nattn: {name: prob, factor: 2}")
        arguments = ("--config", "my.yaml", "--set", "attn.factor=3", "--data", "a" * 50)
        _, out, _ = run("config", *arguments)
        said = [line.split("  # ") for line in out.splitlines() if "#" in line]
        assert [[value.strip(), origin] for value, origin in said] == [
            [f"name: {'a' * 50}", "--data"],
            ["name: prob", "my.yaml"],
            ["factor: 3", "--set attn.factor=3"],
            ["linear: 0.001", "my.yaml"],
            ["seed: 4", "$FORECASTER_SEED"],
        ]

    def test_flags_mean_the_same_as_in_train(self, run, monkeypatch):
        seen = []

        def look(loaded, say, show):
            seen.append(loaded)
            raise SystemExit(0)

        monkeypatch.setattr(experiment, "run", look)
        flags = ["--attn", "mean", "--horizon", "5", "--lookback", "504", "--features", "MS",
                 "--target", "OT", "--epochs", "2", "--refit", "--no-register", "--seed", "1",
                 "--device", "cpu", "--set", "train.batch=7", "--data", "ETTh2"]  # fmt: skip
        run("train", *flags)
        shown = json.loads(run("config", *flags, "--json")[1])
        assert shown["config"] == seen[0].config.to_dict()
        assert shown["origins"] == seen[0].origins
        assert shown["config"]["window"]["past"] == 504
        assert not shown["config"]["track"]["register_model"]


class TestLists:
    def test_data(self, run, tmp_path):
        _, out, _ = run("data", "list")
        assert out.splitlines()[0].startswith("ETTh1 ")
        assert "\ntraffic-sensor0         Part of traffic: its first sensor alone" in out
        assert "\ntraffic                 Road occupancy at 862 sensors" in out
        _, wide, _ = run("data", "show", "traffic")
        assert yaml.safe_load(wide)["columns"] == ["0..860", "OT"]
        _, shown, _ = run("data", "show", "vic_elec")
        assert yaml.safe_load(shown)["target"] == "Demand"
        status, file, _ = run("data", "fetch", "vic_elec")
        assert status == 0
        assert Path(file.strip()).name == "vic_elec.csv"


class TestAttentions:
    def test_the_table(self, run):
        status, out, err = run("attentions")
        assert (status, err) == (0, "")
        head, *blocks = out.rstrip("\n").split("\n\n")
        assert head.split() == ["name", "year", "cost", "causal", "cross", "random"]
        assert [block.split()[0] for block in blocks] == list(ATTENTIONS)
        assert max(map(len, out.splitlines())) <= 100
        facts, paper, options = blocks[list(ATTENTIONS).index("prob")].splitlines()
        assert facts.split("  ")[0] == "prob"
        for words in ("2021", "(L + S)·log(L)·D", "selection sees all", "yes", "sampled keys"):
            assert words in facts
            assert facts.index(words) in {head.index(word) for word in head.split()}
        assert paper.strip() == "Zhou et al., Informer"
        assert options.strip() == "factor=5, variant=paper, seed=0, dropout=0.0"

    def test_names(self, run):
        assert run("attentions", "--names")[1].split() == list(ATTENTIONS)

    @pytest.mark.parametrize("name", ATTENTIONS)
    def test_a_card(self, name, run):
        status, out, err = run("attentions", name)
        assert (status, err) == (0, "")
        module = sys.modules[ATTENTIONS[name].__module__]
        assert out.startswith(module.__doc__.splitlines()[0])
        about = ATTENTIONS[name].about
        assert f"cost          {about.cost}\n" in out
        assert (f"paper         {about.paper}, {about.year}\n" in out) == (about.year is not None)
        example = out.splitlines()[-1].partition("Example: forecaster train ")[2].split()
        resolved = json.loads(run("config", *example, "--json")[1])
        assert resolved["config"]["attn"]["name"] == name

    def test_a_card_tells_types_and_defaults(self, run):
        out = run("attentions", "PROB")[1]
        assert "option        factor = 5  (int)\n" in out
        assert "option        variant = paper  (paper or informer2020)\n" in out
        assert "cross         yes\n" in out

    def test_the_summaries_are_fit_to_be_read(self, run):
        for fact in json.loads(run("attentions", "--json")[1]):
            assert 20 < len(fact["about"]) < 100
            assert "`" not in fact["about"]
            assert not fact["about"].endswith(".")

    def test_json(self, run):
        rows = json.loads(run("attentions", "--json")[1])
        card = json.loads(run("attentions", "prob", "--json")[1])
        assert card == rows[list(ATTENTIONS).index("prob")]
        assert card["year"] == 2021
        assert card["cross"] is True
        assert card["options"]["factor"] == 5
        assert card["types"]["factor"] == "int"

    def test_a_package_that_cannot_be_loaded_hides_no_other(self, run, monkeypatch):
        from forecaster.attention import CATALOGUE

        entry = importlib.metadata.EntryPoint("theirs", "no_such_module:X", "forecaster.attentions")
        monkeypatch.setattr(CATALOGUE, "_offered", lambda: {"theirs": entry})
        monkeypatch.setattr(CATALOGUE, "allowed", None)
        status, out, err = run("attentions")
        assert status == 0
        assert "prob" in out
        assert "error: attention 'theirs' of the package" in err
        assert run("attentions", "theirs")[0] == 2


class TestBench:
    ARGUMENTS = ("bench", "attention", "--attn", "full,mean", "--heads", "2", "--width", "8",
                 "--length", "8,16", "--threads", "1", "--device", "cpu")  # fmt: skip

    def test_tables_and_files(self, run):
        status, out, err = run(*self.ARGUMENTS, "--causal", "--output", "here")
        assert status == 0
        assert "forward and backward, causal, batch 1, 2 heads of 8, float32" in out
        assert [line.split()[0] for line in out.splitlines()[4:7]] == ["SDPA", "full", "mean"]
        data, picture = sorted(Path("here").iterdir())
        assert err.splitlines()[-2:] == [f"wrote {data}", f"wrote {picture}"]
        kept = json.loads(data.read_text())
        assert shlex.split(kept["command"])[:3] == ["forecaster", "bench", "attention"]
        assert "--causal" in kept["command"]

    def test_json_is_what_is_kept(self, run, tmp_path):
        status, out, err = run(*self.ARGUMENTS, "--json")
        assert status == 0, err
        (data,) = (tmp_path / "cache").rglob("bench/*.json")
        assert json.loads(out) == json.loads(data.read_text())
        rows = json.loads(out)["rows"]
        assert [(row["attn"], row["length"]) for row in rows][:4] == [
            ("SDPA", 8), ("full", 8), ("mean", 8), ("SDPA", 16)
        ]  # fmt: skip
        assert all("milliseconds" in row for row in rows)


class TestReport:
    @pytest.mark.parametrize("arguments", [(), ("a-run", "--grid", "a-grid")])
    def test_it_is_about_runs_or_about_a_grid(self, arguments, run):
        status, _, err = run("report", *arguments)
        assert status == 2
        assert "name either runs (folders, MLflow run ids or registered names) or one --grid" in err

    def test_what_is_not_there(self, run):
        status, _, err = run("report", "--grid", "mine")
        assert status == 69
        assert "no grid 'mine' in " in err
        assert "There is none yet. `forecaster compare` makes one." in err
        assert not Path("report.html").exists()

    def test_the_file_and_its_command(self, run, monkeypatch):
        from forecaster.report import Page
        from forecaster.report import runs as of

        monkeypatch.setattr(of, "of_runs", lambda names, command, on: Page(command, str(names), []))
        status, out, _ = run("report", "one", "two words", "--device", "cpu")
        assert (status, out) == (0, "report.html\n")
        text = Path("report.html").read_text()
        assert "forecaster report one &#39;two words&#39; --device cpu" in text
        assert "[&#39;one&#39;, &#39;two words&#39;]" in text
        status, out, _ = run("report", "one", "--output", "there/it.html", "--json")
        file = Path("there/it.html")
        assert json.loads(out) == {"file": str(file), "bytes": file.stat().st_size}


class TestAdvise:
    @pytest.fixture
    def curves(self, run):
        bench = ("bench", "attention", "--attn", "full,aft-simple", "--heads", "2", "--width", "8")
        status, _, err = run(*bench, "--length", "8,16", "--threads", "1", "--device", "cpu")
        assert status == 0, err

    def test_it_takes_what_bench_has_kept(self, curves, run):
        status, out, err = run("advise", "--lookback", "12", "--device", "cpu")
        assert (status, err) == (0, "")
        assert "attention over 12 tokens: forward and backward, batch 1, 2 heads of 8" in out
        assert "between the measured lengths 8 and 16" in out
        assert "`forecaster compare --attn " in out
        status, out, _ = run("advise", "--lookback", "12", "--memory", "2GiB", "--device", "cpu",
                             "--json")  # fmt: skip
        assert status == 0
        assert json.loads(out)["memory_mib"] == 2048
        assert json.loads(out)["choice"] in ("full", "aft-simple")

    def test_nothing_within_the_budget(self, curves, run):
        status, out, err = run(
            "advise", "--lookback", "8", "--budget-ms", "1e-6", "--device", "cpu"
        )
        assert status == 69
        assert "Nothing fits: the fastest is " in out
        assert err == "error: no attention over 8 tokens is within the budget of 1e-06 ms\n"

    def test_without_curves_the_command_is_named(self, run):
        status, _, err = run("advise", "--lookback", "4096", "--device", "cpu")
        assert status == 69
        assert "`forecaster bench attention --length 96:4096`" in err

    @pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf"])
    def test_a_budget_that_is_none(self, budget, run):
        status, _, err = run("advise", "--lookback", "8", "--budget-ms", budget)
        assert status == 2
        assert "--budget-ms must be a positive number" in err


class TestDoctor:
    def test_a_healthy_machine(self, run):
        status, out, _ = run("doctor")
        assert status == 0
        assert out.splitlines()[-1] == "no problem found"
        report = json.loads(run("doctor", "--json")[1])
        assert report["torch"] == importlib.metadata.version("torch")
        assert report["problems"] == []
        assert {"python", "device", "cache", "data", "tracking"} <= set(report)

    @pytest.mark.parametrize("version", ["2.6.3", "2.6.2", "2.5.0", "2.6.6rc1"])
    def test_known_bad_versions(self, version, run, monkeypatch):
        real = importlib.metadata.version
        monkeypatch.setattr(
            importlib.metadata,
            "version",
            lambda name: version if name == "lightning" else real(name),
        )
        assert "lightning below 2.6.6" in run("doctor")[1]

    def test_what_is_missing(self, run, monkeypatch):
        real = importlib.metadata.version

        def version(name):
            if name == "lightning":
                raise importlib.metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setenv("FORECASTER_DATA", "/no/where")
        out = run("doctor")[1]
        assert "problem: lightning is not installed" in out
        assert "problem: FORECASTER_DATA=/no/where: no such folder" in out


class TestPredict:
    def test_csv_on_stdout(self, folder, csv, run):
        status, out, err = run("predict", "--model", folder, "--input", csv, "--horizon", "2")
        assert (status, err) == (0, "")
        assert out.splitlines()[0] == ",".join(["time", *COLUMNS])
        assert out.splitlines()[1].startswith("2026-03-01 16:00:00,10.0")
        assert len(out.splitlines()) == 3

    @pytest.mark.parametrize(
        ("suffix", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)]
    )
    def test_files(self, suffix, read, folder, csv, run):
        name = f"ahead.{suffix}"
        status, out, err = run("predict", "--model", folder, "--input", csv, "--output", name)
        assert (status, out, err) == (0, "", f"wrote 6 rows to {name}\n")
        frame = read(name)
        assert list(frame.columns) == ["time", *COLUMNS]
        assert pd.Timestamp(frame["time"][0]) == pd.Timestamp("2026-03-01 16:00")

    def test_quantiles_beside_the_forecast(self, csv, run, tmp_path):
        unsaved(calibrated=True).save(tmp_path / "with")
        arguments = ("predict", "--model", tmp_path / "with", "--input", csv)
        status, out, err = run(*arguments, "--levels", "0.9, 0.1")
        assert (status, err) == (0, "")
        names = [f"{column}{level}" for column in COLUMNS for level in ("", " 0.1", " 0.9")]
        assert out.splitlines()[0] == ",".join(["time", *names])
        assert out.splitlines()[1].startswith("2026-03-01 16:00:00,10.0,9.0,12.0,")
        for levels, words in (("0.1;0.9", "got '0.1;0.9'"), ("0.99", "from 0.1 to 0.9, got 0.99")):
            status, out, err = run(*arguments, "--levels", levels)
            assert (status, out) == (2, "")
            assert words in err

    def test_a_median_is_called_one(self, csv, run, tmp_path):
        unsaved(loss="pinball").save(tmp_path / "head")
        _, _, err = run("predict", "--model", tmp_path / "head", "--input", csv)
        assert "its forecast is the median, not the mean" in err

    def test_json_is_exact_however_small_the_values(self, folder, csv, run, tmp_path):
        bundle = unsaved(timezone="UTC")
        small = replace(bundle.schema.scaler, mean=(1e-30,) * 3, std=(1e-30,) * 3)
        schema = replace(bundle.schema, scaler=small)
        replace(bundle, schema=schema).save(tmp_path / "small")
        frame = history()
        frame[list(COLUMNS)] *= 1e-30
        frame.to_parquet("small.parquet")
        arguments = ("--model", tmp_path / "small", "--input", "small.parquet", "--json")
        status, out, err = run("predict", *arguments)
        rows = json.loads(out)
        assert (status, err, len(rows)) == (0, "", 6)
        assert rows[0]["time"] == "2026-03-01T16:00:00+00:00"
        assert rows[0]["load"] == pytest.approx(10e-30, rel=1e-5)

    def test_without_input_the_models_own_data_go_on(self, csv, run, tmp_path):
        bundle = unsaved()
        data = bundle.config.data.model_copy(update={"path": csv})
        config = bundle.config.model_copy(update={"data": data})
        replace(bundle, config=config).save(tmp_path / "own")
        status, out, err = run("predict", "--model", tmp_path / "own")
        assert (status, err) == (0, f"history: {csv}\n")
        assert out.splitlines()[1].startswith("2026-03-01 16:00:00,10.0")


class TestServe:
    @pytest.fixture(autouse=True)
    def served(self, monkeypatch):
        """What uvicorn would have been called with."""
        calls = []
        monkeypatch.setenv("FORECASTER_MODEL", "")
        monkeypatch.setenv("FORECASTER_DEVICE", "auto")
        monkeypatch.setattr("uvicorn.run", lambda app, **how: calls.append((app, how)))
        return calls

    @pytest.fixture
    def port(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            return free.getsockname()[1]

    def champions(self, monkeypatch, *names):
        monkeypatch.setattr("forecaster.predict.ask_tracker", lambda *words: "\n".join(names))

    def test_the_model_that_is_named(self, served, port, run):
        status, out, err = run("serve", "--model", "m", "--port", port, "--device", "cpu")
        assert (status, out) == (0, "")
        assert err == f"serving m on http://127.0.0.1:{port} (docs at /docs)\n"
        ((app, how),) = served
        assert app == "service.app:create_app"
        assert how["factory"]
        assert (how["http"], how["ws"]) == ("service.protocol:Protocol", "none")
        assert not how["proxy_headers"]
        assert how["timeout_graceful_shutdown"] == 60
        assert (how["host"], how["port"]) == ("127.0.0.1", port)
        assert os.environ["FORECASTER_MODEL"] == "m"
        assert os.environ["FORECASTER_DEVICE"] == "cpu"

    @pytest.mark.parametrize(
        ("host", "keys", "warned"),
        [("0.0.0.0", "", True), ("0.0.0.0", "a:b", False), ("localhost", "", False)],
    )
    def test_a_service_for_everyone_is_warned_of(
        self, host, keys, warned, port, run, monkeypatch, served
    ):
        monkeypatch.setenv("FORECASTER_API_KEYS", keys)
        status, _, err = run("serve", "--model", "m", "--port", port, "--host", host)
        assert (status, len(served)) == (0, 1)
        assert ("warning: whoever can reach 0.0.0.0 can ask this service" in err) == warned

    def test_a_new_key_fits_its_setting(self, run, served, monkeypatch):
        status, out, err = run("serve", "--new-key", "anna")
        key, setting = (line.split()[1] for line in out.splitlines())
        monkeypatch.setenv(*setting.split("="))
        assert (status, served, len(key)) == (0, [], 43)
        assert Settings().api_keys == (f"anna:{hashlib.sha256(key.encode()).hexdigest()}",)
        assert key not in err
        assert key not in run("serve", "--new-key", "anna")[1]
        assert run("serve", "--new-key", "a b")[0] == 2

    def test_help_tells_every_setting(self, run):
        told = re.findall(r"^ +FORECASTER_([A-Z_]+) {2,}\S", run("serve", "--help")[1], re.M)
        assert {name.lower() for name in told} == set(Settings.model_fields)

    def test_several_models(self, served, port, run):
        assert run("serve", "--model", "a", "--model", "b/7", "--port", port)[0] == 0
        assert os.environ["FORECASTER_MODEL"] == "a,b/7"

    def test_the_model_of_the_environment(self, port, run, monkeypatch):
        monkeypatch.setenv("FORECASTER_MODEL", "from-outside")
        assert "serving from-outside" in run("serve", "--port", port)[2]

    def test_the_only_champion(self, port, run, monkeypatch):
        self.champions(monkeypatch, "forecaster-a")
        assert run("serve", "--port", port)[0] == 0
        assert os.environ["FORECASTER_MODEL"] == "forecaster-a"

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            ((), "there is no champion to serve yet: train a model first"),
            (("a", "b"), "several champions, name one with --model: a, b"),
        ],
    )
    def test_none_or_several_are_a_question_to_the_user(
        self, names, words, served, run, monkeypatch
    ):
        self.champions(monkeypatch, *names)
        status, _, err = run("serve")
        assert status == 2
        assert words in err
        assert served == []

    def test_without_a_tracker(self, served, run):
        status, _, err = run("serve")
        assert status == 69
        assert "no MLflow database" in err
        assert served == []

    def test_a_port_in_use(self, served, run):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            status, _, err = run("serve", "--model", "m", "--port", port)
        assert status == 69
        assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in err
        assert served == []


def test_the_installed_command_is_this_one():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="forecaster")
    assert script.load() is cli.main
