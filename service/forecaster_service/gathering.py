"""The figures of several processes as those of one service.

What is counted is added up, of processes that are gone, too: no counter ever falls. Of what is
measured now the sum counts, or the least or the most of the processes that live.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import add
from typing import Any, TypeAlias

from prometheus_client import Metric
from prometheus_client.registry import Collector

Figures: TypeAlias = list[Any]
"""Families as lists that JSON can hold: name, help, type, and samples of name, labels and value."""
COUNTED = ("counter", "histogram", "summary")
ALIKE: dict[str, Callable[[float, float], float]] = {
    "forecaster_ready": min,
    "forecaster_expected_wait_seconds": max,
    "forecaster_deadline_seconds": max,
    "forecaster_model_loaded_timestamp_seconds": max,
    "forecaster_model_looked_timestamp_seconds": min,
    "process_start_time_seconds": min,
}
"""Gauges of which not the sum counts."""


def told(families: Iterable[Metric]) -> Figures:
    """What a process tells of itself."""
    return [
        [
            each.name, each.documentation, each.type,
            [[sample.name, sample.labels, sample.value] for sample in each.samples],
        ]
        for each in families
    ]  # fmt: skip


def counted(figures: Figures) -> Figures:
    """What stays of a process that is gone."""
    return [family for family in figures if family[2] in COUNTED]


def gathered(parts: Sequence[Figures]) -> Figures:
    """All as one."""
    families: dict[str, tuple[Any, dict[Any, list[Any]]]] = {}
    for part in parts:
        for name, words, kind, samples in part:
            _, found = families.setdefault(name, ([name, words, kind], {}))
            for sample, labels, value in samples:
                key = (sample, *sorted(labels.items()))
                if key in found:
                    value = _rule(sample, kind)(found[key][2], value)
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


def _rule(sample: str, kind: str) -> Callable[[float, float], float]:
    if sample.endswith("_created"):
        return min
    if kind == "info" or sample.endswith("_info"):
        return max
    return ALIKE.get(sample, add)
