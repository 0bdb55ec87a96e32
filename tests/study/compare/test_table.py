import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.special import stdtrit

from forecaster.evaluate import paired_interval
from forecaster.study.compare import table
from forecaster.study.compare.cell import ARRAYS
from forecaster.study.compare.record import Against
from tests.study.compare.grids import finished

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
    return {row.attn: row for row in rows}


def test_verdicts(cells):
    rows = by_attention(table.rows(cells))
    assert list(rows) == ["full", "prob", "lsh", "topk", "mean", "none"], "as in the catalogue"
    assert rows["full"].against["none"].verdict == "better"
    assert rows["full"].against["none"].difference == pytest.approx(-0.5)
    assert rows["lsh"].against["none"].verdict == "worse"
    assert rows["prob"].against["none"].verdict == "no measurable difference"
    assert rows["prob"].against["full"].verdict == "worse"
    assert rows["mean"].against["none"].verdict == "no measurable difference"
    assert set(rows["none"].against) == {"full"}
    assert rows["topk"].against == {}, "it is full attention, so there is nothing to say"


def against_none(row, **changes):
    """The row with another comparison with `none`."""
    own = row.against["none"].model_copy(update=changes)
    return row.model_copy(update={"against": {**row.against, "none": own}})


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


def pairs(folder, random, means, seeds=3, windows=60, spread=0.05):
    """Cells of types whose errors differ by `means`, by windows and by seeds; all pairs share one.

    A seed moves all windows of a type alike.
    """
    shared = random.normal(size=windows)
    return [
        finished(folder, 2 + shared + mean + errors, attn=attn, seed=seed)
        for attn, mean in means.items()
        for seed, errors in enumerate(
            spread * random.normal(size=(seeds, 1)) + 0.3 * random.normal(size=windows)
        )
    ]


TYPES = ("full", "prob", "logsparse", "lsh", "strided", "fixed", "topk", "none")


def found(folder, random, trials, **means):
    """The comparisons with `none` in each trial, by type."""
    for trial in range(trials):
        cells = pairs(folder / str(trial), random, dict.fromkeys(TYPES, 0.0) | means)
        rows = by_attention(table.rows(cells))
        yield {name: row.against["none"] for name, row in rows.items() if name != "none"}


def test_a_family_of_ties_seldom_has_any_other_verdict(tmp_path):
    """With Holm's correction at most 5 % of the families have one, without it a third."""
    plain = corrected = 0
    for family in found(tmp_path, np.random.default_rng(3), 100):
        verdicts = {each.verdict for each in family.values()}
        corrected += verdicts != {"no measurable difference"}
        plain += any(each.p < 0.05 for each in family.values())
    assert corrected <= 9, "5 expected at most; more than 9 has a chance of 3 %"
    assert plain >= 12


def test_the_stated_difference_is_found_with_the_stated_power(tmp_path):
    random = np.random.default_rng(4)
    smallest = [
        each.smallest for family in found(tmp_path / "a", random, 20) for each in family.values()
    ]
    real = float(np.mean(smallest))
    hits = [
        family["prob"].verdict == "better"
        for family in found(tmp_path / "b", random, 60, prob=-real)
    ]
    assert 0.65 <= np.mean(hits) <= 0.97, "80 % with 60 trials"
    small = [
        family["prob"].verdict == "better"
        for family in found(tmp_path / "c", random, 30, prob=-real / 3)
    ]
    assert np.mean(small) < 0.3


def test_holm(cells):
    """Of m verdicts the k-th smallest p must be below 0.05 / (m - k + 1), as all before it."""
    tie = "no measurable difference"
    plain = Against(difference=0.2, seeds=(0,), verdict=tie, low=0.1, high=0.3, error=0.05,
                    freedom=4.0)  # fmt: skip
    ps = {"a": 0.03, "b": 0.001, "c": 0.02, "d": 0.9}
    family = table.correct({name: plain.model_copy(update={"p": p}) for name, p in ps.items()})
    assert [family[name].holm for name in ps] == pytest.approx([0.06, 0.004, 0.06, 0.9])
    assert [family[name].verdict == "worse" for name in ps] == [False, True, False, False]
    # t of 4 degrees at 1 - 0.05 / 8 and 0.8, from a table
    assert family["a"].smallest == pytest.approx((4.315 + 0.941) * 0.05, rel=1e-3)
    unknown = {"x": Against(difference=0.2, seeds=(0,), verdict=tie)}
    assert table.correct(unknown) == unknown
    assert table.correct({"a": family["a"]})["a"].verdict == "worse"


def test_p_is_the_level_at_which_the_interval_touches_zero(cells):
    for row in table.rows(cells):
        for each in row.against.values():
            plain = each.low > 0 or each.high < 0
            assert (each.p < 0.05) == plain
            half = each.error * stdtrit(each.freedom, 0.975)
            assert half == pytest.approx((each.high - each.low) / 2)
            assert 1 <= each.freedom <= N / 2 + 1, "between those of the seeds and the windows"


def test_a_verdict_that_the_correction_takes_back_is_marked(cells):
    row = by_attention(table.rows(cells))["lsh"]
    row = against_none(row, low=0.1, high=0.3, verdict="no measurable difference")
    assert table.verdict(row, "none") == "=^"


def test_windows_of_a_panel_are_told_by_their_steps(tmp_path):
    """Windows that begin together are one point in time; windows without values do not count."""
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
    assert (got.low, got.high) == pytest.approx((low, high))
    assert got.difference == pytest.approx(np.nanmean(shared))
    alone = paired_interval(shared[:7], 2)
    assert high - low < alone[1] - alone[0], "40 steps, not 7"
    naive = paired_interval(np.nan_to_num(shared), 2)
    assert high - low > 2 * (naive[1] - naive[0]), "nor 1000"


def test_one_type_against_itself_ties(tmp_path):
    """Seeds make models differ equally on every window, which is not a difference between types."""
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
        verdicts.append(table.compare(own, other).verdict)
    assert verdicts.count("no measurable difference") >= 90


def test_a_borderline_verdict_is_marked(cells):
    row = by_attention(table.rows(cells))["lsh"]
    for low, high, verdict, word in (
        (0.0001, 0.1, "worse", "worse~"),
        (-0.0001, 0.1, "no measurable difference", "=~"),
        (0.05, 0.1, "worse", "worse"),
        (None, None, "no measurable difference", "="),
    ):
        changed = against_none(row, low=low, high=high, verdict=verdict)
        assert table.verdict(changed, "none") == word


def test_only_the_seeds_that_both_have(cells):
    left = [c for c in cells if (c.facts.attn, c.facts.seed) != ("none", 1)]
    rows = by_attention(table.rows(left))
    assert rows["lsh"].against["none"].seeds == (0,)
    alone = [c for c in cells if (c.facts.attn, c.facts.seed) in (("none", 1), ("lsh", 0))]
    assert by_attention(table.rows(alone))["lsh"].against == {}


def test_figures(tmp_path):
    cells = [
        finished(tmp_path, [value] * 10, seed=seed, mae=value / 2, peak_mib=peak)
        for seed, value, peak in ((0, 1.0, 2.0), (1, 2.0, None), (2, 3.0, 4.0))
    ]
    (row,) = table.rows(cells)
    assert (row["mse"], row["mse_sd"]) == (2.0, 1.0)
    assert (row["mae"], row["mae_sd"]) == (1.0, 0.5)
    assert row["peak_mib"] == 3.0
    assert (row.best_floor, row.floor_mse, row.skill) == ("low", 0.5, -3.0)
    assert row.seeds == (0, 1, 2)
    (single,) = table.rows(cells[:1])
    assert single["mse_sd"] is None


def test_too_few_windows_say_nothing(tmp_path):
    own, other = (
        finished(tmp_path, [value] * 3, attn=attn) for attn, value in (("full", 1), ("none", 9))
    )
    compared = table.compare([own], [other])
    assert compared.verdict == "no measurable difference"
    assert compared.low is None


def test_groups_stand_apart(cells, tmp_path):
    other = [finished(tmp_path / "x", [1.0] * N, attn="full", linear=True)]
    rows = table.rows(cells + other)
    assert [row.linear for row in rows] == [True] + 6 * [False]
    assert rows[0].against == {}, "the other group has the linear path, this one has not"


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
    assert "found with 80 % power: 0." in text
    assert " from none, 0." in text
    assert "−static" not in text
    with_static = table.text(
        table.rows([*cells, finished(tmp_path / "y", [1.0] * N, attn="static")])
    )
    assert "  −none   −static  −full\n" in with_static
    assert max(map(len, with_static.splitlines())) <= 120
    assert max(map(len, text.splitlines())) <= 110


def test_markdown_has_a_table_for_each_group(cells, tmp_path):
    other = finished(tmp_path / "x", [1.0] * N, attn="full", regime="many")
    text = table.markdown(table.rows([*cells, other])).replace("&emsp;", "")
    assert text.count("**small, T = 2, ") == 2
    head = "| attention | MSE | MAE | params | train s | win/s | ms | MiB | skill | −none | −full |"
    assert text.count(head) == 2
    (own,) = (line for line in text.splitlines() if line.startswith("| lsh |"))
    assert own.endswith("| worse | worse |")
    assert "±" in own
    assert {line.count("|") for line in text.splitlines() if "|" in line} == {12}


def test_a_summary_begins_with_the_verdicts_of_each_group(cells, tmp_path):
    other = [
        finished(tmp_path / "x", [1.0, 2.0] * 200, attn=attn, regime="many")
        for attn in ("full", "none")
    ]
    few, many, rest = table.summary(table.rows([*cells, *other])).split("\n\n")
    place = "small, T = 2, {} (9 tokens), without the linear path; 6 steps, {} test windows. "
    assert few.startswith(
        place.format("few", N) + "Measurably better than none: full. No measurable difference from "
        "none: prob, mean. Measurably worse than none: lsh. "
    )
    assert many.startswith(
        place.format("many", 400) + "No type differs measurably from none. No type differs "
        "measurably from full. "
    )
    assert rest == table.SUMMARY


def test_flat_rows_have_columns_for_verdicts(cells):
    rows = {row["attn"]: row for row in table.flat(table.rows(cells))}
    assert (rows["full"]["none: verdict"], rows["lsh"]["full: verdict"]) == ("better", "worse")
    assert "full: verdict" not in rows["full"]
    assert not any(isinstance(value, dict | list) for value in rows["lsh"].values())
