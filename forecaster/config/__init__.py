"""The configuration of a run, and the options of the command line."""
