"""Import lightning without the hundred metrics of torchmetrics.

Lightning uses two classes of torchmetrics, but the package imports all metrics, and scipy.signal
with them, which takes a sixth of the time to the first optimiser step. A later import of
torchmetrics gets the whole package.
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
    """Make torchmetrics, in this block, a package with only the classes of CLASSES.

    It stays as it is if it is already imported.
    """
    specification = importlib.util.find_spec(NAME) if NAME not in sys.modules else None
    if specification is None:
        yield
        return
    package = importlib.util.module_from_spec(specification)
    package.__dict__["_logger"] = logging.getLogger(NAME)
    sys.modules[NAME] = package
    try:
        import_module(f"{NAME}.utilities")  # it imports the metric that imports it
        for each, module in CLASSES.items():
            package.__dict__[each] = getattr(import_module(f"{NAME}.{module}"), each)
        yield
    finally:
        for each in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[each]
