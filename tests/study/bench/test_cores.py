"""Every function gets the tensors that it takes, and all of them get a gradient."""

import pytest
import torch

from forecaster.attention import ATTENTIONS
from forecaster.study.bench import CORES

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 23, 4


def draw(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


@pytest.mark.parametrize("name", [name for name in CORES if name in ATTENTIONS])
@pytest.mark.parametrize("causal", [False, True])
def test_a_call_reaches_every_tensor(name, causal):
    inputs = [draw(BATCH, LENGTH, HEADS, WIDTH).transpose(1, 2) for _ in range(3)]
    options = {"flash": {"chunk_size": 5}}  # with one chunk nothing passes between chunks
    function, tensors = CORES[name].build(*inputs, draw, **options.get(name, {}))
    leaves = {key: x.detach().requires_grad_() for key, x in tensors.items()}
    out = function(**leaves, causal=causal)
    assert out.numel() == BATCH * HEADS * LENGTH * WIDTH
    assert out.isfinite().all()
    (out * draw(*out.shape)).sum().backward()
    reached = {key for key, x in leaves.items() if x.grad is not None and (x.grad != 0).any()}
    assert reached == (set(leaves) if name != "mean" else {"v"})
