"""Import lightning without the hundred metrics of torchmetrics.

Lightning uses two classes of it, but its package imports all metrics, and scipy.signal with them:
a sixth of the time to the first optimiser step. Whoever imports torchmetrics afterwards gets all of
it.
"""

import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

NAME = "torchmetrics"
CLASSES = {"Metric": "metric", "MetricCollection": "collections"}


@contextmanager
def few_metrics() -> Iterator[None]:
    """In the block torchmetrics is a package with the classes of CLASSES alone.

    It stays as it is where it is imported already.
    """
    specification = importlib.util.find_spec(NAME) if NAME not in sys.modules else None
    if specification is None:
        yield
        return
    package = importlib.util.module_from_spec(specification)
    package.__dict__["_logger"] = logging.getLogger(NAME)
    sys.modules[NAME] = package
    try:
        import_module(f"{NAME}.utilities")  # which imports the metric that imports it
        for each, module in CLASSES.items():
            package.__dict__[each] = getattr(import_module(f"{NAME}.{module}"), each)
        yield
    finally:
        for each in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[each]
