import pytest
import torch

from forecaster.model.average import CycleAverage

from .small import scrambled


@pytest.mark.usefixtures("float64")
def test_equals_the_loops() -> None:
    """With a state; test_tokens.py compares it without one."""
    torch.manual_seed(0)
    cycles, parts, ahead, width, heads, steps = 3, 2, 2, 6, 2, 5
    average = CycleAverage(cycles, parts, ahead, width, heads, stateful=True)
    scrambled(average, 1.0)
    encoded, values = torch.randn(4, cycles * parts, width), torch.randn(4, cycles * parts, steps)
    state = torch.randn(4, ahead * parts, width)
    mixed = average(encoded, values, state)
    each = width // heads
    for b in range(4):
        for number in range(ahead * parts):
            cycle, part = divmod(number, parts)
            wanted = torch.zeros(steps)
            for h in range(heads):
                head = slice(h * each, (h + 1) * each)
                own = (average.project.weight @ state[b, number])[head]
                query = average.query[h, cycle, part] + own
                scores = []
                for c in range(cycles):
                    key = (average.key.weight @ encoded[b, c * parts + part])[head]
                    scores.append(query @ key / each**0.5 + average.bias[h, cycle, part, c])
                weights = torch.softmax(torch.stack(scores), dim=0)
                for c in range(cycles):
                    wanted += average.mixture[h] * weights[c] * values[b, c * parts + part]
            torch.testing.assert_close(mixed[b, number], wanted)


def test_it_starts_as_the_mean_whatever_the_state() -> None:
    average = CycleAverage(3, 1, 2, 4, 2, stateful=True)
    values = torch.randn(5, 3, 7)
    mixed = average(torch.randn(5, 3, 4), values, torch.randn(5, 2, 4))
    torch.testing.assert_close(mixed, values.mean(dim=1, keepdim=True).expand(-1, 2, -1))
