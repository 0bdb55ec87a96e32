import subprocess
import sys

WITHOUT = """
import sys
import forecaster.train
assert "scipy.signal" not in sys.modules, "torchmetrics is imported whole"
from lightning.pytorch.core.module import Metric
import torchmetrics
assert torchmetrics.MeanMetric().compute is not None
assert Metric.__module__ == "torchmetrics.metric"
"""


def test_training_imports_few_metrics_and_whoever_asks_later_gets_all() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
