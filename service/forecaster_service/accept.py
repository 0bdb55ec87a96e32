"""Which of several forms of an answer a client wants (RFC 9110, section 12.5.1)."""

from collections.abc import Sequence
from re import fullmatch

JSON, CSV = "application/json", "text/csv"


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The media type of `offered` that the header Accept prefers, of equal ones that which it names
    more closely, else the first. What wants none of them gets the first all the same: an answer
    in another form than one hoped for says more than a refusal."""
    ranges = [each.split(";") for each in accept.lower().split(",")]

    def rank(media: str) -> tuple[float, int]:
        whole, group = media, media.partition("/")[0] + "/*"
        closeness = {"*/*": 1, group: 2, whole: 3}
        found = [
            (closeness[name.strip()], _quality(parameters))
            for name, *parameters in ranges
            if name.strip() in closeness
        ]
        near, quality = max(found, default=(0, 0.0), key=lambda each: each[0])
        return quality, near if quality else 0

    return max(offered, key=rank)


def _quality(parameters: Sequence[str]) -> float:
    for each in parameters:
        name, _, value = each.strip().partition("=")
        if name.strip() == "q":
            return float(value) if fullmatch(r"[01](\.\d{0,3})?", value.strip()) else 0.0
    return 1.0
