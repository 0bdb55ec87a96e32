"""What the installation offers: configs, cards, the cache, its commit."""

import os
import re
import subprocess
from pathlib import Path

from forecaster.base.errors import ForecasterError
from forecaster.base.spelling import in_shell

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent
CODE = ":!benchmarks/results"
"""The paths that git is asked about: all except the figures, which benchmarks replace."""
DIRTY = "-dirty"
"""What follows the commit of code with uncommitted changes."""
MANIFEST = "MANIFEST.sha256"
"""The file that makes a folder a bundle; it holds the digest of each other file."""
RUN = "run.json"
"""The file of a run, finished or not, in the folder of its bundle."""
TRACKING = "sqlite:///mlflow.db"
"""MLflow's store in the working directory."""

UI = "http://127.0.0.1:5000"
"""The default address of `mlflow ui`."""
TRAINING = "workflowType=machine_learning"
"""The query that makes MLflow's pages show trained models; by default they show generative ones."""


def is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def no_bundle(folder: Path) -> str:
    if (folder / RUN).is_file():
        name = folder.resolve().name
        return f"{folder} is an unfinished run: forecaster train --resume {name} ends it"
    return f"the folder {folder} holds no bundle (no {MANIFEST})"


def _folder(inside: str, beside: str) -> Path:
    for folder in (PACKAGE / inside, CHECKOUT / beside):
        if folder.is_dir():
            return folder
    raise ForecasterError(
        f"the installation is incomplete: neither {PACKAGE / inside} nor {CHECKOUT / beside} "
        "exists. Install forecaster again."
    )


def configs() -> Path:
    return _folder("_configs", "configs")


def cards() -> Path:
    return _folder("_cards", "data/cards")


def cache() -> Path:
    """The user's cache folder, for downloads ($XDG_CACHE_HOME is honoured)."""
    from platformdirs import user_cache_path

    return user_cache_path("forecaster")


TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")
"""The suffixes of files of rows."""
DOCUMENTS = (".txt", ".txt.gz", ".xlsx")
"""The suffixes of files that may hold rows or something else."""
SUFFIXES = (*TABLES, *DOCUMENTS)


def names_a_file(text: str) -> bool:
    """Whether a data name is that of a file, a folder or a pattern rather than of a card.

    A folder with the name of a card is meant where its path is given, as in ./weather.
    """
    if re.search(r"[/\\*?]", text) or text.lower().endswith(SUFFIXES):
        return True
    # A model that MLflow serves has this code without the cards.
    folders = (PACKAGE / "_cards", CHECKOUT / "data/cards")
    is_card = any((folder / f"{text}.yaml").is_file() for folder in folders)
    return (Path(text).is_dir() and not is_card) or ("." in text and Path(text).is_file())


def tracking_uri() -> str:
    """Where MLflow keeps runs by default."""
    return os.environ.get("MLFLOW_TRACKING_URI") or TRACKING


def without_password(uri: str) -> str:
    """An address that is safe to show."""
    return uri if uri.startswith("sqlite:") else re.sub(r"//.*@", "//***@", uri)


def ui(uri: str, page: str = "") -> str:
    """The command to type if no server runs, and on the next line the address to open."""
    shown, page = without_password(uri), page or f"/#/experiments?{TRAINING}"
    if uri.startswith(("http://", "https://")):
        return f"{shown.rstrip('/')}{page}"
    return f"mlflow ui --backend-store-uri {in_shell([shown])}\n{UI}{page}"


def commit() -> str:
    """The commit of a checkout, with DIRTY if its code has changes; "unknown" in a wheel."""
    if not (CHECKOUT / ".git").exists():
        return "unknown"
    git = ["git", "-C", str(CHECKOUT)]
    try:
        head, state = (
            subprocess.run([*git, *words], capture_output=True, encoding="utf-8", check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno", "--", CODE))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + (DIRTY if state.strip() else "")
