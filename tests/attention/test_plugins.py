"""A small package by another author, installed beside ours."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from forecaster.attention import ATTENTIONS, CATALOGUE, AttentionChoice, Place
from forecaster.attention.plugins import GROUP, allowing
from forecaster.base.errors import UsageError
from forecaster.cli.attentions import attentions
from forecaster.config.run_config import load
from forecaster.study.bench.cells import choose
from forecaster.study.bench.cores import core_of

MODULE = '''
from forecaster.attention import Attention, Effective, MultiHeadAttention


class Shifted(Attention):
    """The value of `lag` steps ago."""

    def __init__(self, place, *, lag: int = 1) -> None:
        super().__init__(place)
        self.lag = lag

    def compute(self, query, context, *, causal, key_mask):
        return context.roll(self.lag, 1)

    def amounts_to(self):
        return Effective(f"shifted: by {self.lag}")


class Outdated(Shifted):
    def amounts_to(self):
        return f"shifted: by {self.lag}"


class Near(MultiHeadAttention):
    def attend(self, q, k, v, *, causal, key_mask):
        return v + v.roll(1, 2)


def not_a_class():
    pass
'''
ENTRIES = f"""
[{GROUP}]
shifted = theirs:Shifted
outdated = theirs:Outdated
wrong-kind = theirs:not_a_class
missing = theirs:Missing
full = theirs:Shifted
near = theirs:Near
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (tmp_path / "theirs.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)


def test_is_found_by_name_with_its_options() -> None:
    config = load(flags={"attn": "Shifted"}, sets=["attn.lag=3"]).config
    assert config.attn.options == {"lag": 3}
    module = AttentionChoice("shifted", {"lag": 3}).build(Place(4, 2, 9, 9))
    x = torch.randn(1, 9, 4)
    assert torch.equal(module(x), x.roll(3, 1))
    assert module.effective().text == "shifted: by 3"
    outdated = AttentionChoice("outdated").build(Place(4, 2, 9, 9))
    with pytest.raises(UsageError, match=r"theirs.Outdated.amounts_to\(\) must return .*Effective"):
        outdated.effective()
    # They stand after our own and cannot replace one.
    assert list(CATALOGUE) == [*ATTENTIONS, "shifted", "outdated", "wrong-kind", "missing", "near"]
    assert CATALOGUE["full"] is ATTENTIONS["full"]


def test_says_what_is_wrong_with_it() -> None:
    for name, message in {
        "shiftd": "Did you mean 'shifted'",
        "wrong-kind": "of the package theirs must be a class derived from",
        "missing": "of the package theirs cannot be imported from theirs:Missing: AttributeError",
    }.items():
        with pytest.raises(UsageError, match=message):
            load(flags={"attn": name})


def test_a_caller_may_keep_others_out() -> None:
    with allowing(["other"]):
        with pytest.raises(UsageError, match="allow it with FORECASTER_ATTENTIONS=shifted"):
            load(flags={"attn": "shifted"})
        assert "theirs" not in sys.modules
        with ThreadPoolExecutor() as another:  # it does not apply to other code
            config = another.submit(load, flags={"attn": "wrong-kind"})
            assert "must be a class derived from" in str(config.exception())
        with allowing(["shifted"]):
            assert load(flags={"attn": "shifted"}).config.attn.name == "shifted"
    assert load(flags={"attn": "shifted"}).config.attn.name == "shifted"


def test_is_listed_as_a_plug_in_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    attentions(None)
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["shifted", "plug-in"] in listed
    attentions("shifted")
    assert "kind          plug-in of theirs" in capsys.readouterr().out
    assert choose("near,full") == ["full", "near"]
    q, k, v = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
    function, tensors = core_of("near").build(q, k, v, torch.randn)
    function(**tensors, causal=True).sum().backward()
    assert v.grad is not None
    with pytest.raises(UsageError, match="'shifted' has no function to measure"):
        choose("shifted")
