"""What the installation and the machine offer: configs, cards, the cache, the device."""

import os
import re
import subprocess
from pathlib import Path

from forecaster.errors import ForecasterError, UnavailableError, UsageError

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent
TABLES = (
    ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".feather", ".arrow",
)  # fmt: skip
"""What files of rows are called."""
DOCUMENTS = (".txt", ".txt.gz", ".xlsx", ".zip")
"""What files are called that may hold rows, and may not."""
SUFFIXES = (*TABLES, *DOCUMENTS)
TRACKING = "sqlite:///mlflow.db"
"""MLflow's store in the working directory."""


def _folder(inside: str, beside: str) -> Path:
    for folder in (PACKAGE / inside, CHECKOUT / beside):
        if folder.is_dir():
            return folder
    raise ForecasterError(
        f"the installation is incomplete: neither {PACKAGE / inside} nor {CHECKOUT / beside} "
        "exists. Install forecaster again."
    )


def configs() -> Path:
    """The folder of the configurations that come with forecaster."""
    return _folder("_configs", "configs")


def cards() -> Path:
    """The folder of the data cards."""
    return _folder("_cards", "data/cards")


def cache() -> Path:
    """The user's cache folder, where downloads live ($XDG_CACHE_HOME is honoured)."""
    from platformdirs import user_cache_path

    return user_cache_path("forecaster")


def names_a_file(text: str) -> bool:
    """Whether a name of data is that of a file, a folder or a pattern rather than of a card."""
    named = re.search(r"[/\\*?]", text) or text.lower().endswith(SUFFIXES)
    return bool(named) or Path(text).is_dir()


def tracking_uri() -> str:
    """Where MLflow keeps runs when no configuration says so."""
    return os.environ.get("MLFLOW_TRACKING_URI") or TRACKING


def without_password(uri: str) -> str:
    """An address to show to people."""
    return uri if uri.startswith("sqlite:") else re.sub(r"//.*@", "//***@", uri)


def device(name: str) -> str:
    """ "cpu" or "cuda"; "auto" takes CUDA where there is one.

    Raises UnavailableError when CUDA is asked for and this torch sees none, UsageError for
    another name.
    """
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device '{name}'. Known: auto, cpu, cuda.")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UnavailableError(
            "device=cuda: this torch sees no CUDA device. Use device=cpu, or install the CUDA "
            "build of torch (README, Installing torch)."
        )
    return name


def commit() -> str:
    """The commit of a checkout, "-dirty" when it has changes; "unknown" in an installed wheel."""
    if not (CHECKOUT / ".git").exists():
        return "unknown"
    git = ["git", "-C", str(CHECKOUT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        state = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("-dirty" if state.stdout.strip() else "")
