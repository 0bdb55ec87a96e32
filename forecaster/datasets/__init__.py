"""From a data card or a file to windows, over `base` alone.

`reader` makes a `Dataset` of files or frames, in the way that a `Reading` states; `card` and
`fetch` know the named data sets. `dataset` holds the rows, `sizes` cuts them, `scaling` prepares
them, and `windows` gathers the batches. Begin reading with `dataset`.
"""
