"""Each attention on a simulated GPU: a processor's numbers, few waits, few launches."""

import copy
from collections import Counter

import pytest
import torch
from torch import Tensor

from forecaster.attention import ATTENTIONS, Attention, AttentionChoice, Place
from forecaster.attention.base import SelfAttention
from tests.gpu_simulated.device import Simulated

WAITS = {  # of a forward and a backward pass in training; they may only become fewer
    "topk": Counter({"_local_scalar_dense": 1}),  # whether any of all scores tie
    "aft-full": Counter({"nonzero": 1}),  # queries whose sums underflow
    "aft-local": Counter({"_local_scalar_dense": 1}),  # whether biases are too far apart
    "aft-conv": Counter({"_local_scalar_dense": 1}),
}
CORES = {  # launches and MiB of a function, forward and backward; they may only become fewer
    "full": (6, 24), "prob": (24, 206), "logsparse": (7, 44), "lsh": (130, 960),
    "strided": (7, 44), "fixed": (7, 44), "topk": (56, 826), "single": (6, 24),
    "fastformer": (62, 32), "gau": (61, 3583), "flash": (412, 507), "diff": (28, 64),
    "aft-full": (57, 512), "aft-local": (77, 118), "aft-simple": (33, 50), "aft-conv": (87, 77),
    "gated": (11, 32), "sliding": (7, 44), "forgetting": (63, 5280), "retention": (371, 1185),
    "delta": (1096, 2247), "ssd": (368, 1185), "position-prior": (58, 4461), "static": (20, 988),
    "mean": (5, 10),
}  # fmt: skip
LONG = 2048
BF16 = {"prob": 0.1, "lsh": 0.1, "topk": 0.15, "diff": 0.05}
"""The relative error in bf16 of those that choose by comparison, or subtract; of others, SMOOTH."""
SMOOTH = 0.04
L, S = 97, 53
CASES = [
    (name, kind)
    for name, attention in ATTENTIONS.items()
    for kind in ("self", "causal", "masked", "cross")
    if kind != "cross" or not issubclass(attention, SelfAttention)
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_gives_the_numbers_of_a_processor(name: str, kind: str) -> None:
    here, given = made(name, kind)
    there = copy.deepcopy(here)
    wanted = results(here, *given, kind)
    with Simulated() as gpu:
        moved = there.to("cuda"), *(None if x is None else x.to("cuda") for x in given)
        gpu.clear()
        computed = results(*moved, kind)
        waits = Counter(what for what, _ in gpu.waits)
        computed = [x.cpu() for x in computed]
    torch.testing.assert_close(computed, wanted, atol=1e-4, rtol=1e-4)
    assert waits <= WAITS.get(name, Counter()), gpu.waits
    assert not gpu.doubles


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_in_bf16_it_is_near_them(name: str, kind: str) -> None:
    here, given = made(name, kind)
    there = copy.deepcopy(here)
    wanted = results(here, *given, kind)
    with Simulated():
        moved = there.to("cuda"), *(None if x is None else x.to("cuda") for x in given)
        with torch.autocast("cuda", torch.bfloat16):
            computed = results(*moved, kind)
        computed = [x.float().cpu() for x in computed]
    off = [(a - b).norm() / b.norm().clamp(min=1e-9) for a, b in zip(computed, wanted, strict=True)]
    assert max(off) <= BF16.get(name, SMOOTH), off


def made(name: str, kind: str) -> tuple[Attention, list[Tensor | None]]:
    """An attention, and its query, context and mask."""
    torch.manual_seed(0)
    keys = S if kind == "cross" else L
    place = Place(64, 4, L, keys, role="cross" if kind == "cross" else "encoder")
    attention = AttentionChoice(name).build(place)
    mask = torch.arange(keys) < torch.tensor([keys, 40])[:, None] if kind == "masked" else None
    context = torch.randn(2, keys, 64) if kind == "cross" else None
    return attention, [torch.randn(2, L, 64), context, mask]


def results(
    attention: Attention, query: Tensor, context: Tensor | None, mask: Tensor | None, kind: str
) -> list[Tensor]:
    """The output and the gradient of the query."""
    query = query.clone().requires_grad_()
    output = attention(query, context, causal=kind == "causal", key_mask=mask)
    (output.square() + 0 * query).sum().backward()
    assert query.grad is not None
    return [output.detach(), query.grad]


@pytest.mark.parametrize("name", CORES)
def test_a_function_takes_no_more_launches_and_bytes_than_it_did(name: str) -> None:
    core = ATTENTIONS[name].core
    assert core is not None
    with Simulated() as gpu:
        generator = torch.Generator().manual_seed(0)

        def draw(*sizes: int) -> Tensor:
            return torch.randn(sizes, generator=generator).to("cuda")

        q, k, v = (draw(2, LONG, 4, 16).transpose(1, 2) for _ in range(3))
        function, tensors = core.build(q, k, v, draw)
        leaves = {key: x.detach().requires_grad_() for key, x in tensors.items()}
        for _ in range(2):  # the first time, masks are made
            gpu.clear()
            output = function(**leaves, causal=False)
            output.backward(torch.ones_like(output))
    launches, mib = CORES[name]
    assert gpu.launches <= launches
    assert gpu.bytes <= mib * 2**20


def test_each_function_stands_in_the_table() -> None:
    assert set(CORES) == {name for name, kind in ATTENTIONS.items() if kind.core is not None}
