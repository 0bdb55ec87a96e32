import numpy as np
import pytest
from scipy.stats import norm

from forecaster.base.errors import UsageError
from forecaster.forecast.intervals import Intervals
from forecaster.forecast.paths import check, errors_of, middles, paths, rows_of, standing
from tests.bundles import whole_errors

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


def normal(errors, levels=LEVELS):
    """Intervals as of a standard normal distribution, with whole windows of errors."""
    _, _, horizon, targets = errors.shape
    offsets = np.broadcast_to(norm.ppf(levels), (horizon, targets, len(levels)))
    return Intervals(levels, offsets, np.ones((horizon, targets)), 99, errors=errors, apart=5.0)


def bands(forecasts, levels=LEVELS, width=1.0):
    return forecasts[..., None] + width * norm.ppf(levels)


def some(batch=1, horizon=6, targets=2):
    return np.random.default_rng(1).normal(size=(batch, horizon, targets))


def test_the_quantiles_of_many_paths_are_the_bands():
    """To 2 % of the width of the 80 % band; between the levels and beyond them, too."""
    ahead = some()
    for levels in (LEVELS, (0.1, 0.25, 0.8, 0.9)):
        ends = bands(ahead, levels, 3.0)
        drawn = paths(
            ahead, ends, normal(whole_errors(1, 6, 2), levels), np.zeros(1, int), np.ones(1), 10_000
        )
        assert drawn.shape == (1, 10_000, 6, 2)
        allowed = 0.02 * 3 * (norm.ppf(0.9) - norm.ppf(0.1))
        found = np.moveaxis(np.quantile(drawn, levels, axis=1), 0, -1)
        np.testing.assert_allclose(found, ends, atol=allowed)
        tail = (np.quantile(drawn, 0.99, axis=1) - ahead) / (ends[..., -1] - ahead)
        np.testing.assert_allclose(tail, norm.ppf(0.99) / norm.ppf(levels[-1]), atol=0.1)
        between = (levels[-2] + levels[-1]) / 2
        middle = (ends[..., -2] + ends[..., -1]) / 2
        np.testing.assert_allclose(np.quantile(drawn, between, axis=1), middle, atol=allowed)


def test_ranks_go_together_as_in_the_windows():
    """Two columns whose errors are opposite, and two series whose errors are the same."""
    errors = whole_errors(1, 6, 1, windows=200).astype(float)
    errors = np.concatenate([errors, -errors], axis=3).repeat(2, axis=1)
    ahead = some(2)
    own = normal(errors)
    first, second = (
        paths(ahead, bands(ahead), own, np.array([0, 1]), np.ones(2), 400) - ahead[:, None]
    )
    np.testing.assert_allclose(first, second, atol=1e-9)
    assert np.corrcoef(first[:, 0].T)[0, 1] < -0.99
    steps = np.corrcoef(first[..., 0].T)
    assert 0.2 < steps[0, 1] < 0.8
    assert abs(steps[0, 5]) < 0.25


def test_where_the_level_is_not_known_all_steps_move_alike():
    """Bands twice as wide: of the variance three quarters are common to the steps."""
    own, ahead = normal(whole_errors(2, 6, 1, windows=500)), some(2, targets=1)
    wider, rows = np.array([1.0, 2.0]), np.array([0, 1])
    errors = errors_of(own, rows, wider, 6)
    assert np.array_equal(errors[:, 0], own.errors[:, 0])
    usual, common = own.errors[:, 1, :, 0].astype(float), errors[:, 1, :, 0]
    known = np.corrcoef(usual.T)[0, 5]
    assert abs(known) < 0.2
    assert 0.4 < np.corrcoef(common.T)[0, 5] < 0.9
    drawn = paths(ahead, bands(ahead, width=wider[:, None, None, None]), own, rows, wider, 500)
    sums = (drawn - ahead[:, None]).sum(axis=(2, 3)).std(axis=1)
    assert sums[1] > 2.5 * sums[0], "more than twice, as the steps are"


def test_paths_are_the_same_in_any_batch_and_all_windows_are_drawn():
    ahead, own = some(3), normal(whole_errors(4, 6, 2))
    rows = np.array([3, 0, 2])
    every = paths(ahead, bands(ahead), own, rows, np.ones(3), 50)
    alone = paths(ahead[1:2], bands(ahead[1:2]), own, rows[1:2], np.ones(1), 50)
    assert np.array_equal(every[1:2], alone)
    few = paths(ahead, bands(ahead), own, rows, np.ones(3), 39)[0, :, 0, 0] - ahead[0, 0, 0]
    shares = np.sort(norm.cdf(few)) * 39  # one in each 39th
    assert np.abs(shares - np.arange(39) - 0.5).max() < 1


def test_a_band_without_width_gives_the_forecast():
    ahead = some()
    own, ends = normal(whole_errors(1, 6, 2)), bands(ahead, width=0.0)
    drawn = paths(ahead, ends, own, np.zeros(1, int), np.ones(1), 9)
    np.testing.assert_allclose(drawn, np.repeat(ahead[:, None], 9, axis=1))


def test_some_stand_for_their_neighbours():
    assert middles(5, 3).tolist() == [0, 1, 2]
    assert middles(2, 6).tolist() == [1, 4]
    assert standing(2, 6).tolist() == [0, 0, 0, 1, 1, 1]
    thin = whole_errors(1, 3, 1, windows=100)
    own = normal(np.repeat(thin, 2, axis=2))
    both = [
        paths(some(targets=2), bands(some(targets=2)), Intervals(
            LEVELS, own.offsets.repeat(2, axis=1), np.ones((6, 2)), 99, errors=errors, apart=5.0
        ), np.zeros(1, int), np.ones(1), 20)
        for errors in (thin, np.repeat(own.errors, 2, axis=3))
    ]  # fmt: skip
    assert np.array_equal(*both)


def test_a_series_that_training_did_not_know_has_the_errors_of_another_one():
    own, places = normal(whole_errors(2, 6, 1)), {"a": 0, "b": 1, "c": 2, "d": 3}
    assert rows_of(["d", "a", None, "new"], places, own)[:2].tolist() == [1, 0]
    assert rows_of(["new"], places, own) == rows_of(["a", "new"], places, own)[1:]


@pytest.mark.parametrize(
    ("own", "values", "words"),
    [
        (None, 1, "no errors of calibrating windows"),
        (normal(whole_errors(1, 6, 2), (0.5, 0.9)), 1, "one side of the forecast"),
        (
            normal(whole_errors(1, 6, 2)),
            2**26 + 1,
            r"got 67,108,865: ask for fewer",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(own, values, words):
    with pytest.raises(UsageError, match=words):
        check(own, values)
