"""Notices about what may surprise in a forecast: a code for programs, and a text for people."""

from enum import StrEnum
from typing import Literal, TypeAlias

from forecaster.base.errors import DataError


class NoticeCode(StrEnum):
    """The subject of a notice; programs decide by it, never by the text."""

    SHORT_HISTORY = "short_history"
    """The history is shorter than the model needs: parts that read more were left out."""
    LEFT_OUT = "left_out"
    """A series of a panel is too short for any part of the model: it has no forecast."""
    HISTORY_CUT = "history_cut"
    """The history is longer than the look-back: the model read its newest part."""
    MISSING_MASKED = "missing_masked"
    """Values were missing in the look-back: the model did not see those steps."""
    OWN_SCALE = "own_scale"
    """The series was not in the training data: its own history scales it."""
    NEW_SERIES = "new_series"
    """The series was not in the training data and has few rows: those of training stand in."""
    UNFINISHED = "unfinished"
    """The last value may be that of a day, week or month which is not over."""
    LOST_TO_FLOOR = "lost_to_floor"
    """On the test split the model was worse than its best floor."""
    COVERAGE = "coverage"
    """The coverage of a requested band on the test split differs from its nominal level."""
    FIRST_STEP = "first_step"
    """The forecast begins further from the last value than training rows change in a step."""
    UNLIKE_TRAINING = "unlike_training"
    """The history is unlike those of the training rows: its level, scale or gaps."""
    UNLIKE_COVARIATES = "unlike_covariates"
    """A covariate known ahead is far outside its range in the training rows."""
    CUT_PERIOD = "cut_period"
    """The forecast holds only a part of a period: it has no total."""
    UNCLEAR_EFFECT = "unclear_effect"
    """The training rows do not determine what a covariate known ahead does."""


REMARKS = frozenset(
    {NoticeCode.SHORT_HISTORY, NoticeCode.LOST_TO_FLOOR, NoticeCode.COVERAGE,
     NoticeCode.FIRST_STEP, NoticeCode.UNLIKE_TRAINING, NoticeCode.UNLIKE_COVARIATES,
     NoticeCode.UNCLEAR_EFFECT, NoticeCode.UNFINISHED, NoticeCode.NEW_SERIES}
)  # fmt: skip
"""The codes for unusual features of a finished forecast (forecaster.forecast.unusual)."""
ShortHistory: TypeAlias = Literal["refuse", "drop"]
"""What happens to a history that is shorter than a model needs: it is refused, or the parts that
read more are dropped, provided that every step keeps at least one. By default, parts are dropped
for the series of a panel, and a single history is refused."""


Period: TypeAlias = Literal["day", "week", "month", "horizon"]
"""What a total is over: a calendar period, weeks from Monday, or all steps of the forecast."""


class Notice(str):
    """A sentence for people, with its code, and the place of the series that it is about, None for
    all of them."""

    code: NoticeCode
    place: int | None

    def __new__(cls, code: NoticeCode, text: str, place: int | None = None) -> "Notice":
        notice = super().__new__(cls, text)
        notice.code, notice.place = code, place
        return notice

    def moved(self, steps: int) -> "Notice":
        """The same at another place."""
        return self if self.place is None else Notice(self.code, self, self.place + steps)


OWN_SCALE = Notice(
    NoticeCode.OWN_SCALE, "it is scaled by its own history: no series in training had its name"
)


def refuse_left_out(sentence: str) -> None:
    """Raise DataError for a notice that series are left out: an answer may have no place for it."""
    if getattr(sentence, "code", None) is NoticeCode.LEFT_OUT:
        raise DataError(f"some series would be {sentence}; ask without them, or with more rows")
