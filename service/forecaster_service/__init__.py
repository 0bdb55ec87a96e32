"""The HTTP face of a trained model."""
