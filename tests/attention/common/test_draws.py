import subprocess
import sys

import pytest
import torch
from torch import Tensor

from forecaster.attention import Effective, Place
from forecaster.attention.common.draws import DrawingAttention


def numbers(count: int, seed: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


class Noise(DrawingAttention):
    """Adds what it draws to its input."""

    def __init__(self, seed: int = 0, depth: int = 0) -> None:
        super().__init__(Place(6, 2, 23, 31, depth=depth, role="decoder"))
        self.seed = seed

    def compute(
        self, query: Tensor, context: Tensor, *, causal: bool, key_mask: Tensor | None
    ) -> Tensor:
        return query + self.draw(numbers, query.shape[2], what=("noise", 7))

    def amounts_to(self) -> Effective:
        return Effective("noise")


X = torch.zeros(1, 1, 6)


def test_seeds_stay_what_they_are_in_bundles_already_made() -> None:
    attention = Noise(seed=5, depth=1)
    assert attention.draw_seed(0, 23, 31, 2) == 9381776553829080924
    assert attention.draw_seed(3, 23, 31, 2) == 8546701181474909992


def test_evaluation_draws_the_same_and_does_not_count() -> None:
    attention = Noise().eval()
    assert torch.equal(attention(X), attention(X))
    assert torch.equal(attention(X), Noise().eval()(X))
    assert attention.draws == 0


def test_training_draws_anew_from_where_the_state_dict_stands() -> None:
    attention = Noise()
    first, second = attention(X), attention(X)
    assert not torch.equal(first, second)
    state = attention.state_dict()
    third = attention(X)
    resumed = Noise()
    resumed.load_state_dict(state)
    assert resumed.draws == 2
    assert torch.equal(resumed(X), third)


@pytest.mark.parametrize("other", [Noise(seed=1), Noise(depth=1)], ids=["seed", "depth"])
def test_seed_and_place_tell_draws_apart(other: Noise) -> None:
    assert not torch.equal(Noise()(X), other(X))


def test_the_global_random_state_stays() -> None:
    before = torch.get_rng_state()
    Noise()(X)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_a_compiled_module_draws_alike_and_does_not_compile_anew_with_every_draw() -> None:
    # In a process of its own, because the compiler cannot see through the checks of shapes.
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
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
