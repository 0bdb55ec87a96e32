"""The output of commands: results on stdout and in files, everything else on stderr."""

import json
import sys
from pathlib import Path
from typing import Any

from forecaster.base.errors import StorageError, UsageError
from forecaster.base.spelling import in_shell

TABLES, PICTURES = (".csv", ".parquet"), (".png", ".svg")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def command() -> str:
    return in_shell(["forecaster", *sys.argv[1:]])


def nothing(text: object) -> None:
    pass


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))


def row(name: str, text: str) -> None:
    print(f"{name:<14}{text}")


def print_pages(name: str, pages: str) -> None:
    """Print the command to type and, on the next line, the address to open; nothing if empty."""
    if pages:
        print(f"{name:<9}" + pages.replace("\n", f"\n{'open':<9}"))


def check_ending(option: str, file: Path | None, *endings: str) -> None:
    """Raise UsageError for a file in another format than those that can be written."""
    if file and file.suffix not in endings:
        known = " or ".join(f"FILE{ending}" for ending in endings)
        raise UsageError(f"--{option}: expected {known}, got {file}")


def write(frame: Any, output: Path) -> None:
    try:
        if output.suffix == ".parquet":
            frame.to_parquet(output, index=False)
        else:
            frame.to_csv(output, index=False)
    except OSError as error:
        raise StorageError(f"{output} could not be written: {error}") from error


def draw(figure: Any, file: Path) -> None:
    check_ending("picture", file, *PICTURES)
    try:
        figure.savefig(file)
    except OSError as error:
        raise StorageError(f"{file} could not be written: {error}") from error
