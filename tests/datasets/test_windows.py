from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.base.errors import DataError
from forecaster.datasets.dataset import Items
from forecaster.datasets.windows import Windows, described

ROWS = 53


@st.composite
def many_windows(draw):
    """The arguments of windows over one series or a panel, in parts of each series or of all."""
    alone = draw(st.booleans())
    lengths = draw(st.lists(st.integers(1, 25), min_size=1, max_size=1 if alone else 5))
    places = [0] if alone else [draw(st.integers(0, 12)) for _ in lengths]
    rows, grid = sum(lengths), max(map(sum, zip(lengths, places, strict=True)))
    borders = [
        sorted(draw(st.lists(st.integers(0, grid), min_size=2, max_size=2)))
        for _ in range(len(lengths) if draw(st.booleans()) else 1)
    ]
    first, last = (end[0] if len(end) == 1 else end for end in zip(*borders, strict=True))
    past = draw(st.integers(1, 6))
    random = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    values = torch.randn(rows, 3, generator=random)
    if draw(st.booleans()):
        values[torch.rand(rows, 3, generator=random) < 0.1] = torch.nan
    items = Items([*map(str, range(len(lengths)))], np.cumsum([0, *lengths]), np.array(places))
    return {
        "values": values,
        "calendar": torch.randn(grid, 2, generator=random),
        "past": past,
        "horizon": draw(st.integers(1, 4)),
        "first": first,
        "last": last,
        "targets": draw(st.sampled_from([(0, 1, 2), (1,), (2, 0)])),
        "items": None if alone else items,
        "covariates": draw(st.sampled_from([None, torch.randn(rows, 1, generator=random)])),
        "static": draw(st.sampled_from([None, torch.randn(len(lengths), 3, generator=random)])),
        "every": draw(st.integers(1, 3)),
        "padding": draw(st.integers(-2, past - 1)),
    }


def origins(past, horizon, first, last, items, every, padding, **_):
    """The item, row and step of each target by definition, in a Python loop."""
    found = []
    for item, (length, place) in enumerate(zip(items.lengths, items.places, strict=True)):
        begin, end = (one[item] if isinstance(one, tuple) else one for one in (first, last))
        for row in range(length):
            fits = past - padding <= row and row + horizon <= length
            if fits and begin <= place + row and place + row + horizon <= end:
                found.append((item, int(items.bounds[item] + row), int(place + row)))
    return found[::every]


@settings(max_examples=300, deadline=None)
@given(many_windows())
def test_every_window_once_with_what_belongs_to_it(given):
    values, past, horizon = given["values"], given["past"], given["horizon"]
    items = given["items"] or Items.single(len(values))
    expected = origins(**given | {"items": items})
    if not expected:
        with pytest.raises(DataError, match="no window fits"):
            Windows(**given)
        return
    windows = Windows(**given)
    assert [windows.origin(number) for number in range(len(windows))] == expected
    order = torch.randperm(len(windows)).repeat(2)
    got = windows.batch(order)
    assert all(part is None or part.is_contiguous() for part in got[:4])
    for place, (item, row, step) in enumerate(expected[number] for number in order):
        begin = max(int(items.bounds[item]), row - past)
        own, target = values[begin:row], values[row : row + horizon][:, list(given["targets"])]
        lead = past - len(own)
        assert torch.equal(got.past[place, lead:], own.nan_to_num())
        assert not got.past[place, :lead].any()
        assert torch.equal(got.target[place], target.nan_to_num())
        if windows.complete:
            assert got.observed is got.target_observed is None
            assert lead == 0
            assert not own.isnan().any()
        else:
            assert not got.observed[place, :lead].any()
            assert torch.equal(got.observed[place, lead:], ~own.isnan())
            assert torch.equal(got.target_observed[place], ~target.isnan())
        known = [given["calendar"][step - len(own) : step + horizon]]
        if given["covariates"] is not None:
            known.append(given["covariates"][begin : row + horizon])
        if given["static"] is not None:
            known.append(given["static"][item].expand(len(own) + horizon, -1))
        known = torch.cat(known, dim=1)
        assert torch.equal(got.past_known[place, lead:], known[: len(own)])
        assert torch.equal(got.future_known[place], known[len(own) :])
        assert given["items"] is None or got.item[place] == item
    other = windows.looking_back(past + 3)
    assert [other.origin(number) for number in range(len(other))] == expected
    assert torch.equal(other.batch(order).target, got.target)
    before = values.clone()
    got.past.fill_(7)
    torch.testing.assert_close(values, before, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=50, deadline=None)
@given(many_windows(), st.integers(1, 40))
def test_the_rows_of_training_are_those_before_its_end(given, chunk):
    items = given["items"] or Items.single(len(given["values"]))
    rows, steps = [], []
    for item, (place, bound) in enumerate(zip(items.places, items.bounds[:-1], strict=True)):
        last = given["last"][item] if isinstance(given["last"], tuple) else given["last"]
        count = max(0, min(items.lengths[item], last - place))
        rows += range(bound, bound + count)
        steps += range(place, place + count)
    if not origins(**given | {"items": items}):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forecaster.datasets.windows.CHUNK", chunk)
        values, calendar = zip(*Windows(**given).rows(), strict=True)
    torch.testing.assert_close(torch.cat(values), given["values"][rows], equal_nan=True)
    assert torch.equal(torch.cat(calendar), given["calendar"][steps])


@pytest.mark.gpu
def test_batches_on_cuda_equal_those_on_the_cpu():
    windows = Windows(torch.randn(ROWS, 3), torch.randn(ROWS, 2), 7, 5, 0, ROWS, (1,))
    index = torch.tensor([5, 0, 41])
    there_too = windows.to("cuda").batch(index)
    for here, there in zip(windows.batch(index)[:4], there_too[:4], strict=True):
        assert there.device.type == "cuda"
        assert torch.equal(here, there.cpu())


def test_what_does_not_fit_is_told():
    values, calendar = torch.zeros(ROWS, 3), torch.zeros(ROWS, 2)
    with pytest.raises(DataError, match=rf"14 steps among steps 40 to {ROWS}"):
        Windows(values, calendar, 7, 14, 40, ROWS, (0,))
    with pytest.raises(DataError, match=f"look-back of 60; the longest has {ROWS} rows"):
        Windows(values, calendar, 60, 1, 0, ROWS, (0,))
    values[10, 2] = float("inf")
    with pytest.raises(DataError, match="row 11, column 3"):
        Windows(values, calendar, 7, 5, 0, ROWS, (0,))


def test_sizes_that_do_not_fit():
    good = {"values": torch.zeros(ROWS, 3), "calendar": torch.zeros(ROWS, 2), "past": 7}
    good |= {"horizon": 5, "first": 0, "last": ROWS, "targets": (0,)}
    short = {"items": Items.single(ROWS - 1)}, {"calendar": torch.zeros(ROWS - 1, 2)}
    for wrong in ({"first": -1}, {"last": ROWS + 1}, {"targets": (3,)}, {"horizon": 0}, *short):
        with pytest.raises(ValueError, match=r"\d"):
            Windows(**good | wrong)


def test_of_many_windows_of_a_panel_some_are_taken_at_every_step():
    items = Items([str(i) for i in range(40)], np.arange(41) * 30, np.zeros(40, dtype=int))
    windows = Windows(torch.zeros(1200, 1), torch.zeros(30, 1), 4, 3, 0, 30, (0,), items)
    assert described(windows) == "all 960 windows"  # 24 of each item
    some = windows.spaced(42)
    assert (some.every, described(some)) == (23, "every 23th of 960: 42 windows")
    assert len({some.origin(number)[2] for number in range(len(some))}) == 24
    some = replace(windows, last=29).spaced(40)  # 23 of each item, which is the next prime
    assert some.every == 29
    assert len({some.origin(number)[2] for number in range(len(some))}) == 23
    assert windows.spaced(960) is windows
    alone = Windows(torch.zeros(840, 862), torch.zeros(840, 1), 504, 336, 0, 840, (0,))
    assert alone.spaced(1) is alone
    assert described(replace(alone, horizon=300).spaced(20)) == "every 2th of 37: 19 windows"
    assert (windows.evaluation_batch, alone.evaluation_batch) == (1024, 1), "fewer wide ones"
