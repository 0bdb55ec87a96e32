"""Forecaster: long-sequence forecasting with interchangeable attention."""

import os

# Threads that wait should sleep: where another process is busy on the same cores, spinning ones
# made the quick start's training five times slower (123 s against 23 s on two cores).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
