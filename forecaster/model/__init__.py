"""Skeletons: windows in, forecast out. Pure torch."""

from forecaster.model.base import ForecastModel, Task
from forecaster.model.informer import Informer
from forecaster.model.tokens import TokenInformer

SKELETONS: dict[str, type[ForecastModel]] = {"informer": Informer, "tokens": TokenInformer}

__all__ = ["SKELETONS", "ForecastModel", "Informer", "Task", "TokenInformer"]
