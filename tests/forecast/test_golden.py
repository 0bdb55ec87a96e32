"""Made-up histories: seeded, of all sorts, and always with the same forecast."""

from dataclasses import replace

import numpy as np
import pytest

from forecaster.base.errors import BundleError
from forecaster.forecast import golden
from forecaster.forecast.golden import apart, has_gaps, question
from forecaster.forecast.predictor import Predictor, keep
from tests.bundles import scaled, unsaved
from tests.service.toy import HORIZON, KINDS, PAST, make_bundle

EVERY = range(24)


@pytest.mark.parametrize("kind", KINDS)
def test_they_follow_from_the_schema(kind, tmp_path):
    schema = make_bundle(tmp_path, model="tokens", **KINDS[kind]).schema
    one, two = (question(schema, PAST, HORIZON, EVERY) for _ in range(2))
    assert one.values.shape == (24, PAST, len(schema.columns))
    np.testing.assert_array_equal(one.values, two.values)
    some = question(schema, PAST, HORIZON, [7, 2])
    np.testing.assert_array_equal(some.values, one.values[[7, 2]])
    missing = np.isnan(one.values)
    assert missing.any(axis=(1, 2)).tolist() == [has_gaps(number) for number in EVERY]
    assert not missing.all(axis=1).any(), "each column has a value"
    assert len(set(one.starts)) == 24
    assert len({start.month for start in one.starts}) == 12
    assert len({start.hour for start in one.starts}) > 8


def test_the_distance_is_that_of_the_worst_column_or_quantile():
    kept = np.zeros((2, 4, 3, 2), np.float32)
    made = kept.copy()
    made[1, :, 2, 1] = [0.3, -0.3, 0.3, 0.3]
    made[1, 0, 0, 0] = 0.5
    np.testing.assert_allclose(apart(made, kept), [0, 0.3])
    made[0, 0, 0, 0] = np.nan
    assert np.isnan(apart(made, kept)[0])


class TestCheck:
    def test_it_passes_what_is_near_enough_for_the_device(self, tmp_path):
        kept = keep(unsaved(), tmp_path)

        def moved(by):
            saved = replace(kept.golden, forecast=kept.golden.forecast + np.float32(by))
            return Predictor(replace(kept, golden=saved), "cpu")

        golden.check(moved(5e-5))
        forecaster = moved(5e-4)
        with pytest.raises(BundleError, match=r"up to 0\.0005 .* expected at most 0\.0001\."):
            golden.check(forecaster)
        forecaster.device = "cuda"
        golden.check(forecaster)
        for wrong in (moved(np.nan), Predictor(scaled(kept, np.nan), "cpu")):
            with pytest.raises(BundleError, match=r"does not reproduce .*(nan|not finite)"):
                golden.check(wrong)
        scaled(kept, 1.5).save(tmp_path)
        with pytest.raises(BundleError, match="does not reproduce the forecasts"):
            Predictor.load(tmp_path, "cpu")


def test_a_history_that_is_not_steady_is_not_kept(tmp_path, monkeypatch):
    whole = golden.forecasts

    def nervous(model, which, noise=0.0):
        values = whole(model, which, noise)
        values[2] += noise * 1e5
        return values

    monkeypatch.setattr(golden, "forecasts", nervous)
    kept = keep(unsaved(), tmp_path).golden.which.tolist()
    assert kept == [0, 1, *range(3, 17)]
