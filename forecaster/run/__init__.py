"""A run from data to bundle: train, resume, reuse, reproduce, tune."""
