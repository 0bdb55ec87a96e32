"""Fill the gaps of covariates, where the user asks for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forecaster.base.errors import DataError, UsageError
from forecaster.base.names import did_you_mean, quoted
from forecaster.base.spelling import spelled
from forecaster.datasets.dataset import Items, Series
from forecaster.datasets.reading import ALL, Fill, Reading

Column: TypeAlias = NDArray[np.floating[Any]]


def by_column(reading: Reading) -> dict[str, Fill]:
    """How each covariate is filled, by column of the file. Raises UsageError for other columns."""
    covariates = reading.covariates
    for name in reading.fill:
        if name == ALL or name in covariates:
            continue
        if name in reading.targets:
            raise UsageError(
                f"{spelled('fill')}: '{name}' is a target, and only covariates are filled; a "
                "missing value of a target is masked"
            )
        raise UsageError(
            f"{spelled('fill')}: '{name}' is not a covariate.{did_you_mean(name, covariates)} "
            f"Covariates: {quoted(covariates) or 'none'}."
        )
    rest = reading.fill.get(ALL)
    chosen = {name: reading.fill.get(name, rest) for name in covariates}
    return {name: how for name, how in chosen.items() if how}


def fill(values: Column, columns: Sequence[str], reading: Reading, items: Items) -> dict[str, int]:
    """Fill the named columns of values (N, C) in place; returns how many were filled, by column.

    linear: on the line between the neighbours, never beyond the last value; previous: the value
    before; zero: 0; season: the value one main cycle before or, at the beginning, after. Gaps
    before the first value take that value; columns of words take whole values, never a mean. A
    series without any value in a column keeps its gaps, unless they are zero.
    """
    filled: dict[str, int] = {}
    for place, column in enumerate(columns):
        name = reading.read_from([column])[0]
        how = reading.fill.get(name)
        if how is None or not (gaps := np.isnan(values[:, place])).any():
            continue
        touched = np.searchsorted(items.bounds, np.flatnonzero(gaps), side="right") - 1
        for item in np.unique(touched):
            rows = slice(items.bounds[item], items.bounds[item + 1])
            values[rows, place] = _filled(values[rows, place], how, reading.seasons[0])
        count = int(gaps.sum() - np.isnan(values[:, place]).sum())
        filled[name] = max(filled.get(name, 0), count)  # the columns of words have the same gaps
    return filled


def _filled(column: NDArray[np.floating[Any]], how: Fill, season: int) -> NDArray[np.floating[Any]]:
    """One column (N,) of a series without its gaps."""
    if how == "zero":
        return np.where(np.isnan(column), 0.0, column)
    seen = np.flatnonzero(~np.isnan(column))
    if not len(seen):
        return column
    places = np.arange(len(column))
    if how == "linear":
        return np.asarray(np.interp(places, seen, column[seen], right=np.nan))
    if how == "season":
        column = column.copy()
        for phase in range(min(season, len(column))):
            phase_values = column[phase::season]
            if not np.isnan(phase_values).all():
                column[phase::season] = _filled(phase_values, "previous", 1)
        seen = np.flatnonzero(~np.isnan(column))
    before = np.maximum(np.searchsorted(seen, places, side="right") - 1, 0)
    return column[seen[before]]


def fill_gaps(
    series: Series, reading: Reading, excused: NDArray[np.int64], messages: list[str]
) -> None:
    """Fill covariates as stated, those known ahead also in `excused` rows: with the value before.

    Raises DataError for a covariate known ahead that has gaps then.
    """
    items, known = series.layout, series.known
    filled = fill(series.values, series.columns, reading, items)
    if known is not None:
        filled |= fill(known, series.known_columns, reading, items)
    if known is not None and len(excused):
        whole = known.copy()
        always = replace(reading, fill=dict.fromkeys(reading.future_covariates, "previous"))
        fill(whole, series.known_columns, always, items)
        known[excused] = whole[excused]
    if filled:
        shown = ", ".join(f"'{name}' {n:,} ({reading.fill[name]})" for name, n in filled.items())
        messages.append(f"Values filled: {shown}.")
    for place, column in enumerate(series.known_columns):
        assert known is not None
        holes = np.isnan(known[:, place])
        if holes.any():
            name = reading.read_from([column])[0]
            way = "linear fills it from its neighbours, others are previous, zero and season"
            if 2 * holes.sum() > len(holes) or not np.nanstd(known[:, place]) > 0:
                way = "zero takes an empty cell for 0, others are previous, linear and season"
            if name in reading.categories:
                way = "zero takes an empty cell for no word, others are previous and season"
            raise DataError(
                f"{series.source}: the future covariate '{name}' has no value at "
                f"{series.shown(int(holes.argmax()))} ({int(holes.sum())} are missing); expected "
                f"one at every step. {spelled('fill', f'{name}={way.split()[0]}')}: {way}; a past "
                "covariate may have gaps."
            )
