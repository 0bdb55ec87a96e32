"""The metrics of several processes, combined into those of one service.

Counters are summed, including those of processes that are gone, so that no counter ever falls. A
gauge is the sum, the minimum or the maximum over the processes that live.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import add
from typing import Any, TypeAlias

from prometheus_client import Metric
from prometheus_client.registry import Collector

Figures: TypeAlias = list[Any]
"""Families as lists that JSON can hold: name, help, type, and samples of name, labels and value."""
COUNTED = ("counter", "histogram", "summary")
RULES: tuple[tuple[str, Callable[[float, float], float]], ...] = (
    (r"forecaster_ready|process_start_time_seconds|.*_created", min),
    (r"forecaster_(expected_wait|deadline)_seconds|.*_(info|timestamp_seconds)", max),
)
"""Samples that are not summed."""


def told(families: Iterable[Metric]) -> Figures:
    """The metrics of a process in a form that JSON can hold."""
    return [
        [
            each.name, each.documentation, each.type,
            [[sample.name, sample.labels, sample.value] for sample in each.samples],
        ]
        for each in families
    ]  # fmt: skip


def counted(figures: Figures) -> Figures:
    """The counters, which are kept of a process that is gone and count before one serves."""
    return [family for family in figures if family[2] in COUNTED]


def gathered(parts: Sequence[Figures]) -> Figures:
    """The figures of all parts combined."""
    families: dict[str, tuple[Any, dict[Any, list[Any]]]] = {}
    for part in parts:
        for name, words, kind, samples in part:
            _, found = families.setdefault(name, ([name, words, kind], {}))
            for sample, labels, value in samples:
                key = (sample, *sorted(labels.items()))
                if key in found:
                    value = _rule(sample)(found[key][2], value)
                found[key] = [sample, labels, value]
    return [[*head, list(found.values())] for head, found in families.values()]


class Gathered(Collector):
    """Figures as prometheus_client writes them."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures

    def collect(self) -> Iterable[Metric]:
        for name, words, kind, samples in self.figures:
            family = Metric(name, words, kind)
            for sample in samples:
                family.add_sample(*sample)
            yield family


@cache
def _rule(sample: str) -> Callable[[float, float], float]:
    return next((rule for form, rule in RULES if re.fullmatch(form, sample)), add)
