import pytest
import torch

from forecaster.base.errors import UsageError
from tests import small

pytestmark = pytest.mark.usefixtures("home")


class TestMakePlan:
    def test_cycles_become_steps_and_the_start_half_of_them(self):
        window = small.splits().plan.config.window
        assert (window.past, window.start, window.horizon) == (36, 18, 5)
        window = small.splits("window.start=7", lookback=25).plan.config.window
        assert (window.past, window.start) == (25, 7)
        assert small.splits(lookback=1).plan.config.window.start == 1
        with pytest.raises(UsageError, match=r"window.start=30 .* has only 24 .*window.start=12"):
            small.splits("window.start=30", lookback=24)

    @pytest.mark.parametrize(
        ("features", "target", "columns", "targets", "name"),
        [
            (None, None, "abc", "abc", "M-all"),
            ("S", None, "b", "b", "S-b"),
            ("S", "c", "c", "c", "S-c"),
            ("MS", None, "abc", "b", "MS-b"),
            (None, "c", "abc", "c", "MS-c"),
        ],
    )
    def test_features_and_targets(self, features, target, columns, targets, name):
        made = small.splits(features=features, target=target)
        assert (made.schema.columns, made.schema.targets) == (tuple(columns), tuple(targets))
        assert made.plan.name == f"forecaster-small-{name}-5"
        assert made.test("cpu").batch(torch.tensor([0])).target.shape == (1, 5, len(targets))
        assert made.plan.dataset.digest == small.splits().plan.dataset.digest, (
            "the data are the same"
        )
