import importlib.metadata
import json
import shlex
import sys
from pathlib import Path

import pytest

from forecaster.attention import ATTENTIONS


class TestAttentions:
    def test_the_table(self, run):
        status, out, err = run("attentions")
        assert (status, err) == (0, "")
        head, *rows = out.splitlines()
        assert head.split() == ["name", "year", "cost", "causal", "cross", "random", "export"]
        assert [row.split()[0] for row in rows] == list(ATTENTIONS)
        assert max(map(len, out.splitlines())) <= 100
        facts = rows[list(ATTENTIONS).index("prob")]
        assert facts.split("  ")[0] == "prob"
        for words in ("2021", "(L + S)·log(L)·D", "selection sees all", "yes", "sampled keys"):
            assert words in facts
            assert facts.index(words) in {head.index(word) for word in head.split()}

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
        assert "export        yes\n" in out
        assert "export        not everywhere: it chooses its next" in run("attentions", "topk")[1]

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
        assert (card["export"], card["no_export"]) == (True, "")
        assert card["options"]["factor"] == 5
        assert card["types"]["factor"] == "int"

    def test_a_package_that_cannot_be_loaded_hides_no_other(self, run, monkeypatch):
        from forecaster.attention import CATALOGUE

        entry = importlib.metadata.EntryPoint("theirs", "no_such_module:X", "forecaster.attentions")
        monkeypatch.setattr(CATALOGUE, "_offered", lambda: {"theirs": entry})
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
        assert "at 16 tokens, the next length that was measured" in out
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

    def test_data_of_ones_own(self, csv, run):
        status, out, err = run("advise", "--data", csv, "--horizon", "4")
        assert status == 0, err
        assert "The time is column" in err
        assert out.splitlines()[2].startswith("data         history: ")
        assert "does not resemble" in out

    def test_it_reads_as_train_does(self, csv, run, monkeypatch):
        columns = csv.read_text().splitlines()[0].split(",")
        roles = ("--target", columns[1], "--future-covariates", columns[2], "--holidays", "DE")
        status, out, err = run("advise", "--data", csv, *roles, "--horizon", "4", "--json")
        assert status == 0, err
        assert err == ""
        found = json.loads(out)
        assert found["facts"]["known"] == [columns[2]]
        assert "budget" not in found
        known = found["regimes"][0]
        assert known["resembles"] is True
        command = known["compare"].split(" --set ")
        assert command[0].startswith(f"forecaster compare --grid known --data {csv} ")
        assert f"data.target={columns[1]}" in command
        assert "data.holidays=DE" in command
        train = [each["train"] for each in found["regimes"] if each["train"]]
        for each in train:
            assert run("config", *shlex.split(each)[2:], "--json")[0] == 0

    def test_data_and_a_budget(self, csv, run):
        both = ("advise", "--data", csv, "--lookback", "12", "--device", "cpu")
        status, out, _ = run(*both)
        assert status == 0
        assert out.splitlines()[-1].startswith("The cost of attention over 12 tokens is not")
        assert "unavailable" in json.loads(run(*both, "--json")[1])["budget"]

    def test_data_and_a_budget_that_is_measured(self, curves, csv, run):
        status, out, _ = run("advise", "--data", csv, "--lookback", "12", "--device", "cpu")
        assert status == 0
        assert "attention over 12 tokens: forward and backward" in out
        assert "does not resemble" in out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "advise needs --data FILE, or --lookback N"),
            (("--target", "x"), "reading data need --data FILE"),
            (("--set", "data.panel=true", "--lookback", "9"), "reading data need --data FILE"),
            (("--data", "x.csv", "--budget-ms", "5"), "needs --lookback N"),
        ],
    )
    def test_what_is_missing_is_named(self, arguments, said, run):
        status, out, err = run("advise", *arguments)
        assert (status, out) == (2, "")
        assert said in err

    @pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf"])
    def test_a_budget_that_is_none(self, budget, run):
        status, _, err = run("advise", "--lookback", "8", "--budget-ms", budget)
        assert status == 2
        assert "--budget-ms must be a positive number" in err
