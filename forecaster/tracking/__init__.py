"""MLflow: what it is told of a run, and the models that its registry names.

A run notes what MLflow is to have (`notes`), and `publish` makes MLflow have it, as often as it is
called: in the background while the run lasts (`run`), and later as `forecaster sync`. `registry`
decides which version of a name is served, and `watch` keeps an eye on it for a service. What is
told of a model is made from its record (`texts`).

The modules that import mlflow are `store` and those above it; nothing is imported here. It reads
`report`, `evaluate`, `forecast`, `config`, `record` and `base`. Begin reading with `notes`.
"""

TELEMETRY = "MLFLOW_DISABLE_TELEMETRY"
SETTINGS = {
    TELEMETRY: "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",  # the seconds that a server may keep a request waiting
}
"""Variables of a command's environment, unless the user has set them; one that uses Forecaster in
Python has MLflow's."""
