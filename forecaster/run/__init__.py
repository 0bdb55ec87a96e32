"""A run, from data to a bundle in its folder.

`train` is the sequence: plan, fit, blend, calibrate, judge, save; begin reading with its `run` and
`make`. `resuming` finds a run that is unfinished, or the same, in folders (`record/folder.py`,
which tracker and report read, too); `tune` searches options by runs, `renew` replaces a served
model by one that is trained on newer rows. Everything but `cli`, `client`, `estimator` and `study`
may enter.
"""
