import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from forecaster.attention import LSHAttention, Place, lsh, lsh_attention, lsh_buckets
from forecaster.attention.common import tiles
from forecaster.attention.lsh import bucket_counts, draw_rotations

from .agreement import assert_agree, inputs, value_and_gradients
from .memory import peak_mib
from .naive.lsh import buckets as slow_buckets
from .naive.lsh import lsh as slow_lsh

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])
MODULE: dict[str, Any] = {"bucket_size": 4, "n_hashes": 2}


@pytest.fixture(params=["dense", "tiles"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute, whatever the length."""
    monkeypatch.setattr(lsh, "_DENSE", 512 if request.param == "dense" else 0)
    return str(request.param)


def agree(
    L: int, tolerance: float = 1e-9, dtype: torch.dtype = torch.float64, **options: Any
) -> None:
    """The function and its definition, with rotations from N(0, 1) and the buckets they give."""
    options = {"bucket_size": 4, "n_hashes": 2, **options}
    n_buckets = options.pop("n_buckets", None) or bucket_counts(L, options["bucket_size"])
    columns = (sum(n_buckets) if isinstance(n_buckets, tuple) else n_buckets) // 2
    rotations = draw_rotations(2, 3, options.pop("n_hashes"), columns, seed=7).double()
    q, _, v = inputs(3, queries=L, keys=L, dtype=dtype)
    assert_agree(
        lambda q, v: lsh_attention(
            q, v, rotations=rotations, n_hashes=rotations.shape[2], n_buckets=n_buckets, **options
        ),
        lambda q, v: slow_lsh(q, v, rotations, n_buckets=n_buckets, **options),
        (q, v),
        tolerance,
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    causal: bool, masked: bool, deduplicate: bool, dtype: torch.dtype, tolerance: float
) -> None:
    mask = MASK if masked else None
    agree(13, tolerance, dtype, causal=causal, key_mask=mask, deduplicate=deduplicate, scale=0.7)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("L", [1, 3, 4, 5, 7, 8, 9, 17])
@pytest.mark.parametrize("n_hashes", [1, 3])
def test_lengths_around_the_chunks(L: int, n_hashes: int) -> None:
    agree(L, n_hashes=n_hashes)
    agree(L, n_hashes=n_hashes, causal=True, deduplicate=True)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("n_buckets", [2, 10, (2, 4), (4, 2)])
def test_any_even_number_of_buckets(n_buckets: Any) -> None:
    agree(11, n_buckets=n_buckets, bucket_size=3)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("deduplicate", [False, True])
def test_gradients_by_finite_differences(causal: bool, deduplicate: bool) -> None:
    mask = torch.tensor([[True, True, False, True, True, True, True], [False] * 7])
    q, _, v = inputs(heads=1, queries=7, keys=7, width=2)
    assert torch.autograd.gradcheck(
        lambda q, v: lsh_attention(
            q, v, bucket_size=2, n_hashes=2, causal=causal, deduplicate=deduplicate, key_mask=mask
        ),
        (q, v),
    )


@pytest.mark.usefixtures("path")
def test_widths_of_keys_and_values_may_differ() -> None:
    rotations = draw_rotations(2, 3, 2, 3, seed=1).double()
    q, _, v = inputs(queries=9, keys=9, value_width=5)
    assert_agree(
        lambda q, v: lsh_attention(q, v, rotations=rotations, n_hashes=2, bucket_size=4),
        lambda q, v: slow_lsh(q, v, rotations, 4),
        (q, v),
        1e-9,
    )


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"key_mask": MASK}], ids=str)
@pytest.mark.parametrize("n_hashes", [1, 2, 4])
def test_all_ways_to_compute_agree(
    options: dict[str, Any], n_hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, _, v = inputs(3, 4, 13, 13, dtype=torch.float32)

    def core(q: Tensor, v: Tensor) -> Tensor:
        return lsh_attention(q, v, bucket_size=3, n_hashes=n_hashes, **options)

    whole = value_and_gradients(core, (q, v))
    for name, value in {"_SCORES": 13 * 13 * 2, "_DENSE": 0}.items():
        monkeypatch.setattr(lsh, name, value)
        torch.testing.assert_close(value_and_gradients(core, (q, v)), whole, atol=1e-5, rtol=1e-5)
    monkeypatch.setattr(tiles, "_FORWARD", None)
    torch.testing.assert_close(value_and_gradients(core, (q, v)), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("causal", [False, True])
def test_one_chunk_is_full_attention_among_others(causal: bool) -> None:
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


def test_strictly_causal_when_there_is_one_chunk() -> None:
    q, _, v = inputs(queries=12, keys=12)
    before = lsh_attention(q, v, causal=True)[:, :, :7]
    q, v = (torch.cat([x[:, :, :7], 5 + x[:, :, 7:]], dim=2) for x in (q, v))
    assert torch.equal(lsh_attention(q, v, causal=True)[:, :, :7], before)


@pytest.mark.usefixtures("path")
def test_no_value_of_the_future_is_seen() -> None:
    q, _, v = inputs(queries=23, keys=23)
    changed = torch.cat([v[:, :, :9], 5 + v[:, :, 9:]], dim=2)
    a, b = (lsh_attention(q, x, bucket_size=4, causal=True) for x in (v, changed))
    assert torch.equal(a[:, :, :9], b[:, :, :9])
    assert not torch.equal(a[:, :, 9:], b[:, :, 9:])


@pytest.mark.usefixtures("path")
def test_a_step_alone_in_every_round_is_exactly_itself() -> None:
    # With a score of -1e5 instead, float32 would weigh it wrong by up to half a percent.
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
    got = lsh_buckets(q, rotations if of_heads else rotations[0], n_buckets)
    assert got.shape == (2, 2, 2, 11)
    for b in range(2):
        for h in range(2):
            for i in range(11):
                want = slow_buckets(q[b, h, i], rotations[h if of_heads else 0], factors)
                assert got[b, h, :, i].tolist() == want


def test_ties_fall_to_the_first_bucket() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-2.0, -2.0], [1.0, -1.0], [-1.0, 1.0]])
    rotations = torch.eye(2).view(2, 1, 2)  # buckets: +x0, +x1, -x0, -x1
    assert lsh_buckets(x[None, None], rotations, 4).flatten().tolist() == [0, 0, 2, 0, 1]
    assert lsh_buckets(x[None, None], rotations, (2, 2)).flatten().tolist() == [0, 0, 3, 2, 1]


def test_buckets_do_not_depend_on_the_batch() -> None:
    x = torch.randn(19, 97, 2, 24, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    rotations = draw_rotations(2, 24, 3, 5, seed=0)
    rotations[..., 1] = rotations[..., 0] * (1 + 1e-7)  # so that many hashes are nearly tied
    together = lsh_buckets(x, rotations, 10)
    assert all(
        torch.equal(together[b : b + 1], lsh_buckets(x[b : b + 1], rotations, 10))
        for b in range(19)
    )


@pytest.mark.parametrize(
    ("L", "bucket_size", "given", "buckets"),
    [
        (1, 64, None, 2),
        (65, 64, None, 4),
        (4096, 64, None, 128),
        (4097, 64, None, (16, 8)),
        (8192, 64, None, (16, 16)),
        (16384, 64, None, (32, 16)),
        (96, 64, 10, 10),
        (96, 64, 1000, (32, 30)),
        (96, 64, (6, 2), (6, 2)),
    ],
)
def test_number_of_buckets(L: int, bucket_size: int, given: Any, buckets: Any) -> None:
    assert bucket_counts(L, bucket_size, given) == buckets


@pytest.mark.usefixtures("path")
def test_batch_size_and_position_change_nothing() -> None:
    q, v = (torch.randn(8, 2, 61, 8, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    together = lsh_attention(q, v, bucket_size=8)
    assert torch.equal(lsh_attention(q.flip(0), v.flip(0), bucket_size=8).flip(0), together)
    alone = torch.cat([lsh_attention(q[b, None], v[b, None], bucket_size=8) for b in range(8)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_the_seed_decides_the_rotations() -> None:
    q, _, v = inputs(queries=60, keys=60)
    first = lsh_attention(q, v, bucket_size=8)
    assert torch.equal(lsh_attention(q, v, bucket_size=8, seed=0), first)
    assert not torch.equal(lsh_attention(q, v, bucket_size=8, seed=1), first)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_near_the_truth(dtype: torch.dtype, causal: bool) -> None:
    q, _, v = (30 * x.detach() for x in inputs(queries=60, keys=60, width=64, dtype=dtype))
    out = lsh_attention(q, v, bucket_size=8, causal=causal)
    want = lsh_attention(q.float(), v.float(), bucket_size=8, causal=causal)
    assert out.dtype is dtype
    torch.testing.assert_close(out.float(), want, atol=0.1, rtol=0.01)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("n_hashes", [2, 4])
def test_autocast_changes_nothing(n_hashes: int) -> None:
    q, _, v = inputs(queries=40, keys=40, dtype=torch.float32)

    def core(q: Tensor, v: Tensor) -> Tensor:
        return lsh_attention(q, v, bucket_size=8, n_hashes=n_hashes)

    plain = value_and_gradients(core, (q, v))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = value_and_gradients(core, (q, v))
    assert all(torch.equal(x, y) for x, y in zip(plain, mixed, strict=True))


def test_zero_vectors_are_harmless() -> None:
    q, v = torch.zeros(1, 1, 9, 4), torch.randn(1, 1, 9, 4)
    others = (v.sum(2, keepdim=True) - v) / 8
    torch.testing.assert_close(lsh_attention(q, v, bucket_size=9), others)
    assert lsh_attention(q, v, bucket_size=2).isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_size": 0}, "bucket_size must be at least 1, got bucket_size=0"),
        ({"n_hashes": 0}, "n_hashes must be at least 1, got n_hashes=0"),
        ({"eval_hashes": 0}, "eval_hashes must be at least 1, got eval_hashes=0"),
        ({"n_buckets": 7}, "n_buckets must be an even number of at least 2, or a pair .* got 7"),
        ({"n_buckets": 0}, "got 0"),
    ],
)
def test_refuses_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(**options)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3, 4, 5), {"n_hashes": 2}, r"= \(3, 2, 5\), or \(2, 3, 2, 5\) .* shape \(3, 4, 5\)"),
        ((3, 4, 5), {"n_buckets": 8}, r"= \(3, 4, 4\), or"),
        ((3, 4, 5), {"n_buckets": (4, 3)}, r"got \(4, 3\)"),
        ((1, 3, 4, 5), {}, r"or \(2, 3, 4, 5\) for each head"),
    ],
)
def test_refuses_impossible_rotations(
    shape: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    q, _, v = inputs()
    with pytest.raises(ValueError, match=message):
        lsh_attention(q, v, rotations=torch.zeros(shape), **options)


def module(length: int = 23, at: dict[str, Any] = {}, **options: Any) -> LSHAttention:
    torch.manual_seed(0)
    return LSHAttention(Place(6, 2, length, length, **at), **{**MODULE, **options}).eval()


def series(length: int = 23) -> Tensor:
    return torch.randn(3, length, 6, generator=torch.Generator().manual_seed(1))


def test_says_what_it_amounts_to() -> None:
    assert LSHAttention(Place(8, 2, 96, 96)).amounts_to().text == (
        "lsh: 4 rounds of 4 buckets, each step sees at most 96 of 96 in each"
    )
    assert "at most 128 of 8192" in LSHAttention(Place(8, 2, 8192, 8192)).amounts_to().text
    assert "of 16 x 16 buckets" in LSHAttention(Place(8, 2, 8192, 8192)).amounts_to().text
    assert LSHAttention(Place(8, 2, 64, 64)).amounts_to().text == (
        "full: one chunk (L = 64 <= bucket_size = 64), keys from queries"
    )


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"at": {"depth": 1}}, {"at": {"role": "decoder"}}]
)
def test_every_place_and_seed_has_rotations_of_its_own(options: dict[str, Any]) -> None:
    here, there = module(), module(**options)
    assert not torch.equal(here.state_dict()["rotations"], there.state_dict()["rotations"])


def test_evaluates_with_its_own_number_of_rounds() -> None:
    attention = module(n_hashes=1, eval_hashes=3)
    assert attention.state_dict()["rotations"].shape == (2, 3, 3, 6)
    assert torch.equal(attention(series()), module(n_hashes=3)(series()))
    assert not torch.equal(attention.train()(series()), module(n_hashes=3).train()(series()))


def test_one_chunk_keeps_no_rotations() -> None:
    attention = module(4)
    assert "rotations" not in attention.state_dict()
    attention.train()(series(4))
    assert attention.draws == 0


def test_evaluates_with_the_rotations_of_the_state_dict() -> None:
    changed = module()
    rotations = draw_rotations(2, 3, 2, 6, seed=5)
    changed.load_state_dict({**changed.state_dict(), "rotations": rotations})
    assert not torch.equal(changed(series()), module()(series()))


def test_evaluates_at_other_lengths_too() -> None:
    attention, x = module(), series(31)
    with torch.inference_mode():
        first = attention(x)
    again = module()(x.requires_grad_())
    again.sum().backward()
    assert torch.equal(first, again)


def test_training_draws_anew_and_resumes_where_it_stopped(tmp_path: Path) -> None:
    attention, x = module().train(), series()
    attention(x), attention(x)
    save_file(attention.state_dict(), tmp_path / "state.safetensors")
    third, fourth = attention(x), attention(x)
    assert not torch.equal(third, fourth)

    resumed = module().train()
    resumed.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert torch.equal(resumed(x), third)
    assert torch.equal(resumed(x), fourth)


def test_training_does_not_change_what_evaluation_draws() -> None:
    attention, x = module(), series()
    before = attention(x)
    attention.train()(x)
    assert torch.equal(attention.eval()(x), before)


def test_another_process_computes_the_same_bits() -> None:
    program = """
import hashlib, torch
from forecaster.attention import LSHAttention, Place
torch.manual_seed(0)
attention = LSHAttention(Place(6, 2, 23, 23), bucket_size=4, n_hashes=2).eval()
for length in (23, 31):
    x = torch.randn(3, length, 6, generator=torch.Generator().manual_seed(1))
    print(hashlib.sha256(attention(x).detach().numpy().tobytes()).hexdigest())
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    here = [module()(series(length)).detach().numpy().tobytes() for length in (23, 31)]
    assert run.stdout.split() == [hashlib.sha256(out).hexdigest() for out in here]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        q, _, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        lsh_attention(q, v, n_hashes=2, causal=causal).sum().backward()

    run(600)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 2
