"""One file for each thing that the service does."""
