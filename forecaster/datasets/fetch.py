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
"""So long an address may take to answer, and to go on; then the next one is tried."""


def locate(card: Card, path: Path | None = None) -> Path:
    """The file that holds the data set of `card`.

    Raises UnavailableError naming every place searched, DataError for a file that was found, not
    given, and lacks the card's checksum, ConfigError for a wrong $FORECASTER_DATA.
    """
    if path is not None:
        if (path := path.expanduser()).is_file():
            return path
        raise UnavailableError(f"the data file {path} does not exist, or is none.")
    for folder in _folders():
        for source, file in _candidates(folder, card):
            return _verified(file, source, card)
    for source, file in _candidates(_cache(), card):
        if not _mismatch(file, source):  # a damaged file is downloaded again
            return file
    for source in card.sources:
        if source.package and (root := _package(source.package.module)):
            return _verified(root / source.package.file, source, card)
    failed: list[str] = []
    for source in card.sources:
        if downloaded := _download(source, failed):
            return downloaded
    raise UnavailableError(_unavailable(card, failed))


def _folders() -> list[Path]:
    """The folders of data files, without the cache."""
    named = os.environ.get("FORECASTER_DATA")
    if named and not Path(named).expanduser().is_dir():
        raise ConfigError(
            f"FORECASTER_DATA={named}: no such folder. Name the folder that holds the data "
            "files, or unset the variable."
        )
    places = [Path("data/raw").resolve(), installation.CHECKOUT / "data/raw"]
    return [*([Path(named).expanduser()] if named else []), *places]


def _package(module: str) -> Path | None:
    """The folder of a Python package, if it is installed."""
    try:
        return Path(str(importlib.resources.files(module)))
    except ModuleNotFoundError:
        return None


def _candidates(folder: Path, card: Card) -> Iterator[tuple[Source, Path]]:
    for source in card.sources:
        for file in source.files:
            if (folder / file).is_file():
                yield source, folder / file


def _mismatch(file: Path, source: Source) -> str:
    """How the checksums of `file` differ from those of its source; "" if they agree."""
    head = b"blob %d\0" % file.stat().st_size
    for name, expected, digest in (
        ("SHA-256", source.sha256, hashlib.sha256()),
        ("git blob id", source.git_blob, hashlib.sha1(head, usedforsecurity=False)),
    ):
        if expected is not None:
            with file.open("rb") as stream:
                got = hashlib.file_digest(stream, digest.copy).hexdigest()
            if got != expected:
                return f"expected {name} {expected}, got {got}"
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


def _download(source: Source, failed: list[str]) -> Path | None:
    """Fetch the file from the first address that has it; `failed` gets why an address has not."""
    if not source.urls:
        return None
    import pooch
    import requests
    from filelock import FileLock

    folder = _cache()
    target = folder / source.files[-1]
    part = target.with_name(f".{target.name}.part")
    downloader = pooch.HTTPDownloader(
        timeout=(CONNECT_SECONDS, READ_SECONDS), progressbar=sys.stderr.isatty()
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")):
            if target.is_file() and not _mismatch(target, source):
                return target  # another process has finished it meanwhile
            for url in source.urls:
                try:
                    downloader(url, str(part), None)
                    mismatch = _mismatch(part, source)
                    if not mismatch:
                        part.replace(target)
                        return target
                    failed.append(f"{url}: it returned a different file: {mismatch}")
                except requests.RequestException as error:
                    status = getattr(error.response, "status_code", "")
                    why = f"HTTP status {status}" if status else type(error).__name__
                    failed.append(f"{url}: {why}")
                finally:
                    part.unlink(missing_ok=True)
    except OSError as error:
        failed.append(f"{folder} cannot be written: {error.strerror or error}")
    return None


def _unavailable(card: Card, failed: list[str]) -> str:
    names = " or ".join(source.file_name for source in card.sources)
    ways = [
        *(f"pip install {extras.ours(s.package.extra)}" for s in card.sources if s.package),
        *(f"get {s.file_name} from {s.page}" for s in card.sources if s.page),
        f"put {names} into data/raw or the folder of FORECASTER_DATA",
        "name the file with --set data.path=FILE",
    ]
    looked = ", ".join(map(str, [*_folders(), _cache()]))
    reasons = "".join(f"\n  - {reason}" for reason in failed)
    return (
        f"{card.name} is not in {looked}, and cannot be downloaded.{reasons}\n"
        f"To get it: {'; or '.join(ways)}."
    )
