import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.special import stdtrit

from forecaster.evaluate.metrics import paired_interval
from forecaster.study.compare import table
from forecaster.study.compare.cell import ARRAYS
from forecaster.study.compare.record import Against
from forecaster.study.compare.verdicts import compare, correct
from tests.study.compare.grids import WINDOWS, by_attention, finished


def test_seeds_are_averaged_before_the_bootstrap(cells):
    found = {(c.facts.attn, c.facts.seed): c.by_window() for c in cells}
    difference = np.mean([found["lsh", s] - found["none", s] for s in (0, 1)], axis=0)
    low, high = paired_interval(difference, block=2)
    error = 0.01 / 2 * 12.706  # half the range of two seeds, times Student's t
    against = by_attention(table.rows(cells))["lsh"].against["none"]
    assert against.difference == pytest.approx(1.005)
    assert against.low == pytest.approx(1.005 - np.hypot(1.005 - low, error), rel=1e-4)
    assert against.high == pytest.approx(1.005 + np.hypot(high - 1.005, error), rel=1e-4)
    assert against.seeds == (0, 1)


TYPES = ("full", "prob", "logsparse", "lsh", "strided", "fixed", "topk", "none")


def test_a_family_of_ties_seldom_has_any_other_verdict(tmp_path):
    """With Holm's correction at most 5 % of the families have one, without it a third.

    All types share the windows, and a seed moves all windows of a type alike.
    """
    random, plain, corrected = np.random.default_rng(3), 0, 0
    for trial in range(100):
        shared = 2 + random.normal(size=60)
        cells = [
            finished(tmp_path / str(trial), shared + errors, attn=attn, seed=seed)
            for attn in TYPES
            for seed, errors in enumerate(
                0.05 * random.normal(size=(3, 1)) + 0.3 * random.normal(size=60)
            )
        ]
        family = [row.against["none"] for row in table.rows(cells) if row.attn != "none"]
        corrected += {each.verdict for each in family} != {"no measurable difference"}
        plain += any(each.p < 0.05 for each in family)
    assert corrected <= 9, "5 expected at most; more than 9 has a chance of 3 %"
    assert plain >= 12


def test_holm(cells):
    """Of m verdicts the k-th smallest p must be below 0.05 / (m - k + 1), as all before it."""
    bare = Against(difference=0.2, seeds=(0,), verdict="no measurable difference")
    plain = bare.model_copy(update={"low": 0.1, "high": 0.3, "error": 0.05, "freedom": 4.0})
    ps = {"a": 0.025, "b": 0.001, "c": 0.02, "d": 0.9}
    family = correct({name: plain.model_copy(update={"p": p}) for name, p in ps.items()})
    assert [family[name].holm for name in ps] == pytest.approx([0.06, 0.004, 0.06, 0.9])
    assert [family[name].verdict == "worse" for name in ps] == [False, True, False, False]
    # t of 4 degrees at 1 - 0.05 / 8 and 0.8, from a table
    assert family["a"].smallest == pytest.approx((4.315 + 0.941) * 0.05, rel=1e-3)
    assert correct({"x": bare}) == {"x": bare}
    assert correct({"a": family["a"]})["a"].verdict == "worse"


def test_p_is_the_level_at_which_the_interval_touches_zero(cells):
    for row in table.rows(cells):
        for each in row.against.values():
            plain = each.low > 0 or each.high < 0
            assert (each.p < 0.05) == plain
            half = each.error * stdtrit(each.freedom, 0.975)
            assert half == pytest.approx((each.high - each.low) / 2)
            # between the degrees of freedom of the seeds and those of the windows
            assert 1 <= each.freedom <= WINDOWS / 2 + 1


def test_windows_of_a_panel_are_told_by_their_steps(tmp_path):
    """Windows that begin together are one point in time; windows without values do not count."""
    steps = np.tile(np.arange(40), 25)
    shared = np.random.default_rng(0).normal(size=40)[steps]
    shared[7] = np.nan
    pair = [finished(tmp_path, e, attn=n) for n, e in (("full", shared), ("none", 0 * steps))]
    for cell in pair:
        save_file({"by_window": cell.by_window(), "steps": steps}, cell.folder / ARRAYS)
    got = compare(*([cell] for cell in pair))
    low, high = paired_interval(shared, 2, steps)
    assert (got.low, got.high) == pytest.approx((low, high))
    assert got.difference == pytest.approx(np.nanmean(shared))
    alone = paired_interval(shared[:7], 2)
    assert high - low < alone[1] - alone[0], "40 steps, not 7"
    naive = paired_interval(np.nan_to_num(shared), 2)
    assert high - low > 2 * (naive[1] - naive[0]), "nor 1000"


def test_only_the_seeds_that_both_have(cells):
    for dropped, seeds in (([("none", 1)], (0,)), ([("none", 0), ("lsh", 1)], None)):
        left = [c for c in cells if (c.facts.attn, c.facts.seed) not in dropped]
        own = by_attention(table.rows(left))["lsh"].against.get("none")
        assert (own.seeds if own else None) == seeds


def test_too_few_windows_say_nothing(tmp_path):
    found = [[finished(tmp_path, [1.0] * 3, attn=attn)] for attn in ("full", "none")]
    compared = compare(*found)
    assert (compared.verdict, compared.low) == ("no measurable difference", None)
