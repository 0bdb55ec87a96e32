from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import LSHAttention, Place, lsh_attention, lsh_buckets
from forecaster.attention.lsh import bucket_counts, draw_rotations

from .agreement import inputs
from .test_definition import take

dense_or_tiles = pytest.mark.parametrize("way", [0, 1])


@dense_or_tiles
@pytest.mark.parametrize("causal", [False, True])
def test_one_chunk_is_full_attention_among_others(way: int, causal: bool, monkeypatch: Any) -> None:
    take("lsh", way, monkeypatch)
    q, _, v = inputs(queries=9, keys=9)
    scores = q @ (q / q.norm(dim=3, keepdim=True)).mT
    hidden = torch.eye(9) > 0
    if causal:
        hidden = hidden | (torch.ones(9, 9).triu(1) > 0)
        hidden[0, 0] = False  # the first sees itself, because there is nothing else
    want = scores.masked_fill(hidden, -torch.inf).softmax(3) @ v
    torch.testing.assert_close(lsh_attention(q, v, bucket_size=9, causal=causal), want)
    different = lsh_attention(q, v, bucket_size=2, causal=causal)
    assert (different - want).abs().max() > 1e-3


@dense_or_tiles
def test_a_step_alone_in_every_round_is_exactly_itself(way: int, monkeypatch: Any) -> None:
    # With a score of -1e5 instead, float32 would weigh it wrong by up to half a percent.
    take("lsh", way, monkeypatch)
    q, _, v = inputs(4, 2, 13, 13, dtype=torch.float32)
    out = lsh_attention(q, v, bucket_size=3, n_hashes=3, causal=True)
    assert torch.equal(out[:, :, 0], v[:, :, 0])
    grad_q, grad_v = torch.autograd.grad(out[:, :, 0].sum(), (q, v))
    assert (grad_v[:, :, 0] == 1).all()
    assert (grad_v[:, :, 1:] == 0).all()
    assert (grad_q == 0).all()


@pytest.mark.parametrize("n_buckets", [6, (4, 8)])
@pytest.mark.parametrize("of_heads", [False, True])
def test_buckets_equal_their_definition(n_buckets: Any, of_heads: bool) -> None:
    q = inputs(queries=11, keys=11)[0].detach()
    factors = n_buckets if isinstance(n_buckets, tuple) else (n_buckets,)
    rotations = draw_rotations(2, 3, 2, sum(factors) // 2, seed=0).double()

    def bucket(x: Tensor, columns: Tensor) -> int:
        """One step (E,) by the columns (E, R) of one round."""
        found, factor = 0, 1
        for size, part in zip(factors, columns.split([f // 2 for f in factors], 1), strict=True):
            both = [*(x @ part).tolist(), *(-(x @ part)).tolist()]
            found, factor = found + factor * both.index(max(both)), factor * size
        return found

    got = lsh_buckets(q, rotations if of_heads else rotations[0], n_buckets)
    assert got.shape == (2, 2, 2, 11)
    for b, h, r, i in product(range(2), range(2), range(2), range(11)):
        assert got[b, h, r, i] == bucket(q[b, h, i], rotations[h if of_heads else 0][:, r])


def test_ties_fall_to_the_first_bucket() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-2.0, -2.0], [1.0, -1.0], [-1.0, 1.0]])
    rotations = torch.eye(2).view(2, 1, 2)  # buckets: +x0, +x1, -x0, -x1
    assert lsh_buckets(x[None, None], rotations, 4).flatten().tolist() == [0, 0, 2, 0, 1]
    assert lsh_buckets(x[None, None], rotations, (2, 2)).flatten().tolist() == [0, 0, 3, 2, 1]


def test_buckets_do_not_depend_on_the_batch() -> None:
    x = torch.randn(19, 97, 2, 24, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    rotations = draw_rotations(2, 24, 3, 5, seed=0)
    rotations[..., 1] = rotations[..., 0] * (1 + 1e-7)  # so that many hashes are nearly tied
    alone = [lsh_buckets(x[b : b + 1], rotations, 10) for b in range(19)]
    assert torch.equal(lsh_buckets(x, rotations, 10), torch.cat(alone))


def test_number_of_buckets() -> None:
    found = [bucket_counts(length, 64) for length in (1, 65, 4096, 4097, 8192, 16384)]
    assert found == [2, 4, 128, (16, 8), (16, 16), (32, 16)]
    assert bucket_counts(96, 64, 1000) == (32, 30)


def test_zero_vectors_are_harmless() -> None:
    q, v = torch.zeros(1, 1, 9, 4), torch.randn(1, 1, 9, 4)
    others = (v.sum(2, keepdim=True) - v) / 8
    torch.testing.assert_close(lsh_attention(q, v, bucket_size=9), others)
    assert lsh_attention(q, v, bucket_size=2).isfinite().all()


def test_evaluates_with_its_own_number_of_rounds() -> None:
    def module(**rounds: int) -> LSHAttention:
        torch.manual_seed(0)
        return LSHAttention(Place(6, 2, 23, 23), bucket_size=4, **rounds).eval()

    attention, x = module(n_hashes=1, eval_hashes=3), torch.randn(3, 23, 6)
    assert attention.state_dict()["rotations"].shape == (2, 3, 3, 6)
    assert torch.equal(attention(x), module(n_hashes=3)(x))
    assert not torch.equal(attention.train()(x), module(n_hashes=3).train()(x))
