"""What the installation offers: configs, cards, the cache, its commit."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from forecaster.errors import ForecasterError

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent
CODE = ":!benchmarks/results"
"""What git is asked about: all but the figures, which one benchmark after another replaces."""
MANIFEST = "MANIFEST.sha256"
"""What makes a folder a bundle, with the digest of each of its files."""
TRACKING = "sqlite:///mlflow.db"
"""MLflow's store in the working directory."""

UI = "http://127.0.0.1:5000"
"""Where `mlflow ui` can be opened."""
TRAINING = "workflowType=machine_learning"
"""What makes MLflow's pages show trained models; they begin with generative ones."""


def is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


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
    """The user's cache folder, where downloads live ($XDG_CACHE_HOME is honoured)."""
    from platformdirs import user_cache_path

    return user_cache_path("forecaster")


TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".feather", ".arrow")
"""How the names of files of rows end."""
DOCUMENTS = (".txt", ".txt.gz", ".xlsx", ".zip")
"""How the names of files end that may hold rows, and may not."""
SUFFIXES = (*TABLES, *DOCUMENTS)


def names_a_file(text: str) -> bool:
    """Whether a name of data is that of a file, a folder or a pattern rather than of a card."""
    named = bool(re.search(r"[/\\*?]", text)) or text.lower().endswith(SUFFIXES)
    path = Path(text)
    return named or path.is_dir() or ("." in text and path.is_file())


def tracking_uri() -> str:
    """Where MLflow keeps runs when no configuration says so."""
    return os.environ.get("MLFLOW_TRACKING_URI") or TRACKING


def without_password(uri: str) -> str:
    """An address to show to people."""
    return uri if uri.startswith("sqlite:") else re.sub(r"//.*@", "//***@", uri)


def ui(uri: str, page: str = "") -> str:
    """What to type where no server runs, and on a line of its own the address to open then."""
    shown, page = without_password(uri), page or f"/#/experiments?{TRAINING}"
    if uri.startswith(("http://", "https://")):
        return f"{shown.rstrip('/')}{page}"
    return f"mlflow ui --backend-store-uri {shlex.quote(shown)}\n{UI}{page}"


def commit() -> str:
    """The commit of a checkout, "-dirty" when its code has changes; "unknown" in a wheel."""
    if not (CHECKOUT / ".git").exists():
        return "unknown"
    git = ["git", "-C", str(CHECKOUT)]
    try:
        head, state = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno", "--", CODE))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("-dirty" if state.strip() else "")
