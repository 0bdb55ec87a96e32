import numpy as np
import pytest
from safetensors.numpy import save_file

from forecaster.compare import table
from forecaster.compare.cell import ARRAYS
from forecaster.evaluate import paired_interval
from tests.compare.grids import finished

N = 400


@pytest.fixture
def cells(tmp_path):
    """Two seeds of each: `full` is better than `none` by 0.5, `prob` by noise, `lsh` is worse."""
    random = np.random.default_rng(0)
    noise = random.normal(size=(2, N))
    made = []
    for seed in (0, 1):
        base = 2 + noise[seed]
        own = {"none": base, "full": base - 0.5, "lsh": base + 1 + seed / 100, "mean": base}
        own["prob"] = base + 0.01 * random.normal(size=N)
        own["topk"] = own["full"]
        made += [
            finished(tmp_path, errors, attn=attn, seed=seed, is_full=attn == "topk")
            for attn, errors in own.items()
        ]
    return made


def by_attention(rows):
    return {row["attn"]: row for row in rows}


def test_verdicts(cells):
    rows = by_attention(table.rows(cells))
    assert list(rows) == ["full", "prob", "lsh", "topk", "mean", "none"], "as in the catalogue"
    assert rows["full"]["against"]["none"]["verdict"] == "better"
    assert rows["full"]["against"]["none"]["difference"] == pytest.approx(-0.5)
    assert rows["lsh"]["against"]["none"]["verdict"] == "worse"
    assert rows["prob"]["against"]["none"]["verdict"] == "no measurable difference"
    assert rows["prob"]["against"]["full"]["verdict"] == "worse"
    assert rows["mean"]["against"]["none"]["verdict"] == "no measurable difference"
    assert set(rows["none"]["against"]) == {"full"}
    assert rows["topk"]["against"] == {}, "it is full attention, so there is nothing to say"


def test_seeds_are_averaged_before_the_bootstrap(cells):
    found = {(c.facts["attn"], c.facts["seed"]): c.by_window() for c in cells}
    difference = np.mean([found["lsh", s] - found["none", s] for s in (0, 1)], axis=0)
    low, high = paired_interval(difference, block=2)
    error = 0.01 / 2 * 12.706  # half the range of two seeds, times Student's t
    against = by_attention(table.rows(cells))["lsh"]["against"]["none"]
    assert against["difference"] == pytest.approx(1.005)
    assert against["low"] == pytest.approx(1.005 - np.hypot(1.005 - low, error), rel=1e-4)
    assert against["high"] == pytest.approx(1.005 + np.hypot(high - 1.005, error), rel=1e-4)
    assert against["seeds"] == [0, 1]


def test_windows_of_a_panel_are_told_by_their_steps(tmp_path):
    """Those that begin together are one point in time, those without values none."""
    random = np.random.default_rng(0)
    steps = np.tile(np.arange(40), 25)
    shared = np.repeat(random.normal(size=(1, 40)), 25, axis=0).ravel()
    shared[7] = np.nan
    pair = [
        finished(tmp_path / str(i), errors, attn=attn)
        for i, (attn, errors) in enumerate([("full", shared), ("none", np.zeros(1000))])
    ]
    for cell in pair:
        save_file({"by_window": cell.by_window(), "steps": steps}, cell.folder / ARRAYS)
    got = table.compare(*([cell] for cell in pair))
    low, high = paired_interval(shared, 2, steps)
    assert (got["low"], got["high"]) == pytest.approx((low, high))
    assert got["difference"] == pytest.approx(np.nanmean(shared))
    alone = paired_interval(shared[:7], 2)
    assert high - low < alone[1] - alone[0], "40 steps, not 7"
    naive = paired_interval(np.nan_to_num(shared), 2)
    assert high - low > 2 * (naive[1] - naive[0]), "nor 1000"


def test_one_type_against_itself_ties(tmp_path):
    """Seeds make models differ on every window alike; that is no difference between types."""
    random = np.random.default_rng(1)
    verdicts = []
    for trial in range(100):
        own, other = (
            [
                finished(tmp_path / str(trial) / name, errors, seed=seed)
                for seed, errors in enumerate(random.normal(size=(3, 1)) + np.zeros((3, 30)))
            ]
            for name in ("own", "other")
        )
        verdicts.append(table.compare(own, other)["verdict"])
    assert verdicts.count("no measurable difference") >= 90


def test_a_borderline_verdict_is_marked(cells):
    row = by_attention(table.rows(cells))["lsh"]
    against = row["against"]["none"]
    for low, high, verdict, word in (
        (0.0001, 0.1, "worse", "worse~"),
        (-0.0001, 0.1, "no measurable difference", "=~"),
        (0.05, 0.1, "worse", "worse"),
        (None, None, "no measurable difference", "="),
    ):
        against.update(low=low, high=high, verdict=verdict)
        assert table.verdict(row, "none") == word


def test_only_the_seeds_that_both_have(cells):
    left = [c for c in cells if (c.facts["attn"], c.facts["seed"]) != ("none", 1)]
    rows = by_attention(table.rows(left))
    assert rows["lsh"]["against"]["none"]["seeds"] == [0]
    alone = [c for c in cells if (c.facts["attn"], c.facts["seed"]) in (("none", 1), ("lsh", 0))]
    assert by_attention(table.rows(alone))["lsh"]["against"] == {}


def test_figures(tmp_path):
    cells = [
        finished(tmp_path, [value] * 10, seed=seed, mae=value / 2, peak_mib=peak)
        for seed, value, peak in ((0, 1.0, 2.0), (1, 2.0, None), (2, 3.0, 4.0))
    ]
    (row,) = table.rows(cells)
    assert (row["mse"], row["mse_sd"]) == (2.0, 1.0)
    assert (row["mae"], row["mae_sd"]) == (1.0, 0.5)
    assert row["peak_mib"] == 3.0
    assert (row["best_floor"], row["floor_mse"], row["skill"]) == ("low", 0.5, -3.0)
    assert row["seeds"] == [0, 1, 2]
    (single,) = table.rows(cells[:1])
    assert single["mse_sd"] is None


def test_too_few_windows_say_nothing(tmp_path):
    own, other = (
        finished(tmp_path, [value] * 3, attn=attn) for attn, value in (("full", 1), ("none", 9))
    )
    compared = table.compare([own], [other])
    assert compared["verdict"] == "no measurable difference"
    assert compared["low"] is None


def test_groups_stand_apart(cells, tmp_path):
    other = [finished(tmp_path / "x", [1.0] * N, attn="full", linear=True)]
    rows = table.rows(cells + other)
    assert [row["linear"] for row in rows] == [True] + 6 * [False]
    assert rows[0]["against"] == {}, "the other group has the linear path, this one has not"


def test_text(cells, tmp_path):
    heavy = finished(
        tmp_path / "x", [1.0] * N, attn="diff", within_budget=False, budget_parameters=123456,
        peak_mib=None, floors={"zero": {"mse": 0.0}},
    )  # fmt: skip
    text = table.text(table.rows([*cells, heavy]))
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert (
        "small, T = 2, few (9 tokens), without the linear path; 6 steps, 400 test windows" in text
    )
    assert lines["full"].split()[-2:] == ["better", "–"]
    assert lines["lsh"].split()[-2:] == ["worse", "worse"]
    assert lines["prob"].split()[-2:] == ["=", "worse"]
    assert lines["topk"].split()[-2:] == ["(full)", "(full)"]
    assert "123,456*" in lines["diff"]
    assert "±" in lines["full"]
    assert "±" not in lines["diff"]
    assert max(map(len, text.splitlines())) <= 110
