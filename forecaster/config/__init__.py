"""The configuration of a run (`run_config`), and the options that set one value of it (`flags`).

It reads `model` and `attention` only when a name is built, `datasets` and `base` at once. Begin
reading with `run_config.RunConfig`, then `load`.
"""
