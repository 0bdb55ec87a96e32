"""Find the file of a data set, or download it.

The places, in this order: the given path, $FORECASTER_DATA, data/raw, the user's cache, the Python
package that contains it, the network. Only a given path is used without a check; every other file
must have the checksum of the card, so that a result is always about the data set that it names.
"""

import hashlib
import importlib.resources
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from forecaster.base import extras, installation
from forecaster.base.errors import ConfigError, DataError, UnavailableError
from forecaster.datasets.card import Card, Source

CONNECT_SECONDS, READ_SECONDS = 5, 60


def locate(card: Card, path: Path | None = None) -> Path:
    """The file that holds the data set of `card`.

    Raises UnavailableError naming every place searched, DataError for a file that was found, not
    given, and lacks the card's checksum, ConfigError for a wrong $FORECASTER_DATA.
    """
    if path is not None:
        return _given(path.expanduser())
    looked = [] if os.environ.get("FORECASTER_DATA") else ["$FORECASTER_DATA: not set"]
    for place, folder in _folders():
        looked.append(f"{place}: {folder}")
        for source, file in _candidates(folder, card):
            return _verified(file, source, card)
    cached, reason = _cached(card)
    looked.append(f"the cache: {_cache()}{reason}")
    if cached:
        return cached
    for source in card.sources:
        if source.package:
            package = source.package
            try:
                packaged = Path(str(importlib.resources.files(package.module))) / package.file
            except ModuleNotFoundError:
                looked.append(f"the Python package {package.pip}: not installed")
            else:
                return _verified(packaged, source, card)
    for source in card.sources:
        downloaded, reasons = _download(source)
        if downloaded:
            return downloaded
        looked += reasons
    raise UnavailableError(_unavailable(card, looked))


def _given(path: Path) -> Path:
    if path.is_file():
        return path
    what = "is a folder; name the file in it" if path.is_dir() else "does not exist"
    raise UnavailableError(f"the data file {path} {what}.")


def _folders() -> Iterator[tuple[str, Path]]:
    named = os.environ.get("FORECASTER_DATA")
    if named:
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise ConfigError(
                f"FORECASTER_DATA={named}: no such folder. Name the folder that holds the data "
                "files, or unset the variable."
            )
        yield "$FORECASTER_DATA", folder
    here = Path("data/raw").resolve()
    yield "data/raw", here
    checkout = installation.CHECKOUT / "data/raw"
    if checkout.is_dir() and checkout != here:
        yield "data/raw of the checkout", checkout


def _candidates(folder: Path, card: Card) -> Iterator[tuple[Source, Path]]:
    for source in card.sources:
        for file in source.files:
            if (folder / file).is_file():
                yield source, folder / file


def _mismatch(file: Path, source: Source) -> str:
    """How the checksums of `file` differ from those of its source; "" if they agree."""
    head = b"blob %d\0" % file.stat().st_size
    for name, wanted, digest in (
        ("SHA-256", source.sha256, hashlib.sha256()),
        ("git blob id", source.git_blob, hashlib.sha1(head, usedforsecurity=False)),
    ):
        if wanted is not None:
            with file.open("rb") as stream:
                got = hashlib.file_digest(stream, digest.copy).hexdigest()
            if got != wanted:
                return f"expected {name} {wanted}, got {got}"
    return ""


def _verified(file: Path, source: Source, card: Card) -> Path:
    if mismatch := _mismatch(file, source):
        raise DataError(
            f"{file} is not the {card.name} that its card describes: {mismatch}. Remove the file, "
            f"or name it to use it anyway: --set data.path={file}"
        )
    return file


def _cache() -> Path:
    return installation.cache() / "data"


def _cached(card: Card) -> tuple[Path | None, str]:
    """The verified file in the cache, or why there is none. A damaged file is downloaded again."""
    damaged = ""
    for source, file in _candidates(_cache(), card):
        if not _mismatch(file, source):
            return file, ""
        damaged = f" ({file} does not have the card's checksum)"
    return None, damaged


def _download(source: Source) -> tuple[Path | None, list[str]]:
    """Fetch the file from the first address that has it; or return why each address failed."""
    if not source.urls:
        return None, []
    import pooch
    import requests
    from filelock import FileLock

    folder = _cache()
    target = folder / source.files[-1]
    part = target.with_name(f".{target.name}.part")
    downloader = pooch.HTTPDownloader(
        timeout=(CONNECT_SECONDS, READ_SECONDS), progressbar=sys.stderr.isatty()
    )
    reasons: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")):
            if target.is_file() and not _mismatch(target, source):
                return target, []  # another process has finished it meanwhile
            for url in source.urls:
                try:
                    downloader(url, str(part), None)
                    mismatch = _mismatch(part, source)
                    if not mismatch:
                        part.replace(target)
                        return target, []
                    reasons.append(f"{url}: it returned a different file: {mismatch}")
                except requests.RequestException as error:
                    status = getattr(error.response, "status_code", "")
                    why = f"HTTP status {status}" if status else type(error).__name__
                    reasons.append(f"{url}: {why}")
                finally:
                    part.unlink(missing_ok=True)
    except OSError as error:
        reasons.append(f"{folder} cannot be written: {error.strerror or error}")
    return None, reasons


def _unavailable(card: Card, looked: list[str]) -> str:
    names = " or ".join(source.file_name for source in card.sources)
    ways = [
        *(f"pip install {extras.ours(s.package.extra)}" for s in card.sources if s.package),
        *(f"get {s.file_name} from {s.page}" for s in card.sources if s.page),
        f"put {names} into data/raw",
        "set FORECASTER_DATA to the folder that holds it",
        "name the file with --set data.path=FILE",
    ]
    places = "".join(f"\n  - {place}" for place in looked)
    help_ = "; or ".join(ways)
    return (
        f"{card.name} is not here and cannot be downloaded. Looked in:{places}\nTo get it: {help_}."
    )
