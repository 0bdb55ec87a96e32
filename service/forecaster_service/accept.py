"""Content negotiation: which media type a client prefers (RFC 9110, section 12.5.1)."""

from collections.abc import Sequence
from re import fullmatch

JSON, CSV = "application/json", "text/csv"


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The media type of `offered` that the header Accept prefers. Among equals, the one that it
    names most specifically wins, then the first. A client that accepts none of them gets the first:
    an answer in an unexpected form is more useful than a refusal."""
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
