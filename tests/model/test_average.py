import pytest
import torch

from forecaster.model.average import CycleAverage

from . import naive
from .small import scrambled


@pytest.mark.usefixtures("float64")
def test_equals_the_loops() -> None:
    """With a state; test_tokens.py compares it without one."""
    torch.manual_seed(0)
    average = scrambled(CycleAverage(3, 2, 2, 6, 2, stateful=True), 1.0)
    encoded, values, state = (torch.randn(4, *shape) for shape in ((6, 6), (6, 5), (4, 6)))
    observed = torch.rand(values.shape) < 0.6
    mixed = average(encoded, values, state, observed)
    w = naive.weights(average)
    for b in range(4):
        given = encoded[b], values[b], observed[b], state[b]
        torch.testing.assert_close(mixed[b], naive.cycle_average(w, "", *given))
