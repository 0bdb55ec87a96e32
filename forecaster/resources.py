"""Where configs, cards and downloads live: inside the wheel, else beside the package."""

from pathlib import Path

from forecaster.errors import ForecasterError

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent


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
