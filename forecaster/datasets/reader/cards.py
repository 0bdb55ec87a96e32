"""A data card as a reading: it states what the reader must find in other files."""

from dataclasses import replace
from pathlib import Path

from forecaster.base.errors import UsageError
from forecaster.base.names import did_you_mean
from forecaster.datasets.card import Card
from forecaster.datasets.dataset import Dataset, Features
from forecaster.datasets.fetch import locate
from forecaster.datasets.reader.files import open_table
from forecaster.datasets.reader.roles import check_roles
from forecaster.datasets.reader.rows import read_table
from forecaster.datasets.reading import NOTHING_SAID, Reading


def read_card(
    card: Card,
    path: Path | None = None,
    choice: Reading = NOTHING_SAID,
    features: Features | None = None,
) -> Dataset:
    """Read the data set of `card`, from `path` or from where `fetch.locate` finds it.

    All its columns are read and checked; `choice` and `features` choose among them. By default all
    columns are forecast from all or, if the card has future covariates, the targets with these.
    Features M and S leave the covariates out, and `choice` may give them another role. Raises
    UsageError for a column that does not exist or has two roles, DataError for a file that does not
    fit the card.
    """
    named = [*choice.targets, *choice.past_covariates, *choice.future_covariates]
    for name in named:
        if name not in card.columns:
            hint = did_you_mean(name, card.columns)
            raise UsageError(
                f"{card.name} has no column '{name}'.{hint} It has {', '.join(card.columns)}."
            )
    check_roles(named)
    file = locate(card, path)
    reading = replace(card_reading(card, file), missing=choice.missing)
    if choice.policy != "error" and reading.policy == "error":
        reading = replace(reading, policy=choice.policy)
    dataset = read_table(open_table(str(file), reading), reading, card.name)
    series, ahead = dataset.series, choice.future_covariates
    roles = choice.targets or choice.past_covariates or card.future_covariates
    features = features or ("MS" if roles else "M")
    if features == "MS" and not ahead:
        taken = (*choice.targets, *choice.past_covariates)
        ahead = tuple(name for name in card.future_covariates if name not in taken)
    others = tuple(name for name in card.columns if name not in ahead)
    targets = others if features == "M" else choice.targets or card.targets or (card.target,)
    read = {
        "M": others, "S": targets, "MS": (*targets, *(choice.past_covariates or others)),
    }[features]  # fmt: skip
    columns = tuple(name for name in others if name in read) if features == "MS" else read
    return replace(
        dataset,
        series=series.with_known(columns, ahead),
        whole=series,
        targets=targets,
        features=features,
        main_target=card.target if card.target in targets else targets[0],
        split=card.split,
    )


def card_reading(card: Card, file: Path) -> Reading:
    """How the file of a card is read; complete, so that the reader need not find anything."""
    bare = card.source_of(file).bare
    return Reading(
        time=card.time,
        targets=card.columns,
        freq=card.freq,
        seasons=card.seasons,
        panel=False,
        policy="rows" if card.irregular else "error",
        timezone=card.timezone,
        header=() if bare is None or bare.header else bare.columns or card.columns,
        first=None if bare is None else bare.first.isoformat(),
    )
