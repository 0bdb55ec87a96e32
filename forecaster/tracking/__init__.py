"""MLflow: what it is told of a run, and the models that its registry names.

A run notes what MLflow is to have (`notes`), and `publish` makes MLflow have it, as often as it is
called: in the background while the run lasts (`run`), and later as `forecaster sync`. `registry`
decides which version of a name is served, and `watch` keeps an eye on it for a service. What is
told of a model is made from its record (`pages`).

The modules that import mlflow are `store` and those above it; nothing is imported here.
"""
