"""Generated data sets: samples that test one ability of a model and nothing else.

Each sample is a series of a panel with one window, so samples share no value. Training, validation
and test samples follow one another on the time grid, each one step after the one before it.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.datasets.card import SplitRule
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.items import Items
from forecaster.datasets.reading import Reading
from forecaster.datasets.series import Series

FREQ, START = "h", "2000-01-01"
SHORTEST = 64
"""The fewest steps of a sample: room for 32 motifs and 16 questions, or for four horizons."""
Samples = tuple[int, int, int]
"""The numbers of training, validation and test samples."""
Drift = Literal["fixed", "chirp", "wander"]


@dataclass(frozen=True)
class Recall:
    """Motifs with values among noise; questions repeat the motifs, and the values are forecast.

    A sample has `length` steps and then the `pairs` answers, one per step. A motif is a pattern of
    one step: `motif` signs in the columns `motif.0`, .... At random places, `pairs` steps hold one
    motif each, all different, with a value; the last `pairs` steps before the answers are
    questions, which repeat all motifs in another random order. With two `hops`, a step with a motif
    holds a second motif instead of the value, in the columns `next.0`, ..., and another step holds
    that motif and the value.

    The columns `event` and `question` mark the steps with motifs and the questions; elsewhere all
    columns are normal noise with standard deviation `noise`. The answers are uniform with mean 0
    and variance 1, and the column `value`, the target, is 0 in a question. A guess therefore has an
    MSE of 1; a model that knows only the mean of the values of a sample gets 1 - 1 / `pairs`.
    """

    length: int
    pairs: int = 16
    hops: int = 1
    motif: int = 6
    noise: float = 0.03
    samples: Samples = (1024, 128, 1024)
    seed: int = 0

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
        """Write pairs, questions and answers into the noise of a sample (steps, columns)."""
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


@dataclass(frozen=True)
class Phase:
    """A wave whose phase is known at each step, with a different shape in each sample.

    A sample has `length` steps and then `horizon` steps to forecast. The column `value`, the
    target, is a wave of `harmonics` harmonics with random coefficients that decrease with their
    number, plus normal noise with standard deviation `noise`. The wave has mean 0 and variance 1
    over a cycle, so a guess has an MSE of 1, and a model that knows the wave gets `noise`². The
    columns `cos` and `sin` give the phase. The last `horizon` steps of the look-back are questions:
    they have the phases of the steps to forecast, 1 in the column `question`, and 0 as their value.

    `drift` is how the phase advances. `fixed`: the period is 24 steps, and all samples begin a
    cycle at their first step, so that positions determine phases. `chirp`: the sample begins
    anywhere in its cycle, and its frequency changes evenly from that of one period between 16 and
    48 steps to that of another. `wander`: the logarithm of the period is a random walk between
    those bounds, with steps of standard deviation 0.05.
    """

    length: int
    drift: Drift = "chirp"
    horizon: int = 16
    harmonics: int = 3
    noise: float = 0.1
    samples: Samples = (1024, 128, 1024)
    seed: int = 0

    def dataset(self, name: str) -> Dataset:
        random = np.random.default_rng(self.seed)
        count, asked = sum(self.samples), self.length - self.horizon
        drawn = np.zeros((count, self.length + self.horizon, 4), dtype=np.float32)
        cycles = self._cycles(random, count, self.length)
        angles = 2 * np.pi * np.arange(1, self.harmonics + 1)[:, None, None] * cycles
        of_each = random.standard_normal((2, self.harmonics, count, 1))
        of_each /= np.arange(1, self.harmonics + 1)[:, None, None]
        of_each /= np.sqrt(np.square(of_each).sum((0, 1)) / 2)
        values = (of_each * np.stack([np.cos(angles), np.sin(angles)])).sum((0, 1))
        values += random.normal(0, self.noise, values.shape)
        drawn[:, :asked, 0], drawn[:, self.length :, 0] = values[:, :asked], values[:, asked:]
        drawn[:, asked : self.length, 1] = 1
        drawn[:, : self.length, 2] = np.cos(angles[0])
        drawn[:, : self.length, 3] = np.sin(angles[0])
        columns = ("value", "question", "cos", "sin")
        return panel(name, drawn, columns, ("value",), self.length, self.samples)

    def _cycles(self, random: np.random.Generator, count: int, steps: int) -> NDArray[np.float64]:
        """The number of cycles passed at each step of each sample, (count, steps)."""
        if self.drift == "fixed":
            return np.tile(np.arange(steps) / 24, (count, 1))
        low, high = np.log(16), np.log(48)
        if self.drift == "chirp":
            first, last = 1 / np.exp(random.uniform(low, high, (2, count, 1)))
            frequency = first + (last - first) * np.linspace(0, 1, steps)
        else:
            walk = random.normal(0, 0.05, (count, steps)).cumsum(1)
            walk += random.uniform(0, high - low, (count, 1))
            folded = np.abs((walk + high - low) % (2 * (high - low)) - (high - low))
            frequency = 1 / np.exp(low + folded)
        cycles: NDArray[np.float64] = random.uniform(size=(count, 1)) + frequency.cumsum(1)
        return cycles


def panel(
    name: str,
    drawn: NDArray[np.float32],
    columns: tuple[str, ...],
    targets: tuple[str, ...],
    past: int,
    samples: Samples,
) -> Dataset:
    """Samples (n, steps, columns) as a panel whose series have one window of look-back `past` each.

    The targets of a part begin at different steps, one after another, so that a bootstrap over
    time is a bootstrap over samples.
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
        split=SplitRule(rows=(ends[0], ends[1], ends[2])),
        past=past,
        as_it_is=True,
    )  # fmt: skip


def generate(name: str) -> Dataset:
    """Generate the data set of a name that matches `card.GENERATED`, such as recall-256-2hops.

    Raises DataError if samples would be too short for their contents.
    """
    kind, length, *rest = name.split("-")
    if int(length) < SHORTEST:
        raise DataError(
            f"{name} cannot be generated: expected samples of at least {SHORTEST} steps."
        )
    if kind == "recall":
        return Recall(int(length), hops=2 if rest else 1).dataset(name)
    drift = next(each for each in get_args(Drift) if each in rest)
    return Phase(int(length), drift).dataset(name)
