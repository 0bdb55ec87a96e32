"""Measurements: `python benchmarks/NAME.py` or `python -m benchmarks.NAME`, from the top folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # they import each other by name
