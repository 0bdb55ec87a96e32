from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import Place, topk
from forecaster.attention.topk import TopKAttention, topk_attention

from .agreement import assert_agree, inputs

# 13 steps: some hidden, all but two hidden (fewer than are kept), all hidden.
MASK = torch.stack([torch.arange(13) % 4 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])

# The ways to select, made to apply at the lengths of these tests.
PATHS: dict[str, dict[str, int]] = {
    "marks": {"_SHORT": 10**6},
    "topk": {"_SHORT": 0},
    "groups": {"_SHORT": 0, "_GROUP": 2},
    "small blocks": {"_SHORT": 0, "_SCORES": 50, "_ROWS": 3},
    "small marked blocks": {"_SCORES": 90, "_ROWS": 4},
}


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PATHS[request.param].items():
        monkeypatch.setattr(topk, name, value)


def quantised(*shape: int, levels: int = 2, seed: int = 0) -> Tensor:
    """Small whole numbers: their products and sums are exact, so equal scores are equal bits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-levels, levels + 1, shape, generator=generator).float()


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_all_that_tie_are_kept(levels: int, causal: bool) -> None:
    q, k, v = (quantised(2, 2, 13, 3, levels=levels, seed=seed) for seed in range(3))
    options: dict[str, Any] = {"topk": 3, "causal": causal, "key_mask": MASK[:2]}
    assert_agree(
        lambda q, k, v: topk_attention(q, k, v, **options),
        lambda q, k, v: topk.definition(q, k, v, **options),
        (q, k, v + torch.randn(v.shape)),
        1e-5,
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("ties", [2, 5])
def test_a_tie_hidden_among_random_scores_is_kept(ties: int) -> None:
    q, k, v = inputs(1, 2, 6, 70, width=1, dtype=torch.float32)
    with torch.no_grad():
        k[0, 1, 10 : 10 + ties] = k[0, 1].sort(0, descending=True).values[2]
        q[0, 1, 3] = 1.0
    third = k[0, 1, :, 0] == k[0, 1, 10, 0]
    assert third.sum() == ties + 1 - bool(third[10 : 10 + ties].sum() > ties)
    assert_agree(
        lambda *x: topk_attention(*x, topk=3),
        lambda *x: topk.definition(*x, topk=3),
        (q, k, v),
        1e-5,
    )


@pytest.mark.usefixtures("path")
def test_keys_that_nobody_kept_have_no_gradient() -> None:
    q, k, v = inputs(1, 1, 2, 40)
    q_only, k_only = q.detach(), k.detach()
    kept = (q_only @ k_only.mT).topk(3).indices.unique()
    topk_attention(q, k, v, topk=3).square().sum().backward()
    assert k.grad is not None
    assert v.grad is not None
    for gradient in (k.grad, v.grad):
        assert gradient[0, 0].any(1).nonzero().flatten().tolist() == kept.tolist()


@pytest.mark.parametrize("keys", [1, 2, 63, 64, 65, 200, 1000])
def test_the_ways_to_select_agree(keys: int) -> None:
    x = torch.randn(4, 9, keys, generator=torch.Generator().manual_seed(0))
    x[0, 3] = x[0, 3].sort().values
    x[0, 4] = x[0, 4].sort(descending=True).values
    x[1, :, keys // 2 :] = -torch.inf
    x[2, 0, 0], x[2, 1, -1] = 3e38, -3e38
    x[3] *= 1e30
    for count in {1, min(4, keys), min(8, keys)}:
        values, index = x.topk(count)
        got = topk._largest(x, count)
        assert torch.equal(got[0], values)
        assert torch.equal(x.gather(2, got[1]), values)
        assert torch.equal(got[1].sort(2).values[2:], index.sort(2).values[2:])
        if count < keys:
            marked_values, marked, tied = topk._select_by_rounds(x, count)
            assert not tied
            assert torch.equal(marked_values.sort(2, descending=True).values, values)
            assert torch.equal(x.gather(2, marked), marked_values)


def test_refuses_to_keep_nothing() -> None:
    with pytest.raises(ValueError, match="topk must be at least 1, got topk=0"):
        topk_attention(*inputs(), topk=0)
    with pytest.raises(ValueError, match="topk must be at least 1, got topk=0"):
        TopKAttention(Place(6, 2, 7, 7), topk=0)


def test_the_module_passes_its_option_on() -> None:
    torch.manual_seed(0)
    module, x = TopKAttention(Place(6, 2, 20, 20), topk=2).eval(), torch.randn(1, 20, 6)
    before = module(x)
    module.topk = 20
    assert not torch.allclose(module(x), before)
