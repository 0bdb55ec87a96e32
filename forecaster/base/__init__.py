"""What knows nothing of forecasting: errors, files, the machine, processes, progress, names.

It imports no other room. `errors` is the tree of errors, `spelling` how messages name options,
`signals` and `workers` end work in order. Begin reading with `errors`.
"""
