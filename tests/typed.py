"""What a type checker sees of the public classes: `mypy` checks this file, nothing runs it."""

from typing import assert_type

import pandas as pd
from matplotlib.figure import Figure

from forecaster import Client, Forecaster


def use(frame: pd.DataFrame, client: Client) -> None:
    model = Forecaster(horizon=24, time_limit="30s").fit(frame)
    assert_type(model, Forecaster)
    assert_type(model.predict(), pd.DataFrame)
    assert_type(model.predict(frame), pd.DataFrame)
    assert_type(model.make_future(frame), pd.DataFrame)
    assert_type(model.historical_forecasts(frame), pd.DataFrame)
    assert_type(model.residuals(), pd.DataFrame)
    assert_type(model.evaluate("mse"), pd.DataFrame)
    assert_type(model.effects(), pd.DataFrame)
    assert_type(model.cross_validate(frame), pd.DataFrame)
    assert_type(client.predict(frame), pd.DataFrame)
    assert_type(model.score(frame), float)
    assert_type(model.plot(), Figure)
