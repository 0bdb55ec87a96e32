"""What is decided before training, from a configuration and its data.

`data.py` reads the data that a configuration names. `plan.py` decides lengths, columns and borders
(`Plan`). `schema.py` says what a model reads and writes, with its scalers (`Schema`), `effects.py`
estimates what inputs known ahead do, and `transform.py` turns histories into what parts read, and
their forecasts back into units (`Transform`). `splits.py` makes the windows of training, stopping,
calibrating and test (`Splits`): begin there. Only data sets, configuration, parts and networks
enter.
"""
