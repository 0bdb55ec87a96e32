from pathlib import Path

import pytest

from forecaster.base import installation
from forecaster.base.errors import UnavailableError
from forecaster.config.run_config import load
from forecaster.datasets import reader
from forecaster.plan.data import find_data

pytestmark = pytest.mark.usefixtures("home")


class TestFindData:
    """Which data a run uses when the wanted ones cannot be found."""

    @pytest.fixture(autouse=True)
    def cards(self, monkeypatch):
        """The real cards; of their data only vic_elec is available."""
        real = Path(installation.__file__).parents[2] / "data" / "cards"
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
