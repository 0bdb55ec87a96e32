from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.datasets import Items, Windows

ROWS, COLUMNS, FEATURES = 53, 3, 2


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(ROWS, COLUMNS, generator=generator),
        torch.randn(ROWS, FEATURES, generator=generator),
    )


def slow(values, calendar, past, horizon, first, last, targets):
    """The windows by definition: every row at which a past can begin, in a Python loop."""
    windows = []
    for start in range(len(values)):
        split, end = start + past, start + past + horizon
        if first <= split and end <= last:
            target = torch.stack([values[split:end, column] for column in targets], dim=1)
            windows.append(
                (values[start:split], calendar[start:split], calendar[split:end], target)
            )
    return [torch.stack(parts) for parts in zip(*windows, strict=True)]


@pytest.mark.parametrize("targets", [(0, 1, 2), (1,), (2, 0), (2,)])
@pytest.mark.parametrize(
    ("past", "horizon", "first", "last"),
    [(7, 5, 0, 31), (7, 5, 31, 41), (7, 5, 41, 53), (13, 5, 3, 53), (1, 1, 0, 2), (11, 3, 50, 53)],
)
def test_equal_the_loop(data, past, horizon, first, last, targets):
    windows = Windows(*data, past, horizon, first, last, targets)
    expected = slow(*data, past, horizon, first, last, targets)
    assert len(windows) == len(expected[0])
    got = windows.batch(torch.arange(len(windows)))
    for part, wanted in zip(got[:4], expected, strict=True):
        assert torch.equal(part, wanted)
    assert got[4:] == (None, None, None)


def test_rows_of_training_with_their_calendar(data, monkeypatch):
    monkeypatch.setattr("forecaster.datasets.windows.CHUNK", 8 * COLUMNS)
    values, calendar = data
    parts = list(Windows(values, calendar, 7, 5, 0, 41, (0,)).rows())
    assert len(parts) == 7
    for got, wanted in zip(zip(*parts, strict=True), data, strict=True):
        assert torch.equal(torch.cat(got), wanted[:41])
    items = Items(("a", "b"), np.array([0, 30, ROWS]), np.array([10, 0]))  # steps 10-39 and 0-22
    parts = list(Windows(values, calendar, 7, 5, 0, 20, (0,), items).rows())
    rows = [*range(10), *range(30, 50)]
    steps = [*range(10, 20), *range(20)]
    assert torch.equal(torch.cat([part for part, _ in parts]), values[rows])
    assert torch.equal(torch.cat([part for _, part in parts]), calendar[steps])


def test_any_order_and_repeats(data):
    windows = Windows(*data, 7, 5, 0, ROWS, (0,))
    index = torch.tensor([40, 3, 3, 0])
    everything = windows.batch(torch.arange(len(windows)))
    for part, whole in zip(windows.batch(index)[:4], everything[:4], strict=True):
        assert torch.equal(part, whole[index])


def test_training_windows_begin_at_the_first_row_and_end_at_the_border(data):
    windows = Windows(*data, 7, 5, 0, 30, (0,))
    assert len(windows) == 30 - 7 - 5 + 1
    assert windows.origin(0) == (0, 7, 7)


def test_validation_pasts_reach_back_over_the_border(data):
    windows = Windows(*data, 7, 5, 30, 40, (0,))
    assert windows.origin(0)[1] == 30
    assert windows.origin(len(windows) - 1)[1] + 5 == 40


def test_rows_beyond_the_last_are_never_touched(data):
    values, calendar = data
    before = Windows(values, calendar, 7, 5, 0, 30, (0, 1, 2))
    spoilt = values.clone()
    spoilt[30:] = 1e6
    after = Windows(spoilt, calendar, 7, 5, 0, 30, (0, 1, 2))
    index = torch.arange(len(before))
    assert torch.equal(before.batch(index).past, after.batch(index).past)
    assert torch.equal(before.batch(index).target, after.batch(index).target)


def test_a_batch_is_contiguous_and_independent_of_the_series(data):
    values, calendar = data
    batch = Windows(values, calendar, 7, 5, 0, ROWS, (0, 1, 2)).batch(torch.tensor([4]))
    assert all(part.is_contiguous() for part in batch[:4])
    batch.past.zero_()
    assert not values[4:11].eq(0).any()


@pytest.mark.gpu
def test_batches_on_cuda_equal_those_on_the_cpu(data):
    windows = Windows(*data, 7, 5, 0, ROWS, (1,))
    index = torch.tensor([5, 0, 41])
    there_too = windows.to("cuda").batch(index)
    for here, there in zip(windows.batch(index)[:4], there_too[:4], strict=True):
        assert there.device.type == "cuda"
        assert torch.equal(here, there.cpu())


def test_no_window_shows_the_arithmetic(data):
    with pytest.raises(
        DataError, match=rf"no series has 14 steps among steps 40 to {ROWS} of the t"
    ):
        Windows(*data, 7, 14, 40, ROWS, (0,))
    assert len(Windows(*data, 7, 13, 40, ROWS, (0,))) == 1
    with pytest.raises(DataError, match=rf"after a look-back of 60; the longest has {ROWS} rows"):
        Windows(*data, 60, 1, 0, ROWS, (0,))


def test_values_that_left_float32_are_named(data):
    values, calendar = data
    values[10, 2] = float("inf")
    with pytest.raises(DataError, match="row 11, column 3"):
        Windows(values, calendar, 7, 5, 0, ROWS, (0,))


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": -1},
        {"last": ROWS + 1},
        {"targets": ()},
        {"targets": (3,)},
        {"past": 0},
        {"horizon": 0},
        {"every": 0},
        {"items": Items.single(ROWS - 1)},
        {"calendar": torch.zeros(ROWS - 1, FEATURES)},
    ],
)
def test_sizes_that_do_not_fit(data, wrong):
    values, calendar = data
    good = {
        "values": values,
        "calendar": calendar,
        "past": 7,
        "horizon": 5,
        "first": 0,
        "last": ROWS,
        "targets": (0,),
    }
    with pytest.raises(ValueError, match=r"\d"):
        Windows(**(good | wrong))


@pytest.mark.parametrize(
    ("past", "horizon", "columns", "batch"),
    [(504, 336, 7, 64), (504, 336, 862, 1), (2016, 720, 2000, 1), (1, 1, 1, 64)],
)
def test_evaluation_takes_fewer_of_the_large_ones(past, horizon, columns, batch):
    values = torch.zeros(1, columns).expand(past + horizon, columns)
    calendar = torch.zeros(past + horizon, 1)
    windows = Windows(values, calendar, past, horizon, 0, past + horizon, (0,))
    assert windows.evaluation_batch == batch


def test_missing_values_are_zero_and_masked(data):
    values, calendar = data
    values[[9, 14], [1, 2]] = float("nan")
    windows = Windows(values, calendar, 7, 5, 0, ROWS, (2, 1))
    batch = windows.batch(torch.tensor([3, 20]))
    assert not windows.complete
    for got, mask, rows, columns in (
        (batch.past, batch.observed, slice(3, 10), [0, 1, 2]),
        (batch.target, batch.target_observed, slice(10, 15), [2, 1]),
    ):
        wanted = values[rows][:, columns]
        assert torch.equal(mask[0], ~wanted.isnan())
        assert torch.equal(got[0], wanted.nan_to_num())
        assert mask[1].all()


LENGTHS, PLACES = [20, 3, 31, 12], [0, 5, 2, 21]
GRID = 33


@pytest.fixture
def panel():
    """Four series that begin and end at different times, with a covariate and an attribute."""
    generator = torch.Generator().manual_seed(1)
    rows = sum(LENGTHS)
    return {
        "values": torch.randn(rows, 2, generator=generator),
        "calendar": torch.randn(GRID, 1, generator=generator),
        "items": Items(tuple("abcd"), np.cumsum([0, *LENGTHS]), np.array(PLACES)),
        "covariates": torch.randn(rows, 1, generator=generator),
        "static": torch.randn(4, 3, generator=generator),
    }


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize(("first", "last"), [(0, 20), (20, 27), (27, 33), (0, 33)])
def test_a_panel_equals_its_series_one_by_one(panel, first, last, every):
    past, horizon = 4, 3
    windows = Windows(
        **panel, past=past, horizon=horizon, first=first, last=last, targets=(1,), every=every
    )
    slowly = [
        (item, sum(LENGTHS[:item]) + split, place + split)
        for item, (length, place) in enumerate(zip(LENGTHS, PLACES, strict=True))
        for split in range(past, length - horizon + 1)
        if first <= place + split and place + split + horizon <= last
    ][::every]
    assert [windows.origin(number) for number in range(len(windows))] == slowly
    got = windows.batch(torch.arange(len(windows)))
    assert got.item.tolist() == [item for item, _, _ in slowly]
    for number, (item, row, step) in enumerate(slowly):
        known = torch.cat(
            [
                panel["calendar"][step - past : step + horizon],
                panel["covariates"][row - past : row + horizon],
                panel["static"][item].expand(past + horizon, -1),
            ],
            dim=1,
        )
        assert torch.equal(got.past[number], panel["values"][row - past : row])
        assert torch.equal(got.target[number], panel["values"][row : row + horizon, 1:])
        assert torch.equal(got.past_known[number], known[:past])
        assert torch.equal(got.future_known[number], known[past:])


@pytest.mark.parametrize("past", [1, 4, 9, 40])
def test_another_look_back_keeps_the_windows(panel, past):
    windows = Windows(**panel, past=4, horizon=3, first=2, last=27, targets=(1,), every=2)
    other = windows.looking_back(past)
    everything = torch.arange(len(windows))
    assert [other.origin(n) for n in everything] == [windows.origin(n) for n in everything]
    got, wanted = other.batch(everything), windows.batch(everything)
    assert torch.equal(got.target, wanted.target)
    assert other.complete == (past <= 4)
    bounds = panel["items"].bounds
    for number in everything:
        item, row, _ = windows.origin(number)
        own = panel["values"][max(bounds[item], row - past) : row]
        assert torch.equal(got.past[number, past - len(own) :], own)
        assert not got.past[number, : past - len(own)].any()
        if got.observed is not None:
            assert got.observed[number, :, 0].tolist() == [False] * (past - len(own)) + [
                True
            ] * len(own)
    assert other.looking_back(4).origin(5) == windows.origin(5)


def test_no_window_in_a_panel_is_told(panel):
    with pytest.raises(DataError, match=r"no series has 9 steps .* longest .* 31 rows"):
        Windows(**panel, past=25, horizon=9, first=0, last=GRID, targets=(0,))


def test_of_many_windows_of_a_panel_some_are_taken_at_every_step():
    items = Items([str(i) for i in range(40)], np.arange(41) * 30, np.zeros(40, dtype=int))
    windows = Windows(torch.zeros(1200, 1), torch.zeros(30, 1), 4, 3, 0, 30, (0,), items)
    assert windows.described == "all 960 windows"  # 24 of each item
    some = windows.spaced(42)
    assert (some.every, some.described) == (23, "every 23th of 960: 42 windows")
    assert len({some.origin(number)[2] for number in range(len(some))}) == 24
    shorter = replace(windows, last=29)  # 23 of each item, which is the next prime
    some = shorter.spaced(40)
    assert some.every == 29
    assert len({some.origin(number)[2] for number in range(len(some))}) == 23
    assert windows.spaced(960) is windows
    alone = Windows(torch.zeros(50, 1), torch.zeros(50, 1), 4, 3, 0, 50, (0,))
    assert alone.spaced(5) is alone


def test_items_may_have_parts_of_their_own(data):
    values, calendar = data
    items = Items(("a", "b", "c"), np.array([0, 20, 45, ROWS]), np.array([10, 0, 40]))
    first, last = (18, 12, 46), (26, 25, 48)  # no window fits into the third
    windows = Windows(values, calendar, 4, 3, first, last, (0,), items)
    got = [windows.origin(number) for number in range(len(windows))]
    wanted = [
        (item, int(row - items.places[item] + items.bounds[item]), row)
        for item in range(2)
        for row in range(first[item], last[item] - 3 + 1)
    ]
    assert got == wanted
    batch = windows.batch(torch.arange(len(windows)))
    for number, (_, row, step) in enumerate(wanted):
        assert torch.equal(batch.past[number], values[row - 4 : row])
        assert torch.equal(batch.future_known[number], calendar[step : step + 3])
    rows = torch.cat([part for part, _ in windows.rows()])
    assert torch.equal(rows, values[[*range(16), *range(20, 45), *range(45, 53)]])
    assert len(windows.looking_back(9)) == len(windows), "rows before a series are missing"
    with pytest.raises(DataError, match="no series has 3 steps among steps of each"):
        Windows(values, calendar, 4, 3, last, last, (0,), items)
    with pytest.raises(ValueError, match="not within the 53 steps"):
        Windows(values, calendar, 4, 3, (0, 0, 0), (9, 9, 54), (0,), items)
