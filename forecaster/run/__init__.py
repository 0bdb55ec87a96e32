"""A run from data to bundle: train, resume, tune."""
