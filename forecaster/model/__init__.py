"""Skeletons: windows in, forecast out. Pure torch, over `attention` and `base`.

`base` is the contract and the `Task` that a model is built for, `informer` and `tokens` are the
skeletons, `blocks` their layers. Begin reading with `base`, then `tokens`, which the shipped
configurations use.
"""

from forecaster.model.base import ForecastModel, Task
from forecaster.model.informer import Informer
from forecaster.model.tokens import TokenInformer

SKELETONS: dict[str, type[ForecastModel]] = {"informer": Informer, "tokens": TokenInformer}

__all__ = ["SKELETONS", "ForecastModel", "Informer", "Task", "TokenInformer"]
