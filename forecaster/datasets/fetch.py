"""Find the file of a data set, or download it.

The order: the path given, $FORECASTER_DATA, data/raw, the user's cache, the Python package that
carries it, the network. Only the path given is taken unseen; everything else must have the
checksum of the card, so that a figure is always about the data it names.
"""

import hashlib
import importlib.resources
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from forecaster import resources
from forecaster.datasets.card import Card
from forecaster.errors import ConfigError, DataError, UnavailableError

CONNECT_SECONDS, READ_SECONDS = 5, 60


def locate(card: Card, path: Path | None = None) -> Path:
    """The file that holds the data set of `card`.

    Raises UnavailableError naming every place looked in, DataError for a file found without
    being named whose checksum is not the card's, ConfigError for a wrong $FORECASTER_DATA.
    """
    if path is not None:
        return _given(path.expanduser())
    looked = [] if os.environ.get("FORECASTER_DATA") else ["$FORECASTER_DATA: not set"]
    for place, folder in _folders():
        looked.append(f"{place}: {folder}")
        for file in _candidates(folder, card):
            return _verified(file, card)
    cached, reason = _cached(card)
    looked.append(f"the cache: {_cache()}{reason}")
    if cached:
        return cached
    if card.package:
        try:
            packaged = Path(str(importlib.resources.files(card.package.module))) / card.package.file
        except ModuleNotFoundError:
            looked.append(f"the Python package {card.package.pip}: not installed")
        else:
            return _verified(packaged, card)
    downloaded, reasons = _download(card)
    if downloaded:
        return downloaded
    raise UnavailableError(_unavailable(card, looked + reasons))


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
    checkout = resources.CHECKOUT / "data/raw"
    if checkout.is_dir() and checkout != here:
        yield "data/raw of the checkout", checkout


def _candidates(folder: Path, card: Card) -> Iterator[Path]:
    return (folder / file for file in card.files if (folder / file).is_file())


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verified(file: Path, card: Card) -> Path:
    got = _sha256(file)
    if got != card.sha256:
        raise DataError(
            f"{file} is not the {card.name} that its card describes: expected SHA-256 "
            f"{card.sha256}, got {got}. Remove the file, or name it to use it as it is: "
            f"--set data.path={file}"
        )
    return file


def _cache() -> Path:
    return resources.cache() / "data"


def _cached(card: Card) -> tuple[Path | None, str]:
    """The verified file in the cache, or why there is none. A damaged one is downloaded anew."""
    damaged = ""
    for file in _candidates(_cache(), card):
        if _sha256(file) == card.sha256:
            return file, ""
        damaged = f" ({file} does not have the card's SHA-256)"
    return None, damaged


def _download(card: Card) -> tuple[Path | None, list[str]]:
    """The file fetched from the first address that has it, or why each did not."""
    if not card.urls:
        return None, []
    import pooch
    import requests
    from filelock import FileLock

    folder, name = _cache(), card.files[-1]
    target = folder / name
    downloader = pooch.HTTPDownloader(
        timeout=(CONNECT_SECONDS, READ_SECONDS), progressbar=sys.stderr.isatty()
    )
    reasons: list[str] = []
    unreachable: set[str] = set()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")):
            for url in card.urls:
                host = urlsplit(url).netloc
                if host in unreachable:
                    continue
                try:
                    # Returns at once when another process has finished it meanwhile.
                    pooch.retrieve(url, f"sha256:{card.sha256}", name, folder, None, downloader)
                    return target, []
                except (requests.RequestException, ValueError) as error:
                    if isinstance(error, requests.ConnectionError):
                        unreachable.add(host)
                    reasons.append(f"{url}: {_short(error)}")
    except OSError as error:
        reasons.append(f"{folder} cannot be written: {error.strerror or error}")
    return None, reasons


def _short(error: Exception) -> str:
    import requests

    match error:
        case requests.HTTPError(response=requests.Response(status_code=status)):
            return f"HTTP status {status}"
        case requests.ConnectTimeout():
            return f"no connection within {CONNECT_SECONDS} s"
        case requests.ReadTimeout():
            return f"no answer within {READ_SECONDS} s"
        case requests.ConnectionError():
            return "no connection"
        case requests.RequestException():
            return f"broken off ({type(error).__name__})"
        case _:
            return "what came does not have the card's SHA-256"


def _unavailable(card: Card, looked: list[str]) -> str:
    ways = [
        f"put {card.files[-1]} into data/raw",
        "set FORECASTER_DATA to the folder that holds it",
        "name the file with --set data.path=FILE",
    ]
    if card.package:
        ways.insert(0, f"pip install 'forecaster[{card.package.extra}]'")
    places = "".join(f"\n  - {place}" for place in looked)
    return f"{card.name} is not to be had. Looked in:{places}\nWays out: {'; or '.join(ways)}."
