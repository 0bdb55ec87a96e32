"""A run from data to bundle: train, resume, reuse, tune."""
