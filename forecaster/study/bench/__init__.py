"""Time and memory of the attention functions beside torch's fused kernel (SDPA)."""

from forecaster.study.bench.cells import Setup, about, choose, curves, measure, read_lengths
from forecaster.study.bench.cores import CORES
from forecaster.study.bench.display import save, tables

__all__ = [
    "CORES", "Setup", "about", "choose", "curves", "measure", "read_lengths", "save", "tables",
]  # fmt: skip
