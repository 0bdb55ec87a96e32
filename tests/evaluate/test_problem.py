from pathlib import Path

import numpy as np
import pytest
import torch

from forecaster.base import installation
from forecaster.base.errors import UnavailableError, UsageError
from forecaster.config.run_config import load
from forecaster.datasets import reader
from forecaster.evaluate import problem
from forecaster.evaluate.problem import find_data
from tests import small

pytestmark = pytest.mark.usefixtures("home")


class TestFindData:
    """Which data a run uses when the wanted ones cannot be found."""

    @pytest.fixture(autouse=True)
    def cards(self, monkeypatch):
        """The real cards; of their data only vic_elec is available."""
        real = Path(problem.__file__).parents[2] / "data" / "cards"
        monkeypatch.setattr(installation, "cards", lambda: real)
        read = reader.read_card

        def available(card, path=None, *chosen):
            if card.name != "vic_elec" or path is not None:
                raise UnavailableError(f"{card.name} cannot be found. What helps: several.")
            return read(card, path, *chosen)

        monkeypatch.setattr(reader, "read_card", available)

    def find(self, *sets, file="default", **flags):
        said = []
        return *find_data(load(file, sets, flags, {}), said.append), "\n".join(said)

    def test_the_default_gives_way_and_says_so(self):
        config, dataset, said = self.find(attn="full")
        assert config.data.name == dataset.name == "vic_elec"
        assert "ETTh1 cannot be found. What helps: several." in said
        assert "This run uses vic_elec instead of ETTh1" in said
        assert "default.yaml allows it" in said
        config, _, said = self.find(data="VIC-ELEC")
        assert (config.data.name, said) == ("vic_elec", ""), "spelt as on the card"

    def test_what_the_user_named_never_does(self):
        for sets, how in (
            ([], {"data": "ETTh1"}),
            (["data.name=ETTh1"], {}),
            (["data.path=my.csv"], {}),
            (["data.otherwise=null"], {}),
            ([], {"file": "informer"}),
        ):
            with pytest.raises(UnavailableError, match=r"ETTh1 cannot be found"):
                self.find(*sets, **how)


class TestMakeProblem:
    def test_cycles_become_steps_and_the_start_half_of_them(self):
        window = small.problem().config.window
        assert (window.past, window.start, window.horizon) == (36, 18, 5)
        window = small.problem("window.start=7", lookback=25).config.window
        assert (window.past, window.start) == (25, 7)
        assert small.problem(lookback=1).config.window.start == 1
        with pytest.raises(UsageError, match=r"window.start=30 .* has only 24 .*window.start=12"):
            small.problem("window.start=30", lookback=24)

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
        made = small.problem(features=features, target=target)
        assert (made.schema.columns, made.schema.targets) == (tuple(columns), tuple(targets))
        assert made.name == f"forecaster-small-{name}-5"
        assert made.test("cpu").batch(torch.tensor([0])).target.shape == (1, 5, len(targets))
        assert made.digest == small.problem().digest, "the data are the same"

    def test_a_refit_takes_every_row(self):
        made = small.problem()
        everything = made.refitted()
        np.testing.assert_allclose(everything.schema.scaler.mean, made.series.values.mean(0))
        assert len(everything.training("cpu")) == small.ROWS - 36 - 5 + 1

    def test_the_model_is_a_function_of_configuration_and_seed(self):
        before = torch.get_rng_state()
        one, two, other = small.problem(), small.problem(), small.problem(seed=1)
        weights = [made.build_model().state_dict() for made in (one, two, other)]
        assert torch.equal(before, torch.get_rng_state())
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
        assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
