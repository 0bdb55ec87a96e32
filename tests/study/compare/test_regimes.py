from dataclasses import replace

from forecaster.config.run_config import load
from forecaster.datasets.seasons import Facts
from forecaster.study.compare import regimes
from forecaster.study.compare.grid import read
from forecaster.study.compare.regimes import COLUMNS, REGIMES, Known

PLAIN = Facts("mine", 1000, 700, "h", (), 0, 1, 1, None, (), ())
FOUND = Known(
    "prob", "content", {"grid": "columns", "regime": "series", "linear": True}, 1, 0, 1, 1.5,
    "prob", 0.02, "take prob", "own", [], "prob", [], 0.5, ["nn5, T = 24"],
)  # fmt: skip


def alike(**changes):
    facts = replace(PLAIN, **changes)
    return {name for name, regime in REGIMES.items() if regime.see(facts)[0]}


def test_what_a_series_resembles():
    promo = {"known": ("promo",), "events": ({"name": "promo", "share": 0.01, "count": 9},)}
    assert alike() == alike(seasons=(24,), cycles=9) == set()
    assert alike(seasons=(24,), cycles=29) == {"usual"}
    assert alike(known=("load",)) == {"known"}
    assert alike(**promo) == {"known", "recall"}


def test_many_columns_as_strongly_together_as_what_was_measured(monkeypatch):
    """By these findings instead of those of the package."""
    many, every = {"targets": COLUMNS, "together": 0.3}, dict.fromkeys(REGIMES, FOUND)
    monkeypatch.setattr(regimes, "known", lambda: every)
    assert alike(**many) == set()
    _, seen = REGIMES["columns"].see(replace(PLAIN, **many))
    assert "the least that was measured is 0.50" in seen
    assert alike(targets=COLUMNS - 1, together=0.9) == alike(targets=COLUMNS) == set()
    assert alike(series=50) == set()
    every["columns"] = replace(FOUND, together=0.29)
    assert alike(**many) == {"columns"}


def test_what_comes_with_the_package_can_be_read():
    """Every regime is studied by name, and each recipe is a configuration with its tokens."""
    assert regimes.known().keys() == REGIMES.keys()
    for name, found in regimes.known().items():
        assert found.evidence
        config = load("own", found.sets, {"attn": found.swapped, "data": "mine.csv"}).config
        assert found.attn in (config.attn.name, config.attn.cross and config.attn.cross.name)
        if found.place is not None:
            assert found.place["grid"] == name
            assert config.model.options["linear"] == found.place["linear"]
            assert found.place["regime"] in read(name)[1]["protocol"]["regimes"]
