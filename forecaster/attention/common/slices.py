"""How much to compute at a time, so that it stays in a CPU's cache."""

from collections.abc import Iterator

import torch


def slices(series: int, heads: int, each: int, at_once: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of the series and of their heads that together hold about `at_once` numbers.

    One head of one series holds `each` numbers. A slice has several series only if it has all
    heads, and never less than one head of one series. In an export, which must work for any number
    of series, one slice holds all.
    """
    if torch.compiler.is_exporting():
        yield slice(None), slice(None)
        return
    pairs = max(1, at_once // each)
    some_series, some_heads = max(1, pairs // heads), min(heads, pairs)
    for b in range(0, series, some_series):
        for h in range(0, heads, some_heads):
            yield slice(b, b + some_series), slice(h, h + some_heads)
