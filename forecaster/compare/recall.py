"""What each type can look up by construction, with one layer and no positions in the tokens.

`tests/compare/test_recall.py` checks each sentence against the derivative of the last output with
respect to the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Reach = Literal["all", "chosen", "rule", "blind"]


@dataclass(frozen=True)
class Limit:
    """How a question reaches values: `all` of them, weighed by content; those `chosen` by content;
    those given by a `rule` on positions; or `blind`, if the question does not choose."""

    reach: Reach
    text: str


LIMITS: Mapping[str, Limit] = {
    "full": Limit("all", "weighs every step by its content"),
    "prob": Limit(
        "all",
        "a question attends only where it is among the 5 ln L that a sample of 5 ln L keys finds "
        "most selective, and a sample seldom holds the one key that matters; others get the mean",
    ),
    "logsparse": Limit("rule", "about 3 ln L steps at fixed distances; a value elsewhere is lost"),
    "lsh": Limit(
        "chosen", "the steps that fall into the question's bucket, among them an equal motif"
    ),
    "strided": Limit("rule", "about 2 sqrt(L) steps at fixed distances; others are lost"),
    "fixed": Limit("rule", "the own block and the summary steps of others; others are lost"),
    "topk": Limit("chosen", "the 8 best of all steps, every score being computed"),
    "single": Limit("all", "weighs every step by its content, but values are the steps themselves"),
    "fastformer": Limit("blind", "one summary of D numbers that all questions share"),
    "gau": Limit("chosen", "every step whose score is above zero; weights fall with 1 / L^2"),
    "flash": Limit(
        "all",
        "the own chunk as gau, all others through one sum of products of keys and values, over L",
    ),
    "diff": Limit("all", "weighs every step by its content, twice"),
    "aft-full": Limit("blind", "keys and positions choose; the question opens or closes features"),
    "aft-local": Limit("blind", "as aft-full, with positions near by alone"),
    "aft-simple": Limit(
        "blind", "one summary of D numbers, of which a question opens or closes each"
    ),
    "aft-conv": Limit("blind", "as aft-simple, with a kernel over the steps near by"),
    "static": Limit("blind", "positions choose, and the values stand at random ones"),
    "mean": Limit("blind", "the mean of all steps"),
    "none": Limit("blind", "nothing"),
}
"""The limits by type, in the order of the tables."""
