import pytest
import torch

from forecaster.datasets import Windows
from forecaster.errors import DataError

ROWS, COLUMNS, FEATURES = 53, 3, 2


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(ROWS, COLUMNS, generator=generator),
        torch.randn(ROWS, FEATURES, generator=generator),
    )


def slow(values, calendar, past, horizon, first, last, targets):
    """By the definition: every row at which a past can begin, in a Python loop."""
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
    for part, wanted in zip(got, expected, strict=True):
        assert torch.equal(part, wanted)


def test_any_order_and_repeats(data):
    windows = Windows(*data, 7, 5, 0, ROWS, (0,))
    index = torch.tensor([40, 3, 3, 0])
    for part, whole in zip(
        windows.batch(index), windows.batch(torch.arange(len(windows))), strict=True
    ):
        assert torch.equal(part, whole[index])


def test_training_windows_begin_at_the_first_row_and_end_at_the_border(data):
    windows = Windows(*data, 7, 5, 0, 30, (0,))
    assert windows.starts == range(0, 30 - 7 - 5 + 1)


def test_validation_pasts_reach_back_over_the_border(data):
    windows = Windows(*data, 7, 5, 30, 40, (0,))
    assert windows.starts[0] == 30 - 7
    assert windows.starts[-1] + 7 + 5 == 40


def test_rows_beyond_the_last_are_never_touched(data):
    values, calendar = data
    before = Windows(values, calendar, 7, 5, 0, 30, (0, 1, 2))
    spoilt = values.clone()
    spoilt[30:] = 1e6
    after = Windows(spoilt, calendar, 7, 5, 0, 30, (0, 1, 2))
    index = torch.arange(len(before))
    assert torch.equal(before.batch(index).past, after.batch(index).past)
    assert torch.equal(before.batch(index).target, after.batch(index).target)


def test_windows_are_views_of_the_one_tensor(data):
    values, calendar = data
    windows = Windows(values, calendar, 7, 5, 20, ROWS, (0, 1, 2))
    assert windows._past.data_ptr() == values[13].data_ptr()
    assert windows._future.data_ptr() == values[20].data_ptr()
    assert windows._past_calendar.data_ptr() == calendar[13].data_ptr()
    assert windows._future_calendar.data_ptr() == calendar[20].data_ptr()


def test_a_batch_is_contiguous_and_independent_of_the_series(data):
    values, calendar = data
    batch = Windows(values, calendar, 7, 5, 0, ROWS, (0, 1, 2)).batch(torch.tensor([4]))
    assert all(part.is_contiguous() for part in batch)
    batch.past.zero_()
    assert not values[4:11].eq(0).any()


@pytest.mark.gpu
def test_batches_on_cuda_equal_those_on_the_cpu(data):
    windows = Windows(*data, 7, 5, 0, ROWS, (1,))
    index = torch.tensor([5, 0, 41])
    for here, there in zip(windows.batch(index), windows.to("cuda").batch(index), strict=True):
        assert there.device.type == "cuda"
        assert torch.equal(here, there.cpu())


def test_no_window_shows_the_arithmetic_and_the_longest_horizon(data):
    with pytest.raises(
        DataError, match=r"fits is 13: .*53 - max\(40, look-back 7\) = 13 target rows"
    ):
        Windows(*data, 7, 14, 40, ROWS, (0,))
    assert len(Windows(*data, 7, 13, 40, ROWS, (0,))) == 1
    with pytest.raises(DataError, match="a look-back below 53 is needed"):
        Windows(*data, 60, 1, 0, ROWS, (0,))


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_values_that_left_float32_are_named(data, bad):
    values, calendar = data
    values[10, 2] = bad
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
    [(504, 336, 7, 64), (504, 336, 862, 5), (2016, 720, 2000, 1), (1, 1, 1, 64)],
)
def test_evaluation_takes_fewer_of_the_large_ones(past, horizon, columns, batch):
    values = torch.zeros(1, columns).expand(past + horizon, columns)
    calendar = torch.zeros(past + horizon, 1)
    windows = Windows(values, calendar, past, horizon, 0, past + horizon, (0,))
    assert windows.evaluation_batch == batch
