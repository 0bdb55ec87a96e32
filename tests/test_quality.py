"""A forecast on the packaged sample is as good as it was."""

import pandas as pd
import pytest

from forecaster import Forecaster
from forecaster.datasets.card import load_card
from forecaster.datasets.fetch import locate

SERVED, NETWORK = 0.3869, 0.4574
"""The mean squared errors on the test split, measured when this test was written."""
WORSE = 1.03


@pytest.fixture(scope="module")
def judged():
    sample = pd.read_csv(locate(load_card("vic_elec")), usecols=["Time", "Demand", "Temperature"])
    few = {"target": "Demand", "epochs": 1, "options": {"train.updates": 100}}
    return Forecaster("prob", 48, **few).fit(sample[-4000:]).bundle.record.test


def test_what_is_served_is_no_worse(judged):
    assert judged.mse < WORSE * SERVED


def test_its_network_is_no_worse(judged):
    assert judged.network.mse < WORSE * NETWORK
