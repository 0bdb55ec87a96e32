"""Forecaster: long-sequence forecasting with interchangeable attention."""
