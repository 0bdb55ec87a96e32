"""A GPU gives the same numbers as a CPU (TF32 off, the default of torch)."""

import copy

import pytest
import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_gpu_equals_cpu(name: str, causal: bool, masked: bool) -> None:
    torch.manual_seed(0)
    here = AttentionChoice(name).build(Place(32, 4, 97, 97)).eval()
    there = copy.deepcopy(here).cuda()
    x = torch.randn(3, 97, 32)
    mask = torch.arange(97) < torch.tensor([97, 50, 0])[:, None] if masked else None
    results = []
    for module, device in ((here, "cpu"), (there, "cuda")):
        query = x.to(device).requires_grad_()
        out = module(query, causal=causal, key_mask=None if mask is None else mask.to(device))
        (gradient,) = torch.autograd.grad((out.square() + 0 * query).sum(), query)
        results.append((out.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_training_runs_on_a_gpu(name: str) -> None:
    module = AttentionChoice(name).build(Place(32, 4, 97, 97)).cuda().train()
    x = torch.randn(3, 97, 32, device="cuda", requires_grad=True)
    before = torch.cuda.get_rng_state()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = module(x, causal=True)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is None or x.grad.isfinite().all()  # none does not depend on its input
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("name", ["logsparse", "strided", "fixed"])
@pytest.mark.parametrize("causal", [False, True])
def test_long_patterns_equal_those_of_a_cpu(name: str, causal: bool) -> None:
    """Long enough for FlexAttention, with a width of heads for which it has kernels."""
    torch.manual_seed(0)
    here = AttentionChoice(name).build(Place(32, 2, 2500, 2500)).eval()
    there = copy.deepcopy(here).cuda()
    x = torch.randn(2, 2500, 32)
    results = []
    for module, device in ((here, "cpu"), (there, "cuda")):
        query = x.to(device).requires_grad_()
        out = module(query, causal=causal)
        (gradient,) = torch.autograd.grad(out.square().sum(), query)
        results.append((out.detach().cpu(), gradient.cpu()))
    torch.testing.assert_close(results[1], results[0], atol=1e-3, rtol=1e-3)
