"""Features of a step that are known ahead of time, in addition to its calendar."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forecaster.base.errors import DataError
from forecaster.datasets.dataset import Series
from forecaster.datasets.scaling import Scaler

MOST_WORDS = 50
"""The most different words of an attribute; each becomes a feature."""


@dataclass(frozen=True)
class Attribute:
    """A static attribute: a number, standardised over the items, or one of several words."""

    name: str
    words: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def fit(cls, name: str, values: NDArray[Any]) -> Self:
        """Fit an attribute to its values (S,) in the items. Raises DataError for too many words."""
        if values.dtype.kind in "iuf":
            return cls(name, mean=float(values.mean()), std=float(values.std()) or 1.0)
        words = tuple(sorted({str(value) for value in values}))
        if len(words) > MOST_WORDS:
            raise DataError(
                f"the static attribute '{name}' has {len(words)} different words, more than "
                f"{MOST_WORDS}: leave it out, or group them"
            )
        return cls(name, words)

    @property
    def width(self) -> int:
        """The number of features that it becomes."""
        return len(self.words) or 1

    def encode(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float32]:
        """Features (S, width). Raises DataError for an unknown word or a non-number.

        A word is known if an item had it in `fit`.
        """
        if self.words:
            # as a file writes them: 7 for the number 7.0
            words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            unknown = [word for word in words if word not in self.words]
            if unknown:
                raise DataError(
                    f"static attribute '{self.name}': '{unknown[0]:.64}' is none of those that the "
                    f"model knows: {', '.join(self.words)}"
                )
            places = [self.words.index(word) for word in words]
            return np.eye(self.width, dtype=np.float32)[places]
        try:
            numbers = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array([np.nan])
        with np.errstate(over="ignore"):
            scaled = ((numbers - self.mean) / self.std).astype(np.float32)
        if not np.isfinite(scaled).all():
            raise DataError(
                f"static attribute '{self.name}': expected a number that stays finite when scaled"
            )
        return scaled[:, None]


@dataclass(frozen=True)
class Term:
    """max(x - knot, 0), or x without a knot, where x is a covariate or, with a half-life in steps,
    its weighted mean over the last `memory` steps."""

    covariate: int
    half_life: float = 0.0
    memory: int = 1
    knot: float | None = None


Terms = tuple[Term, ...]


@dataclass(frozen=True)
class Effects:
    """The effects of covariates on the targets; both are scaled.

    `weights` (terms, targets) belong to `terms`; `low` and `high` are the training range of each
    covariate, `determined` says whether the training rows tell what it does.
    """

    terms: tuple[Term, ...]
    weights: tuple[tuple[float, ...], ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    determined: tuple[bool, ...]

    @property
    def unused(self) -> Self:
        """The same effects, none of which is taken out of the targets."""
        return replace(self, terms=(), weights=())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """What `to_dict` gave, also after JSON."""
        terms = tuple(Term(**term) for term in state["terms"])
        weights = state["weights"]
        if len(weights) != len(terms):
            raise ValueError(f"expected a row of weights for each of {len(terms)} terms")
        low, high, determined = (tuple(state[name]) for name in ("low", "high", "determined"))
        return cls(terms, tuples(weights), low, high, determined)


@dataclass(frozen=True)
class KnownInputs:
    """The inputs of a model that are known ahead of time, in addition to the calendar: future
    covariates, with their scaler, and static attributes.

    `low` and `high` are the least and the greatest training value of each covariate, in units;
    `effects` is what the covariates do to the targets, if that was estimated.
    """

    columns: tuple[str, ...] = ()
    scaler: Scaler | None = None
    attributes: tuple[Attribute, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    effects: Effects | None = None

    @classmethod
    def fit(cls, series: Series, rows: NDArray[np.bool_] | slice) -> Self:
        """Fit to the covariates over the training `rows` and to the attributes of all items."""
        columns = series.known_columns
        values = np.empty((1, 0)) if series.known is None else series.known[rows]
        return cls(
            columns,
            Scaler.fit(values, columns) if columns else None,
            tuple(Attribute.fit(name, attribute) for name, attribute in series.static.items()),
            tuple(values.min(axis=0).tolist()),
            tuple(values.max(axis=0).tolist()),
        )

    @property
    def shifting(self) -> Effects | None:
        """The effects, if any of them is taken out of the targets and added to the forecast."""
        return self.effects if self.effects and self.effects.terms else None

    @property
    def unclear(self) -> tuple[str, ...]:
        """The covariates whose effect the training rows do not determine."""
        columns = zip(self.columns, self.effects.determined, strict=True) if self.effects else ()
        return tuple(name for name, determined in columns if not determined)

    @property
    def flags(self) -> tuple[str, ...]:
        """The covariates that are on or off: of 0 and 1 alone, the variance is mean (1 - mean)."""
        moments = (self.scaler.mean, self.scaler.std) if self.scaler and self.low else ((), ())
        facts = zip(self.columns, self.low, self.high, *moments, strict=False)
        return tuple(
            name for name, low, high, mean, std in facts
            if (low, high) == (0, 1) and math.isclose(std**2, mean * (1 - mean), rel_tol=1e-5)
        )  # fmt: skip

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.columns) + sum(attribute.width for attribute in self.attributes)

    def scaled(self, values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Scale covariates (..., K) given in units."""
        assert self.scaler is not None
        with np.errstate(over="ignore"):
            return self.scaler.transform(values).astype(np.float32)

    def encode(self, static: Mapping[str, Sequence[Any] | NDArray[Any]]) -> NDArray[np.float32]:
        """The static features (S, J). Raises DataError for a missing or unknown attribute."""
        for attribute in self.attributes:
            if attribute.name not in static:
                raise DataError(f"the static attribute '{attribute.name}' is missing")
        parts = [attribute.encode(static[attribute.name]) for attribute in self.attributes]
        return np.concatenate(parts, axis=1)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        scaler = self.scaler and self.scaler.to_dict()
        return {**asdict(replace(self, scaler=None)), "scaler": scaler}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """What `to_dict` gave."""
        return cls(
            tuple(state["columns"]),
            Scaler.from_dict(state["scaler"]) if state["scaler"] else None,
            tuple(Attribute(**{**a, "words": tuple(a["words"])}) for a in state["attributes"]),
            tuple(state["low"]),
            tuple(state["high"]),
            Effects.from_dict(state["effects"]) if state.get("effects") else None,
        )


def tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value
