"""The bundle as an MLflow model, for `mlflow models serve` and other users of pyfunc.

Logged by its path (models from code) and imported by nothing here: MLflow runs this file anew
wherever the model is loaded, so nothing is pickled.
"""

from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from forecaster.errors import ForecasterError
from forecaster.predict import Predictor


class Model(PythonModel):  # type: ignore[misc]  # MLflow is not type-checked here
    """The future of one history or of a panel: a frame of the past in, one of the forecast out."""

    def load_context(self, context: PythonModelContext) -> None:
        self.forecaster = Predictor.load(context.artifacts["bundle"])

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """`model_input` is a history for `Predictor.predict`, which tells what it may hold.

        `params["horizon"]`: how many steps, at most those trained for; `params["quantile_levels"]`:
        which quantiles to give beside the forecast. What is wrong with the input comes back as
        MlflowException, so that the server answers with our sentence and status 400.
        """
        params = params or {}
        horizon, levels = params.get("horizon"), params.get("quantile_levels", ())
        try:
            return self.forecaster.predict(
                model_input, None if horizon is None else int(horizon), [float(x) for x in levels]
            )
        except ForecasterError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error


set_model(Model())
