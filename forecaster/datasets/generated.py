"""Data sets that are drawn, not read: samples that ask one thing of a model, and nothing else.

Each sample is a series of a panel, with one window: samples share no value. Training, validation
and test samples follow one another on the time grid, each one step after the one before it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.datasets.card import Split
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.items import Items
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import Series

FREQ, START = "h", "2000-01-01"
Samples = tuple[int, int, int]
"""How many train, validate and test."""


@dataclass(frozen=True)
class Recall:
    """Motifs and values among noise; motifs asked for at the end; their values to be forecast.

    A sample has `length` steps and then the `pairs` answers, one a step. A motif is `motif` signs
    side by side in the columns `motif.0`, ...: a pattern of one step. `pairs` steps at random
    places hold one each, all different, beside a value, and the last `pairs` steps ask for all of
    them in another random order. With two `hops` such a step holds a second motif in place of the
    value, in the columns `next.0`, ..., and another step holds this one and the value.

    The columns `event` and `question` mark the steps with motifs, and those that ask; elsewhere
    all columns are normal noise of standard deviation `noise`. The values that answer are uniform
    with mean 0 and variance 1, and the column `value`, the target, is 0 where a step asks. So
    chance is an MSE of 1. Who knows the mean of the values of a sample gets 1 - 1 / `pairs`.
    """

    length: int
    pairs: int = 16
    hops: int = 1
    motif: int = 6
    noise: float = 0.03
    samples: Samples = (1024, 128, 1024)
    seed: int = 0

    def __post_init__(self) -> None:
        events = self.pairs * self.hops
        if self.hops not in (1, 2) or events > 2**self.motif or events + self.pairs > self.length:
            raise ValueError(
                f"expected 1 or 2 hops, at most {2**self.motif} different motifs of {self.motif} "
                f"signs and room for them and the questions, got hops={self.hops}, "
                f"pairs={self.pairs}, length={self.length}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        signs = [
            f"{name}.{sign}"
            for name in ("motif", "next")[: self.hops]
            for sign in range(self.motif)
        ]
        return ("value", "event", "question", *signs)

    def dataset(self, name: str) -> Dataset:
        random = np.random.default_rng(self.seed)
        rows = self.length + self.pairs
        shape = (sum(self.samples), rows, len(self.columns))
        drawn = random.standard_normal(shape, dtype=np.float32) * np.float32(self.noise)
        for sample in drawn:
            self._write(sample, random)
        return panel(name, drawn, self.columns, ("value",), self.length, self.samples)

    def _write(self, sample: NDArray[np.float32], random: np.random.Generator) -> None:
        """Pairs, questions and answers into the noise of a sample (steps, columns)."""
        pairs, hops, asked = self.pairs, self.hops, self.length - self.pairs
        codes = random.choice(2**self.motif, (hops, pairs), replace=False)
        motifs = 2.0 * (codes[..., None] >> np.arange(self.motif) & 1) - 1
        first, second = slice(3, 3 + self.motif), slice(3 + self.motif, None)
        places = random.choice(asked, (hops, pairs), replace=False)
        order = random.permutation(pairs)
        questions = slice(asked, self.length)
        sample[places, 1:3] = 1, 0
        sample[places, first] = motifs
        sample[places[-1], 0] = random.uniform(-(3**0.5), 3**0.5, pairs)
        if hops == 2:
            sample[places[0], second] = motifs[1]
        sample[questions, :3] = 0, 1, 1
        sample[questions, first] = motifs[0][order]
        sample[self.length :, 0] = sample[places[-1], 0][order]


def panel(
    name: str,
    drawn: NDArray[np.float32],
    columns: tuple[str, ...],
    targets: tuple[str, ...],
    past: int,
    samples: Samples,
) -> Dataset:
    """Samples (n, steps, columns) as a panel, of which each has one window of a look-back `past`.

    The targets of a part begin at different steps, one after another, so that a bootstrap over
    time is one over samples.
    """
    import pandas as pd

    count, rows, _ = drawn.shape
    ends: list[int] = []
    places: list[NDArray[np.int64]] = []
    end = past
    for part in samples:
        places.append(end - past + np.arange(part))
        end += part - 1 + rows - past
        ends.append(end)
    series = Series(
        values=drawn.reshape(count * rows, -1),
        times=pd.date_range(START, periods=end, freq=FREQ, unit="us"),
        columns=columns,
        freq=FREQ,
        source=name,
        items=Items([str(i) for i in range(count)], np.arange(count + 1) * rows, np.hstack(places)),
    )
    others = tuple(column for column in columns if column not in targets)
    return Dataset(
        name=name,
        reading=Reading(
            time="time", id=("sample",), targets=targets, past_covariates=others, freq=FREQ,
            seasons=(1,), panel=False, timezone="UTC",
        ),
        series=series,
        targets=targets,
        features="MS" if others else "S",
        main_target=targets[0],
        said=(),
        counts={},
        split=Split(rows=(ends[0], ends[1], ends[2])),
        past=past,
        as_it_is=True,
    )  # fmt: skip


def generate(name: str) -> Dataset:
    """The data set that a name of `card.GENERATED` stands for: recall-256, recall-1024-2hops."""
    _, length, *rest = name.split("-")
    return Recall(int(length), hops=2 if rest else 1).dataset(name)
