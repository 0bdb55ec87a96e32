"""Until 0.4, a bundle of release 0.2.0 can be the champion, and be replaced."""

import os

import pandas as pd
import pytest

from forecaster import Forecaster
from forecaster.tracking.store import MlflowClient  # which silences MLflow first
from tests.equality import cases
from tests.equality.cases import WRITTEN, assert_same_table, kept


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's use of SQLAlchemy
def test_a_champion_is_replaced_by_what_is_measurably_better(tmp_path):
    """The network alone is the champion; the same again is no better, with closed forms it is."""
    champion = WRITTEN["champion"]
    with cases.at(tmp_path):
        (tmp_path / "input.csv").write_text(kept("alone", "input.csv"))
        cases.unpack("alone", tmp_path / "artifacts").rename(tmp_path / "artifacts" / "bundle")
        client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
        client.create_registered_model(champion["name"])
        client.create_model_version(champion["name"], str(tmp_path), tags=champion["tags"])
        for alias in champion["aliases"]:
            client.set_registered_model_alias(champion["name"], alias, "1")
        ahead = Forecaster.load(champion["name"]).predict(
            tmp_path / "input.csv", levels=cases.LEVELS
        )
        assert_same_table(pd.DataFrame(ahead), "alone")

        cases.two(cases.ROWS).to_csv("alone.csv", index=False)
        for blend, served in (("none", "1"), ("all", "3")):
            assert cases.status(*cases.ALONE, "--blend", blend) == 0
            aliases = client.get_registered_model(champion["name"]).aliases
            assert str(aliases["champion"]) == served
