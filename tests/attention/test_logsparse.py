import math
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import Place, full_attention, logsparse
from forecaster.attention.common import tiles
from forecaster.attention.logsparse import (
    LogSparseAttention,
    log_sparse_attention,
    log_sparse_offsets,
    log_sparse_pattern,
)

from .agreement import assert_agree, inputs, value_and_gradients
from .memory import peak_mib
from .naive.logsparse import log_sparse, offsets

# 23 steps: some hidden, the first ones hidden (so early causal rows are empty), all hidden.
MASK = torch.stack([torch.arange(23) % 3 > 0, torch.arange(23) > 16, torch.zeros(23) > 0])

OPTIONS: list[dict[str, Any]] = [
    {},
    {"local_len": 1, "dense_prefix": 6},
    {"local_len": 14},
    {"sub_len": 10, "dense_prefix": 13},
    {"sub_len": 3},
    {"sub_len": 60},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)
both_directions = pytest.mark.parametrize("causal", [True, False])


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One masked call, or the way of long series: tiles (small ones, 3 at a time) and slices."""
    if request.param == "tiles":
        small = {"_BLOCK": 4, "_TALLEST": 8, "_SLICE": 1}
        by_machine = {"_DENSE": 0, "_CHUNK": 3 * (3 * 2 * 3) * 4}
        for name, value in small.items():
            monkeypatch.setattr(logsparse, name, value)
        for name, value in by_machine.items():
            monkeypatch.setattr(logsparse, name, {"cpu": value})
    logsparse._plan.cache_clear()
    yield
    logsparse._plan.cache_clear()


in_tiles = pytest.mark.parametrize("way", ["tiles"], indirect=True)
both_ways = pytest.mark.parametrize("way", ["mask", "tiles"], indirect=True)


def both(core: Any, tensors: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """Value and gradients by one masked call, and by tiles and slices."""
    results = []
    for dense in (10_000, 0):
        monkeypatch.setattr(logsparse, "_DENSE", {"cpu": dense})
        results.append(value_and_gradients(core, tensors))
    return results


def series(length: int = 23, batch: int = 3) -> Tensor:
    return torch.randn(batch, length, 6, generator=torch.Generator().manual_seed(1))


def module(length: int = 23, **options: Any) -> LogSparseAttention:
    torch.manual_seed(0)
    return LogSparseAttention(Place(6, 2, length, length), **options).eval()


@pytest.mark.parametrize(
    ("length", "sub_len", "local_len", "distances"),
    [
        (1, None, None, [0]),
        (10, None, 1, [0, 1, 2, 4, 8]),  # the basic set of the paper
        (10, None, 3, [0, 1, 2, 3, 4, 6]),
        (12, 4, 1, [0, 1, 2, 4, 5, 6, 8, 9, 10]),
        (12, 5, 2, [0, 1, 2, 3, 5, 6, 7, 8, 10, 11]),
        (4096, None, None, [*range(12), *(11 + 2**n for n in range(12))]),
    ],
)
def test_offsets(
    length: int, sub_len: int | None, local_len: int | None, distances: list[int]
) -> None:
    assert log_sparse_offsets(length, sub_len, local_len) == distances


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 257])
def test_offsets_equal_their_definition_and_keep_their_bound(length: int) -> None:
    for sub_len, local_len in product([None, 1, 2, 7, 64, 300], [None, 1, 5, 40]):
        got = log_sparse_offsets(length, sub_len, local_len)
        assert got == offsets(length, sub_len, local_len)
        period = sub_len or length
        window = local_len or max(1, math.ceil(math.log2(period)))
        assert len(got) <= math.ceil(length / period) * (window + math.ceil(math.log2(period)))


@both_directions
def test_the_pattern_is_a_predicate_on_positions(causal: bool) -> None:
    pattern = log_sparse_pattern(20, 8, 2, 5, causal)
    steps = torch.arange(20)
    visible = pattern(steps[:, None], steps)
    seen = set(offsets(20, 8, 2))
    for i in range(20):
        for j in range(20):
            want = (abs(i - j) in seen or max(i, j) < 5) and (j <= i or not causal)
            assert visible[i, j] == want == pattern(torch.tensor(i), torch.tensor(j))
    assert hash(pattern) == hash(log_sparse_pattern(20, 8, 2, 5, causal))


@both_ways
@both_directions
@every_option
def test_equals_its_definition(way: None, causal: bool, options: dict[str, Any]) -> None:
    options = {**options, "causal": causal, "key_mask": MASK}
    assert_agree(
        lambda q, k, v: log_sparse_attention(q, k, v, **options),
        lambda q, k, v: log_sparse(q, k, v, **options),
        inputs(3, 1, queries=23, keys=23),
        1e-9,
    )


@both_ways
@both_directions
def test_equals_its_definition_in_float32(way: None, causal: bool) -> None:
    options: dict[str, Any] = {"causal": causal, "key_mask": MASK, "scale": 1.7}
    assert_agree(
        lambda q, k, v: log_sparse_attention(q, k, v, **options),
        lambda q, k, v: log_sparse(q, k, v, **options),
        inputs(3, 2, queries=23, keys=23, value_width=5, dtype=torch.float32),
        1e-4,
    )


@in_tiles
@both_directions
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 12, 17])
def test_every_length_in_tiles(way: None, causal: bool, length: int) -> None:
    assert_agree(
        lambda q, k, v: log_sparse_attention(q, k, v, causal=causal),
        lambda q, k, v: log_sparse(q, k, v, causal=causal),
        inputs(2, 1, queries=length, keys=length),
        1e-9,
    )


@both_directions
@every_option
@pytest.mark.parametrize(("length", "at_once"), [(151, 1), (389, 1 << 19)])
def test_masked_call_and_tiles_of_full_size_agree(
    causal: bool,
    options: dict[str, Any],
    length: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logsparse, "_CHUNK", {"cpu": at_once})
    mask = torch.rand(2, length, generator=torch.Generator().manual_seed(2)) > 0.3
    mask[1, 70:] = False
    results = both(
        lambda q, k, v: log_sparse_attention(q, k, v, causal=causal, key_mask=mask, **options),
        inputs(2, 2, length, length),
        monkeypatch,
    )
    for dense, tiled in zip(*results, strict=True):
        torch.testing.assert_close(tiled, dense, atol=1e-10, rtol=1e-9)


@in_tiles
@both_directions
def test_public_operations_give_the_same(
    way: None, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Tensor]:
        return value_and_gradients(
            lambda q, k, v: log_sparse_attention(q, k, v, causal=causal, key_mask=MASK),
            inputs(3, 2, queries=23, keys=23),
        )

    private = run()
    monkeypatch.setattr(tiles, "_FORWARD", None)
    for x, y in zip(private, run(), strict=True):
        torch.testing.assert_close(x, y, atol=1e-11, rtol=1e-9)


@both_ways
@pytest.mark.parametrize(("causal", "dense_prefix"), [(True, 0), (False, 3)])
def test_gradients_by_finite_differences(way: None, causal: bool, dense_prefix: int) -> None:
    mask = torch.tensor([[False, True, True, False, True, True, True], [False] * 7])
    assert torch.autograd.gradcheck(
        lambda q, k, v: log_sparse_attention(
            q, k, v, local_len=1, causal=causal, dense_prefix=dense_prefix, key_mask=mask
        ),
        inputs(heads=1, queries=7, keys=7, width=2),
    )


@both_ways
@both_directions
@pytest.mark.parametrize("options", [{"local_len": 23}, {"dense_prefix": 23}, {"sub_len": 1}])
def test_is_full_attention_when_all_is_visible(
    way: None, causal: bool, options: dict[str, int]
) -> None:
    q, k, v = inputs(queries=23, keys=23)
    out = log_sparse_attention(q, k, v, causal=causal, **options)
    full = full_attention(q, k, v, causal=causal)
    torch.testing.assert_close(out, full, atol=1e-12, rtol=1e-10)


@both_ways
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_series_shorter_than_the_pattern_sees_itself_and_no_future(
    way: None, length: int
) -> None:
    q, k, v = inputs(queries=length, keys=length)
    out = log_sparse_attention(q, k, v, sub_len=64, local_len=1)
    torch.testing.assert_close(out[:, :, 0], v[:, :, 0])


@both_ways
@both_directions
@pytest.mark.parametrize("expanded", [False, True])
def test_strides_do_not_matter(way: None, causal: bool, expanded: bool) -> None:
    q, k, v = (x.detach() for x in inputs(3, 2, queries=23, keys=23))
    if expanded:
        q, k, v = (x[:, :1].expand(3, 2, 23, 3) for x in (q, k, v))
    turned = [x.mT.contiguous().mT for x in (q, k, v)]

    def run(*tensors: Tensor) -> list[Tensor]:
        tensors = tuple(x.requires_grad_() for x in tensors)
        out = log_sparse_attention(*tensors, causal=causal, key_mask=MASK.T.contiguous().T)
        gradient = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(3, 23, 3, 2)
        return [out, *torch.autograd.grad(out, tensors, gradient.permute(0, 3, 1, 2))]

    for x, y in zip(run(q, k, v), run(*turned), strict=True):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-10)


@both_ways
@both_directions
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_the_truth(way: None, causal: bool, dtype: torch.dtype) -> None:
    tensors = [30 * x.detach() for x in inputs(3, 2, queries=23, keys=23, dtype=dtype)]
    results = [
        value_and_gradients(
            lambda q, k, v: log_sparse_attention(q, k, v, causal=causal, key_mask=MASK), some
        )
        for some in (tensors, [x.double() for x in tensors])
    ]
    assert all(x.dtype is dtype and x.isfinite().all() for x in results[0])
    torch.testing.assert_close(results[0][0].double(), results[1][0], atol=0.5, rtol=0.02)


@both_ways
def test_autocast_computes_in_float32_at_least_in_tiles(way: None) -> None:
    tensors = inputs(3, 2, queries=23, keys=23, width=8, dtype=torch.float32)
    plain = log_sparse_attention(*tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = log_sparse_attention(*tensors)
    exact = logsparse._DENSE["cpu"] == 0
    torch.testing.assert_close(out.float(), plain, atol=1e-6 if exact else 0.05, rtol=0.05)


@both_ways
def test_works_in_inference_and_then_in_training(way: None) -> None:
    attention, x = module(23), series(23)
    with torch.inference_mode():
        before = attention(x, causal=True)
    after = attention(x.requires_grad_(), causal=True)
    after.sum().backward()
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sub_len": 0}, "sub_len must be at least 1, got sub_len=0"),
        ({"local_len": 0}, "local_len must be at least 1, got local_len=0"),
        ({"dense_prefix": -1}, "dense_prefix must be at least 0, got dense_prefix=-1"),
        ({"kernel_size": 0}, "kernel_size must be at least 1, got kernel_size=0"),
    ],
)
def test_refuses_impossible_options(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(**options)


def test_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="got 7 queries, 9 keys"):
        log_sparse_attention(*inputs(queries=7, keys=9), causal=False)


def test_says_what_it_amounts_to() -> None:
    assert module(96).amounts_to().text == "logsparse: 14 of 96 distances visible"
    assert module(96, sub_len=24).amounts_to().text == "logsparse: 40 of 96 distances visible"
    assert module(4).amounts_to().text == "full: all of 4 distances visible"
    assert module(96, dense_prefix=96).amounts_to().text == "full: all of 96 distances visible"


@both_directions
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
def test_queries_and_keys_are_convolutions_over_time(causal: bool, kernel_size: int) -> None:
    attention, x = module(11, kernel_size=kernel_size), series(11)
    before = kernel_size - 1 if causal else kernel_size // 2

    def convolved(convolution: torch.nn.Module) -> Tensor:
        weight, bias = convolution.weight, convolution.bias
        assert isinstance(weight, Tensor)
        assert isinstance(bias, Tensor)
        steps = []
        for t in range(11):
            step = bias.expand(3, 6)
            for n in range(kernel_size):
                if 0 <= t - before + n < 11:
                    step = step + x[:, t - before + n] @ weight[:, :, n].T
            steps.append(step)
        return torch.stack(steps, dim=1).view(3, 11, 2, 3).transpose(1, 2)

    q, k = convolved(attention.query_projection), convolved(attention.key_projection)
    v = attention.value_projection(x).view(3, 11, 2, 3).transpose(1, 2)
    out = log_sparse(q, k, v, causal=causal).transpose(1, 2).flatten(2)
    torch.testing.assert_close(
        attention(x, causal=causal), attention.out_projection(out), atol=1e-5, rtol=1e-4
    )


@both_ways
@both_directions
@pytest.mark.parametrize("kernel_size", [3, 6])
def test_padding_changes_neither_pattern_nor_convolutions(
    way: None, causal: bool, kernel_size: int
) -> None:
    attention, x = module(kernel_size=kernel_size), series()
    real = torch.arange(23) < torch.tensor([23, 12, 3])[:, None]
    padded = torch.where(real[..., None], x, 1e3)
    with torch.no_grad():
        out = attention(padded, causal=causal, key_mask=real)
        for b, length in enumerate((23, 12, 3)):
            alone = attention(x[b : b + 1, :length], causal=causal)
            torch.testing.assert_close(out[b, :length], alone[0], atol=1e-5, rtol=1e-4)


@both_ways
def test_strictly_causal(way: None) -> None:
    attention, x = module(23), series(23)
    before = attention(x, causal=True)
    for t in (1, 4, 8, 15, 22):
        changed = torch.cat([x[:, :t], 5 + x[:, t:]], dim=1)
        torch.testing.assert_close(
            attention(changed, causal=True)[:, :t], before[:, :t], atol=1e-6, rtol=1e-5
        )


@both_ways
@both_directions
def test_empty_rows_are_zero_and_take_no_part_in_gradients(way: None, causal: bool) -> None:
    q, k, v = inputs(3, 2, queries=23, keys=23)
    steps = torch.arange(23)
    pattern = log_sparse_pattern(23, local_len=2, causal=causal)
    empty = ~(pattern(steps[:, None], steps) & MASK[:, None]).any(2)  # (B, L)
    assert 23 < empty.sum() < 2 * 23
    out = log_sparse_attention(q, k, v, causal=causal, key_mask=MASK, local_len=2).transpose(1, 2)
    assert (out[empty] == 0).all()
    weights = torch.where(empty, 1e6, 0.0).double()[:, :, None, None].expand_as(out)
    gradients = torch.autograd.grad(out, (q, k, v), weights, retain_graph=True)
    assert all((gradient == 0).all() for gradient in gradients)
    (gradient,) = torch.autograd.grad(out, q, torch.ones_like(out))
    assert (gradient.transpose(1, 2)[empty] == 0).all()
    assert (gradient.transpose(1, 2)[~empty] != 0).any()


@both_directions
def test_plan_costs_less_than_a_dense_matrix(causal: bool) -> None:
    L = 8192
    pattern = log_sparse_pattern(L, causal=causal)
    height, reach, far = logsparse._plan(L, pattern)
    assert (height + 2 * reach, len(far)) == (96, 8 if causal else 16)
    dense = log_sparse_pattern(L, sub_len=8, causal=causal)  # 6 of every 8 distances
    assert logsparse._plan(L, dense)[2] == ()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@both_directions
@pytest.mark.parametrize("options", [{}, {"sub_len": 4096, "dense_prefix": 200}], ids=str)
def test_long_series_stay_far_below_a_dense_matrix(causal: bool, options: dict[str, int]) -> None:
    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        log_sparse_attention(q, k, v, causal=causal, **options).sum().backward()

    run(512)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 4
