"""From a data card or a file to windows: card, fetch, reader, series, calendar, scaling, windows.

Names are imported from their modules when they are first used, so that reading a card imports
neither pandas nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forecaster.datasets.calendar import (
        calendar_features,
        calendar_names,
        future_times,
        normalise_freq,
        phase_weights,
    )
    from forecaster.datasets.card import Borders, Card, card_names, is_generated, load_card
    from forecaster.datasets.dataset import Dataset
    from forecaster.datasets.fetch import locate
    from forecaster.datasets.items import Items
    from forecaster.datasets.known import KnownInputs
    from forecaster.datasets.reading import Reading
    from forecaster.datasets.scaling import Scaler
    from forecaster.datasets.series import Series
    from forecaster.datasets.windows import Batch, Windows

__all__ = [
    "Batch",
    "Borders",
    "Card",
    "Dataset",
    "Items",
    "KnownInputs",
    "Reading",
    "Scaler",
    "Series",
    "Windows",
    "calendar_features",
    "calendar_names",
    "card_names",
    "future_times",
    "is_generated",
    "load_card",
    "locate",
    "normalise_freq",
    "phase_weights",
]

_MODULES = {
    **dict.fromkeys(("calendar_features", "calendar_names", "phase_weights"), "calendar"),
    **dict.fromkeys(("future_times", "normalise_freq"), "calendar"),
    **dict.fromkeys(("Borders", "Card", "card_names", "is_generated", "load_card"), "card"),
    "locate": "fetch",
    "Items": "items",
    "KnownInputs": "known",
    "Scaler": "scaling",
    "Dataset": "dataset",
    "Reading": "reading",
    "Series": "series",
    **dict.fromkeys(("Batch", "Windows"), "windows"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
