"""The bundle as an MLflow model, for `mlflow models serve` and other users of pyfunc.

It is logged by its path (models from code) and imported by no other module: MLflow runs this file
wherever the model is loaded, so nothing is pickled.
"""

from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from forecaster.base.errors import ForecasterError
from forecaster.forecast.notices import refuse_left_out
from forecaster.forecast.predictor import Predictor


class Model(PythonModel):  # type: ignore[misc]  # MLflow is not type-checked here
    """Forecasts one history or a panel: takes a frame of the past, returns one of the forecast."""

    def load_context(self, context: PythonModelContext) -> None:
        self.forecaster = Predictor.load(context.artifacts["bundle"])

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Forecast `model_input`, a history as `Predictor.predict` describes it.

        `params["horizon"]`: the number of steps, at most the trained horizon;
        `params["quantile_levels"]`: the quantiles to return beside the forecast. Errors in the
        input raise MlflowException, so that the server answers with our message and status 400;
        so do series of a panel that are too short, which a table could only leave out.
        """
        params = params or {}
        horizon, levels = params.get("horizon"), params.get("quantile_levels", ())
        try:
            return self.forecaster.predict(
                model_input,
                None if horizon is None else int(horizon),
                [float(x) for x in levels],
                say=refuse_left_out,
            )
        except ForecasterError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error


set_model(Model())
