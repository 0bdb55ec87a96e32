"""What a model reads and writes, in the user's names and units; does not import torch."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.base.errors import UsageError
from forecaster.base.spelling import spelled
from forecaster.datasets.calendar import (
    calendar_features,
    calendar_names,
    holiday_feature,
    phase_weights,
)
from forecaster.datasets.known import KnownInputs
from forecaster.datasets.limits import Limit, ends
from forecaster.datasets.reading import Reading, Timezone
from forecaster.datasets.scaling import Scaler

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from forecaster.model import Task


@dataclass(frozen=True)
class Schema:
    """What a model reads and writes, in the user's names and units.

    `reading` describes how the training file was read, and how later ones are read; `scaler`
    belongs to `columns`; `items` are the series of a panel in training, which are columns of the
    file if it is `wide`; `known` describes what else is known about a step ahead of time; `limits`
    are those of the targets, which no forecast passes, () without any.
    """

    columns: tuple[str, ...]
    targets: tuple[str, ...]
    reading: Reading
    scaler: Scaler
    items: tuple[str, ...] = ()
    known: KnownInputs = field(default_factory=KnownInputs)
    holidays: str | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def time(self) -> str:
        return self.reading.time or ""

    @property
    def timezone(self) -> Timezone:
        return self.reading.timezone or "naive"

    @property
    def freq(self) -> str:
        return self.reading.freq or ""

    @property
    def id(self) -> tuple[str, ...]:
        return self.reading.id

    @property
    def wide(self) -> bool:
        return bool(self.reading.panel)

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of a history besides time and id: values, covariates, attributes."""
        attributes = (attribute.name for attribute in self.known.attributes)
        return (*self.columns, *self.known.columns, *attributes)

    @property
    def past_only(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.targets)

    def calendar(self, times: "pd.DatetimeIndex") -> "NDArray[np.float32]":
        """The calendar features (N, F) of N stamps; the last is the holiday flag, if any."""
        features = calendar_features(times, self.freq)
        if self.holidays is None:
            return features
        return np.concatenate([features, holiday_feature(times, self.holidays)], axis=1)

    @property
    def calendar_width(self) -> int:
        """The number of calendar features."""
        return len(calendar_names(self.freq)) + (self.holidays is not None)

    def check_names(self, levels: "Sequence[float]") -> None:
        """Raise UsageError if the quantile of a target at one of the levels would have the name of
        another target."""
        names = set(self.items if self.wide else self.targets)
        for level in levels:
            ending = f" {level}"
            for name in sorted(names):
                if name.endswith(ending) and name.removesuffix(ending) in names:
                    raise UsageError(
                        f"a target and a quantile of '{name.removesuffix(ending)}' would both be "
                        f"called '{name}'; rename the column, or forecast it in a run of its own "
                        f"({spelled('target', name)})"
                    )

    @property
    def target_positions(self) -> tuple[int, ...]:
        return tuple(self.columns.index(name) for name in self.targets)

    @property
    def target_scaler(self) -> Scaler:
        return self.scaler.select(self.target_positions)

    @property
    def ends(self) -> "NDArray[Any]":
        """The limits of the targets, (targets, 2), infinite where there are none."""
        return ends(self.limits or ((None, None),) * len(self.targets))

    def within(
        self, values: "NDArray[Any]", history: "NDArray[Any] | None" = None
    ) -> "NDArray[Any]":
        """Values (..., T, targets, Q) in units, moved into the limits of the targets.

        A limit that the own history (..., P, columns) has passed does not hold.
        """
        if not self.limits:
            return values
        low, high = ends(self.limits).T
        if history is not None:
            seen = history[..., self.target_positions]
            low = np.where((seen < low).any(axis=-2), -np.inf, low)[..., None, :]
            high = np.where((seen > high).any(axis=-2), np.inf, high)[..., None, :]
        return np.asarray(np.clip(values, low[..., None], high[..., None]))

    def task(self, past: int, start: int, horizon: int) -> "Task":
        from forecaster.model import Task

        return Task(
            columns=len(self.columns),
            targets=self.target_positions,
            past=past,
            start=start,
            horizon=horizon,
            calendar=len(calendar_names(self.freq)),
            season=self.reading.seasons[0],
            phase=phase_weights(self.freq, self.reading.seasons[0]),
            covariates=(self.holidays is not None) + self.known.width,
        )

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain JSON types, exactly."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        made = {name: own[name].to_dict() for name in ("reading", "scaler", "known")}
        return {**own, **made}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Schema":
        """The inverse of `to_dict`, also after JSON. Raises ValueError for inconsistent sizes."""
        made = {
            "reading": Reading.from_dict(state["reading"]),
            "scaler": Scaler.from_dict(state["scaler"]),
            "known": KnownInputs.from_dict(state["known"]),
        }
        lists = {key: tuple(value) for key, value in state.items() if isinstance(value, list)}
        limits = tuple((low, high) for low, high in state.get("limits", ()))
        if not all(each is None or type(each) in (int, float) for pair in limits for each in pair):
            raise ValueError(f"expected numbers as limits, got {limits}")
        schema = cls(**{**state, **lists, **made, "limits": limits})
        scaler, reading, count = schema.scaler, schema.reading, len(schema.columns)
        wanted = (len(schema.items), count) if schema.items else (count,)
        if not scaler.mean.shape == scaler.std.shape == wanted:
            raise ValueError(
                f"expected a mean and a deviation {wanted} for {count} columns and "
                f"{len(schema.items)} series, got {scaler.mean.shape} and {scaler.std.shape}"
            )
        if len(schema.limits) not in (0, len(schema.targets)):
            raise ValueError(
                f"expected limits of {len(schema.targets)} targets, got {schema.limits}"
            )
        known = schema.known
        if len(known.low) != len(known.high) or len(known.low) not in (0, len(known.columns)):
            raise ValueError(
                f"expected a range for each of {len(known.columns)} covariates, got "
                f"{len(known.low)} and {len(known.high)} ends"
            )
        if not reading.seasons or min(reading.seasons) < 1:
            raise ValueError(f"expected seasons of 1 step or more, got {reading.seasons}")
        if lost := [name for name in schema.targets if name not in schema.columns]:
            raise ValueError(f"the targets {lost} are not columns")
        return schema
