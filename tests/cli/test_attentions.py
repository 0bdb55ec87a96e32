import importlib.metadata
import json
import re
import shlex
from pathlib import Path

import pytest

from forecaster.attention import ATTENTIONS, CATALOGUE
from forecaster.cli.attentions import GROUPS

NOT_ON_GPU = {"none", "mean", "static", "gated", "sliding", "forgetting", "retention", "delta"}
NOT_ON_GPU |= {"ssd", "position-prior"}
"""Those without a measurement there."""


class TestAttentions:
    def test_the_table(self, done):
        head, *groups, gpu = done("attentions")[0].split("\n\n")
        rows = {line.split()[0]: line for group in groups for line in group.splitlines()[1:]}
        assert [group.splitlines()[0] for group in groups] == list(GROUPS)
        assert sorted(rows) == sorted(ATTENTIONS)
        facts = rows["prob"]
        for words in ("2021", "(L + S)·log(L)·D", "selection sees all", "yes", "sampled keys"):
            assert facts.index(words) in {head.index(word) for word in head.split()}
        assert done("attentions", "--names")[0].split() == list(ATTENTIONS)
        named = {name for name in ATTENTIONS if re.search(f"[:,] {name}\\b", gpu)}
        assert {*ATTENTIONS} - named == NOT_ON_GPU
        page = (Path(__file__).parents[2] / "docs" / "attentions.md").read_text()
        assert gpu in page.replace("\n    ", "\n")

    @pytest.mark.parametrize("name", ATTENTIONS)
    def test_a_card_and_its_example(self, name, done):
        out, err = done("attentions", name)
        assert err == ""
        about = ATTENTIONS[name].about
        assert f"cost          {about.cost}\n" in out
        assert ("(beside torch's fused full attention)" in out) == (name not in NOT_ON_GPU)
        assert (f"paper         {about.paper}, {about.year}\n" in out) == (about.year is not None)
        example = out.splitlines()[-1].partition("Example: forecaster train ")[2].split()
        resolved = json.loads(done("config", *example, "--json")[0])
        assert resolved["config"]["attn"]["name"] == name

    def test_a_card_tells_types_and_defaults_as_text_and_json(self, done):
        assert "variant = paper  (paper or informer2020)\n" in done("attentions", "PROB")[0]
        rows = json.loads(done("attentions", "--json")[0])
        card = json.loads(done("attentions", "prob", "--json")[0])
        assert card == rows[list(ATTENTIONS).index("prob")]
        assert (card["options"]["factor"], card["types"]["factor"]) == (5, "int")

    def test_a_package_that_cannot_be_loaded_hides_no_other(self, done, refused, monkeypatch):
        entry = importlib.metadata.EntryPoint("theirs", "no_such_module:X", "forecaster.attentions")
        monkeypatch.setattr(CATALOGUE, "_offered", lambda: {"theirs": entry})
        out, err = done("attentions")
        assert "prob" in out
        assert "error: attention 'theirs' of the package" in err
        assert "error: attention 'theirs' of the package" in refused(2, "attentions", "theirs")


def test_bench_shows_and_keeps_what_it_measures(done, tmp_path, monkeypatch):
    bench = ("bench", "attention", "--attn", "full,mean", "--heads", "2", "--width", "8")
    arguments = (*bench, "--length", "8", "--threads", "1", "--device", "cpu")
    out, err = done(*arguments, "--causal", "--output", "here")
    assert [line.split()[0] for line in out.splitlines()[4:7]] == ["SDPA", "full", "mean"]
    (data,) = Path("here").iterdir()
    assert err.splitlines()[-1] == f"wrote {data}"
    kept = json.loads(data.read_text())
    monkeypatch.setattr("forecaster.study.bench.curves", lambda *how: kept)
    assert json.loads(done(*arguments, "--json")[0]) == kept
    assert [*(tmp_path / "cache").rglob("bench/*.json")]


class TestAdvise:
    def test_it_reads_as_train_does_and_ends_with_commands(self, csv, done, refused):
        columns = csv.read_text().splitlines()[0].split(",")
        roles = ("--target", columns[1], "--future-covariates", columns[2], "--holidays", "DE")
        assert "does not resemble" in done("advise", "--data", csv, "--horizon", "4")[0]
        assert refused(2, "advise", "--target", "x") == "error: advise needs --data FILE\n"
        out, err = done("advise", "--data", csv, *roles, "--horizon", "4", "--json")
        found = json.loads(out)
        assert (err, found["facts"]["known"]) == ("", [columns[2]])
        known = found["regimes"][0]
        assert known["resembles"] is True
        command = known["compare"].split(" --set ")
        assert command[0].startswith(f"forecaster compare --grid known --data {csv} ")
        assert {f"data.target={columns[1]}", "data.holidays=DE"} <= set(command)
        for train in (each["train"] for each in found["regimes"] if each["train"]):
            done("config", *shlex.split(train)[2:], "--json")
