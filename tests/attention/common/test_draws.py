import pytest

from forecaster.attention import Place, ProbSparseAttention
from tests.attention.agreement import run


def test_seeds_stay_what_they_are_in_bundles_already_made() -> None:
    attention = ProbSparseAttention(Place(6, 2, 23, 31, depth=1, role="decoder"), seed=5)
    assert attention.draw_seed(0, 23, 31, 2) == 9381776553829080924
    assert attention.draw_seed(3, 23, 31, 2) == 8546701181474909992


@pytest.mark.slow
def test_a_compiled_module_draws_alike_and_does_not_compile_anew_with_every_draw() -> None:
    program = """
import torch
from forecaster.attention import LSHAttention, Place
graphs = []
def count(graph, inputs):
    graphs.append(graph)
    return graph.forward
def build():
    torch.manual_seed(0)
    return LSHAttention(Place(6, 2, 23, 23), bucket_size=4)
x = torch.randn(3, 23, 6)
eager, attention = build(), build()
module = torch.compile(attention, backend=count)
for step in range(12):  # more often than the compiler would try again
    assert torch.equal(module(x), eager(x))
    if step == 1:
        first = len(graphs)
assert 0 < first == len(graphs), (first, len(graphs))
assert attention.draws == eager.draws == 12
"""
    run(program)
