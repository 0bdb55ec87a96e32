"""A GPU gives the same numbers as a CPU (TF32 off, the default of torch)."""

import copy

import pytest
import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place

pytestmark = pytest.mark.gpu


# The patterns also so long that a CPU takes tiles.
SIZES = [(name, 4, 97, masked) for name in ATTENTIONS for masked in (False, True)]
SIZES += [(name, 2, 2500, False) for name in ("logsparse", "strided", "fixed")]


@pytest.mark.parametrize(("name", "heads", "length", "masked"), SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_gpu_equals_cpu(name: str, heads: int, length: int, masked: bool, causal: bool) -> None:
    torch.manual_seed(0)
    here = AttentionChoice(name).build(Place(32, heads, length, length)).eval()
    there = copy.deepcopy(here).cuda()
    x = torch.randn(3, length, 32)
    mask = torch.arange(length) < torch.tensor([length, 50, 0])[:, None] if masked else None
    results = []
    for module, device in ((here, "cpu"), (there, "cuda")):
        query = x.to(device).requires_grad_()
        out = module(query, causal=causal, key_mask=None if mask is None else mask.to(device))
        (gradient,) = torch.autograd.grad((out.square() + 0 * query).sum(), query)
        results.append((out.detach().cpu(), gradient.cpu()))
    tolerance = 1e-4 if length == 97 else 1e-3
    torch.testing.assert_close(results[1], results[0], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_training_runs_on_a_gpu(name: str) -> None:
    module = AttentionChoice(name).build(Place(32, 4, 97, 97)).cuda().train()
    x = torch.randn(3, 97, 32, device="cuda", requires_grad=True)
    before = torch.cuda.get_rng_state()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = module(x, causal=True)
    if out.requires_grad:  # none has neither weights nor a dependence on its input
        out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is None or x.grad.isfinite().all()  # none does not depend on its input
    assert torch.equal(torch.cuda.get_rng_state(), before)
