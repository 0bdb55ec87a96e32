"""Content negotiation: which media type a client prefers (RFC 9110, section 12.5.1)."""

from collections.abc import Sequence
from re import fullmatch

JSON, CSV = "application/json", "text/csv"


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The media type of `offered` that the header Accept prefers. Among equals, the one that it
    names most specifically wins, then the first. A client that accepts none of them gets the first:
    an answer in an unexpected form is more useful than a refusal."""
    qualities = dict(map(_quality, accept.lower().split(",")))

    def rank(media: str) -> tuple[float, int]:
        names = ("*/*", media.partition("/")[0] + "/*", media)
        found = [(place, qualities[name]) for place, name in enumerate(names) if name in qualities]
        place, quality = max(found, default=(0, 0.0))
        return quality, place if quality else 0

    return max(offered, key=rank)


def _quality(media_range: str) -> tuple[str, float]:
    """The media of one part of the header, and how much the client wants them, from 0 to 1."""
    name, *parameters = (part.strip() for part in media_range.split(";"))
    given = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    return name, float(given) if fullmatch(r"[01](\.\d{0,3})?", given) else 0.0
