"""Skeletons: windows in, forecast out. Pure torch."""

from forecaster.model.base import ForecastModel, Task
from forecaster.model.cycle import CycleInformer
from forecaster.model.informer import Informer

SKELETONS: dict[str, type[ForecastModel]] = {
    "informer": Informer,
    "cycle": CycleInformer,
}

__all__ = ["SKELETONS", "CycleInformer", "ForecastModel", "Informer", "Task"]
