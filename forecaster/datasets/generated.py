"""Generated data sets: samples that test one ability of a model and nothing else.

Each sample is a series of a panel with one window, so samples share no value. Training, validation
and test samples follow one another on the time grid, each one step after the one before it.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.datasets.card import SplitRule
from forecaster.datasets.dataset import Dataset, Items, Series
from forecaster.datasets.reading import Reading

FREQ, START = "h", "2000-01-01"
SHORTEST = 64
"""The fewest steps of a sample: room for 32 motifs and 16 questions, or for four horizons."""
Samples = tuple[int, int, int]
"""The numbers of training, validation and test samples."""
SAMPLES = 1024, 128, 1024
MOTIF = 6
"""The signs of a motif: 64 motifs, four times as many as a sample holds."""
HORIZON, HARMONICS = 16, 3
"""The steps of a wave to forecast, and the harmonics that give it its shape."""
Drift = Literal["fixed", "chirp", "wander"]


def recall(
    name: str, length: int, hops: int = 1, *, pairs: int = 16, samples: Samples = SAMPLES
) -> Dataset:
    """Motifs with values among noise; questions repeat the motifs, and the values are forecast.

    A sample has `length` steps and then the `pairs` answers, one per step. A motif is a pattern of
    one step: MOTIF signs in the columns `motif.0`, .... At random places, `pairs` steps hold one
    motif each, all different, with a value; the last `pairs` steps before the answers are
    questions, which repeat all motifs in another random order. With two `hops`, a step with a motif
    holds a second motif instead of the value, in the columns `next.0`, ..., and another step holds
    that motif and the value.

    The columns `event` and `question` mark the steps with motifs and the questions; elsewhere all
    columns are normal noise with a standard deviation of 0.03. The answers are uniform with mean 0
    and variance 1, and the column `value`, the target, is 0 in a question. A guess therefore has an
    MSE of 1; a model that knows only the mean of the values of a sample gets 1 - 1 / `pairs`.
    """
    random = np.random.default_rng(0)
    signs = (f"{what}.{sign}" for what in ("motif", "next")[:hops] for sign in range(MOTIF))
    columns = ("value", "event", "question", *signs)
    shape = (sum(samples), length + pairs, len(columns))
    drawn = random.standard_normal(shape, dtype=np.float32) * np.float32(0.03)
    for sample in drawn:
        _write_pairs(sample, random, hops, pairs)
    return _panel(name, drawn, columns, length, samples)


def _write_pairs(
    sample: NDArray[np.float32], random: np.random.Generator, hops: int, pairs: int
) -> None:
    """Write pairs, questions and answers into the noise of a sample (steps, columns)."""
    length = len(sample) - pairs
    queries = length - pairs
    codes = random.choice(2**MOTIF, (hops, pairs), replace=False)
    motifs = 2.0 * (codes[..., None] >> np.arange(MOTIF) & 1) - 1
    first, second = slice(3, 3 + MOTIF), slice(3 + MOTIF, None)
    places = random.choice(queries, (hops, pairs), replace=False)
    order = random.permutation(pairs)
    questions = slice(queries, length)
    sample[places, 1:3] = 1, 0
    sample[places, first] = motifs
    sample[places[-1], 0] = random.uniform(-(3**0.5), 3**0.5, pairs)
    if hops == 2:
        sample[places[0], second] = motifs[1]
    sample[questions, :3] = 0, 1, 1
    sample[questions, first] = motifs[0][order]
    sample[length:, 0] = sample[places[-1], 0][order]


def phase(
    name: str, length: int, drift: Drift, *, noise: float = 0.1, samples: Samples = SAMPLES
) -> Dataset:
    """A wave whose phase is known at each step, with a different shape in each sample.

    A sample has `length` steps and then HORIZON steps to forecast. The column `value`, the target,
    is a wave of HARMONICS harmonics with random coefficients that decrease with their number, plus
    normal noise with standard deviation `noise`. The wave has mean 0 and variance 1 over a cycle,
    so a guess has an MSE of 1, and a model that knows the wave gets `noise`². The columns `cos` and
    `sin` give the phase. The last HORIZON steps of the look-back are questions: they have the
    phases of the steps to forecast, 1 in the column `question`, and 0 as their value.

    `drift` is how the phase advances. `fixed`: the period is 24 steps, and all samples begin a
    cycle at their first step, so that positions determine phases. `chirp`: the sample begins
    anywhere in its cycle, and its frequency changes evenly from that of one period between 16 and
    48 steps to that of another. `wander`: the logarithm of the period is a random walk between
    those bounds, with steps of standard deviation 0.05.
    """
    random = np.random.default_rng(0)
    count, last = sum(samples), length - HORIZON
    drawn = np.zeros((count, length + HORIZON, 4), dtype=np.float32)
    cycles = _cycles(random, drift, count, length)
    numbers = np.arange(1, HARMONICS + 1)[:, None, None]
    angles = 2 * np.pi * numbers * cycles
    weights = random.standard_normal((2, HARMONICS, count, 1))
    weights /= numbers
    weights /= np.sqrt(np.square(weights).sum((0, 1)) / 2)
    values = (weights * np.stack([np.cos(angles), np.sin(angles)])).sum((0, 1))
    values += random.normal(0, noise, values.shape)
    drawn[:, :last, 0], drawn[:, length:, 0] = values[:, :last], values[:, last:]
    drawn[:, last:length, 1] = 1
    drawn[:, :length, 2] = np.cos(angles[0])
    drawn[:, :length, 3] = np.sin(angles[0])
    return _panel(name, drawn, ("value", "question", "cos", "sin"), length, samples)


def _cycles(
    random: np.random.Generator, drift: Drift, count: int, steps: int
) -> NDArray[np.float64]:
    """The number of cycles passed at each step of each sample, (count, steps)."""
    if drift == "fixed":
        return np.tile(np.arange(steps) / 24, (count, 1))
    low, high = np.log(16), np.log(48)
    if drift == "chirp":
        first, last = 1 / np.exp(random.uniform(low, high, (2, count, 1)))
        frequency = first + (last - first) * np.linspace(0, 1, steps)
    else:
        walk = random.normal(0, 0.05, (count, steps)).cumsum(1)
        walk += random.uniform(0, high - low, (count, 1))
        folded = np.abs((walk + high - low) % (2 * (high - low)) - (high - low))
        frequency = 1 / np.exp(low + folded)
    cycles: NDArray[np.float64] = random.uniform(size=(count, 1)) + frequency.cumsum(1)
    return cycles


def _panel(
    name: str, drawn: NDArray[np.float32], columns: tuple[str, ...], past: int, samples: Samples
) -> Dataset:
    """Samples (n, steps, columns) as a panel whose series have one window of look-back `past` each.

    The first column is the target. The targets of a part begin at different steps, one after
    another, so that a bootstrap over time is a bootstrap over samples.
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
    return Dataset(
        name=name,
        reading=Reading(
            time="time", id=("sample",), targets=columns[:1], past_covariates=columns[1:],
            freq=FREQ, seasons=(1,), panel=False, timezone="UTC",
        ),
        series=series,
        targets=columns[:1],
        features="MS",
        main_target=columns[0],
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
    shortest = 2 * SHORTEST if rest == ["64pairs"] else SHORTEST
    if int(length) < shortest:
        raise DataError(
            f"{name} cannot be generated: expected samples of at least {shortest} steps."
        )
    if kind == "recall":
        pairs = 64 if rest == ["64pairs"] else 16
        return recall(name, int(length), hops=1 + (rest == ["2hops"]), pairs=pairs)
    return phase(name, int(length), next(drift for drift in get_args(Drift) if drift in rest))
