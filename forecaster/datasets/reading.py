"""How a file is read: what is said about it, and what was found where nothing was said."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Policy: TypeAlias = Literal["error", "sort", "resample"]


@dataclass(frozen=True)
class Reading:
    """What is said about a file; what is not said is inferred.

    `time` and `id` name columns: the stamps, and the series that a row of a long file belongs to,
    told by one column or by several together.
    `targets` are to be predicted; `past_covariates` are known up to now, `future_covariates` for
    the steps to come as well; `static` attributes belong to a series as a whole. With `panel`
    every target column of a wide file becomes a series of its own. `policy` tells what becomes of
    rows that are not one step apart: `error`; `sort` orders them, drops identical repetitions and
    leaves gaps missing; `resample` also averages rows that share a step.
    """

    time: str | None = None
    id: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    freq: str | None = None
    seasons: tuple[int, ...] = ()
    panel: bool | None = None
    policy: Policy = "error"
