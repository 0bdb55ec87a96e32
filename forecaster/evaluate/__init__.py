"""Honest evaluation: every window, floors beside the model, paired intervals.

`judge` scores a model, its intervals and its parts on the test windows (`backtest` holds what it
finds, `figures` lists all metrics, `headline` says it in a sentence), `intervals` calibrates,
`rehearsal` does for short series, `cutoffs` judges models trained at several cut-offs. It may
import `forecast`, `plan`, `parts`, `record`, `datasets`, `base`. Begin reading with `judge`.
"""
