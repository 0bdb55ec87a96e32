"""The data that a configuration names: a file, a card, a frame, or generated."""

from pathlib import Path

import pandas as pd

from forecaster.base.errors import UnavailableError, UsageError
from forecaster.base.progress import Say
from forecaster.config.run_config import DataConfig, Loaded, RunConfig
from forecaster.datasets.card import is_generated, load_card
from forecaster.datasets.dataset import Dataset
from forecaster.datasets.reading import Reading, Stamps, Text

FRAME = "./frame"
"""The name of data that come from a frame in Python, not from a file."""


def find_data(loaded: Loaded, say: Say) -> tuple[RunConfig, Dataset]:
    """The data of the configuration, or its `otherwise` if the user named no data."""
    config, data = loaded.config, loaded.config.data
    try:
        dataset = open_data(data)
    except UnavailableError as error:
        if data.is_file or not data.otherwise or loaded.named("data.name") or data.path:
            raise
        say(
            f"{error}\nThis run uses {data.otherwise} instead of {data.name}: no data set was "
            f"named, and {loaded.origins['data.otherwise']} allows it."
        )
        data = data.model_copy(update={"name": data.otherwise})
        dataset = open_data(data)
    for sentence in dataset.said:
        say(sentence)
    name, path = dataset.name, data.path and data.path.resolve()
    if data.is_file:
        name = str(Path(data.name).expanduser().absolute())
    settled = data.model_copy(update={"name": name, "path": path})  # valid from any folder
    return config.model_copy(update={"data": settled}), dataset


def take_frame(loaded: Loaded, frame: pd.DataFrame, say: Say) -> tuple[RunConfig, Dataset]:
    """The data in a frame, read as those of a file; the configuration names FRAME."""
    from forecaster.datasets.reader import read_frame

    dataset = read_frame(frame, settings_of(loaded.config.data), where="the frame")
    for sentence in dataset.said:
        say(sentence)
    return loaded.config, dataset


def open_data(data: DataConfig, reading: Reading | None = None) -> Dataset:
    """The data that a configuration names, read by the `reading` of a bundle if given."""
    from forecaster.datasets.generated import generate
    from forecaster.datasets.reader import read, read_card

    settings = settings_of(data)
    if data.name == FRAME:
        raise UsageError("the model was fitted in Python to a frame, which is in no file")
    if data.is_file:
        return read(data.name, reading or settings)
    if is_generated(data.name):
        return generate(data.name)
    card = load_card(data.name)
    return read_card(card, data.path, settings, data.features)


def settings_of(data: DataConfig) -> Reading:
    """The settings of a configuration for reading its file."""
    return Reading(
        time=data.time,
        stamps=None if data.stamps is None else Stamps(data.stamps),
        id=tuple(data.ids),
        targets=tuple(data.targets),
        past_covariates=tuple(data.past_covariates),
        future_covariates=tuple(data.future_covariates),
        static=tuple(data.static),
        categorical=tuple(data.categorical),
        sheet=data.sheet or "",
        holidays=data.holidays or "",
        drop_last=data.drop_last,
        freq=data.freq,
        seasons=tuple(data.seasons),
        panel=data.panel,
        policy=data.policy,
        missing=tuple(map(str, data.missing)),
        fill=data.filled,
        text=Text(
            separator={"tab": "\t"}.get(data.separator or "", data.separator or ""),
            decimal=data.decimal or "",
        ),
    )
