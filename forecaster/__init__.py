"""Forecaster: long-sequence forecasting with interchangeable attention.

from forecaster import Forecaster

ahead = Forecaster(attention="prob", horizon=24).fit(frame).predict(level=80)
ahead = Forecaster.load("runs/...").predict(history)
"""

import os
from typing import TYPE_CHECKING, Any

from forecaster.version import __version__

if TYPE_CHECKING:
    from forecaster.estimator import Forecaster

__all__ = ["Forecaster", "__version__"]

# Threads that wait spin for a fraction of a millisecond, then sleep. Spinning on would slow
# training several times over where another process is busy on the same cores; sleeping at once
# would double the time of attentions made of many small operations where none is.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def __getattr__(name: str) -> Any:
    if name == "Forecaster":  # imported when it is used, so that --help need not wait for torch
        from forecaster.estimator import Forecaster

        return Forecaster
    raise AttributeError(f"module 'forecaster' has no attribute '{name}'")
