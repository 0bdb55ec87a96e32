"""The routes, one file for each thing that the service does."""
