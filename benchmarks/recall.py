"""What each type can look up by construction, with one layer and no positions in the tokens.

`tests/study/compare/test_recall.py` checks each sentence against the derivative of the last output
with respect to the values.
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
        "only the 5 ln L questions attend that a sample of 5 ln L keys rates as most selective, "
        "and a sample rarely holds the one key that matters; the others get the mean",
    ),
    "logsparse": Limit("rule", "about 3 ln L steps at fixed distances; a value elsewhere is lost"),
    "lsh": Limit("chosen", "the steps in the question's bucket, which include an equal motif"),
    "strided": Limit("rule", "about 2 sqrt(L) steps at fixed distances; others are lost"),
    "fixed": Limit("rule", "its own block and the summary steps of others; the rest is lost"),
    "topk": Limit("chosen", "the 8 best of all steps, after computing every score"),
    "single": Limit("all", "weighs every step by its content, but values are the steps themselves"),
    "fastformer": Limit("blind", "one summary of D numbers that all questions share"),
    "gau": Limit("chosen", "every step whose score is above zero; weights fall with 1 / L^2"),
    "flash": Limit(
        "all",
        "its own chunk as gau, all others through one sum of products of keys and values, over L",
    ),
    "diff": Limit("all", "weighs every step by its content, twice"),
    "aft-full": Limit("blind", "keys and positions choose; the question opens or closes features"),
    "aft-local": Limit("blind", "as aft-full, but only with nearby positions"),
    "aft-simple": Limit(
        "blind", "one summary of D numbers, each of which a question opens or closes"
    ),
    "aft-conv": Limit("blind", "as aft-simple, with a kernel over nearby steps"),
    "gated": Limit("all", "weighs every step by its content, and may stay silent"),
    "sliding": Limit("rule", "the 127 steps before and after it and the first 4; others are lost"),
    "forgetting": Limit(
        "all", "weighs every step by its content, and less the more was forgotten on the way"
    ),
    "retention": Limit(
        "all", "one sum of products of keys and values, from which 1/32 is lost with each step"
    ),
    "delta": Limit("all", "a memory of E x E numbers for each head, in which keys are replaced"),
    "ssd": Limit("all", "a memory of 64 x D numbers, which the steps themselves let fade"),
    "position-prior": Limit("all", "weighs every step by its content and its place"),
    "static": Limit("blind", "positions choose, but the values are at random ones"),
    "mean": Limit("blind", "the mean of all steps"),
    "none": Limit("blind", "nothing"),
}
"""The limits by type, in the order of the tables."""
