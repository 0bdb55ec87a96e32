"""Forecaster: long-sequence forecasting with interchangeable attention.

from forecaster import Forecaster

ahead = Forecaster(attention="prob", horizon=24).fit(frame).predict(level=80)
ahead = Forecaster.load("runs/...").predict(history)
"""

import os
from typing import TYPE_CHECKING, Any

from forecaster.base.version import __version__

if TYPE_CHECKING:
    from forecaster.client import Client
    from forecaster.estimator import Forecaster

__all__ = ["Client", "Forecaster", "__version__"]

# Waiting threads spin for a fraction of a millisecond, then sleep. If they kept spinning, training
# would be several times slower when another process is busy on the same cores; if they slept at
# once, attentions made of many small operations would take twice as long on idle cores.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def __getattr__(name: str) -> Any:
    # imported when they are used: --help need not wait for torch, nor the client have it
    if name == "Forecaster":
        from forecaster.estimator import Forecaster

        return Forecaster
    if name == "Client":
        from forecaster.client import Client

        return Client
    raise AttributeError(f"module 'forecaster' has no attribute '{name}'")
