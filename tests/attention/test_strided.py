import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    Place,
    StridedAttention,
    full_attention,
    strided,
    strided_attention,
)
from forecaster.attention.common import tiles
from forecaster.attention.strided import StridedPattern

from .agreement import assert_agree, inputs, value_and_gradients
from .memory import peak_mib
from .naive.strided import strided as slow

PATTERNS = ["merged", "local", "column"]
either_path = pytest.mark.parametrize("tiled", [False, True], ids=["masked", "tiled"])


def take(tiled: bool, monkeypatch: pytest.MonkeyPatch, block: int = 4, at_once: int = 1) -> None:
    """One masked call, or tiles so small that every kind of border occurs."""
    monkeypatch.setattr(strided, "_SHORT", 0 if tiled else 10**6)
    monkeypatch.setattr(strided, "_BLOCK", block)
    monkeypatch.setattr(strided, "_AT_ONCE", at_once)


def holes(length: int) -> Tensor:
    """Three key masks: some keys hidden, the first half hidden, all hidden."""
    steps = torch.arange(length)
    return torch.stack([steps % 3 > 0, steps > length // 2, steps < 0])


@either_path
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    tiled: bool,
    causal: bool,
    pattern: Any,
    masked: bool,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take(tiled, monkeypatch)
    options: dict[str, Any] = {
        "stride": 3,
        "causal": causal,
        "pattern": pattern,
        "key_mask": holes(13) if masked else None,
    }
    assert_agree(
        lambda q, k, v: strided_attention(q, k, v, **options),
        lambda q, k, v: slow(q, k, v, **options),
        inputs(3, queries=13, keys=13, value_width=2, dtype=dtype),
        tolerance,
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "stride"),
    [(1, 1), (2, 1), (1, 5), (17, 1), (17, 16), (17, 17), (24, 6), (23, 6), (25, 6), (29, 11)],
)
def test_borders_of_tiles_do_not_matter(
    pattern: Any, causal: bool, length: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = inputs(3, queries=length, keys=length)
    options: dict[str, Any] = {"stride": stride, "causal": causal, "pattern": pattern, "scale": 0.3}
    options["key_mask"] = torch.rand(3, length, generator=torch.Generator().manual_seed(0)) > 0.2

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return strided_attention(q, k, v, **options)

    take(False, monkeypatch)
    want = value_and_gradients(core, tensors)
    for block, at_once in ((1, 1), (12, 200)):
        take(True, monkeypatch, block, at_once)
        for x, y in zip(value_and_gradients(core, tensors), want, strict=True):
            torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-9)


def test_public_operations_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    take(True, monkeypatch)
    tensors = inputs(3, queries=23, keys=23)

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return strided_attention(q, k, v, stride=5, causal=False, key_mask=holes(23))

    fused = value_and_gradients(core, tensors)
    monkeypatch.setattr(tiles, "_FORWARD", None)
    for x, y in zip(value_and_gradients(core, tensors), fused, strict=True):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-9)


@either_path
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(
    tiled: bool, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tiled, monkeypatch)
    assert torch.autograd.gradcheck(
        lambda q, k, v: strided_attention(
            q, k, v, stride=2, causal=causal, key_mask=holes(5)[:1], scale=0.9
        ),
        inputs(1, 1, queries=5, keys=5, width=2),
    )


@either_path
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_query_that_sees_nothing_is_zero_without_gradient(
    tiled: bool, pattern: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tiled, monkeypatch)
    mask = torch.arange(23).expand(2, 23) > 11  # the first 12 queries see nothing
    q, k, v = inputs(queries=23, keys=23)
    out = strided_attention(q, k, v, stride=5, pattern=pattern, key_mask=mask)
    assert (out[:, :, :12] == 0).all()
    assert (out[:, :, 12:] != 0).all()
    for gradient in torch.autograd.grad(out[:, :, :12].exp().sum(), (q, k, v)):
        assert (gradient == 0).all()


@either_path
@pytest.mark.parametrize("pattern", PATTERNS)
def test_strictly_causal(tiled: bool, pattern: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    take(tiled, monkeypatch)
    q, k, v = inputs(queries=23, keys=23)
    before = strided_attention(q, k, v, stride=4, pattern=pattern)
    for t in (1, 3, 4, 5, 12, 22):
        changed = (torch.cat([x[:, :, :t], 5 + x[:, :, t:]], dim=2) for x in (q, k, v))
        after = strided_attention(*changed, stride=4, pattern=pattern)
        assert torch.equal(after[:, :, :t], before[:, :, :t])
        assert not torch.equal(after[:, :, t], before[:, :, t])


@either_path
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("stride", "pattern"), [(13, "merged"), (99, "merged"), (13, "local"), (1, "column")]
)
def test_is_full_attention_at_its_limits(
    tiled: bool, causal: bool, stride: int, pattern: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tiled, monkeypatch)
    q, k, v = inputs(queries=13, keys=13)
    out = strided_attention(q, k, v, stride=stride, causal=causal, pattern=pattern)
    torch.testing.assert_close(out, full_attention(q, k, v, causal=causal))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_near_the_truth(
    dtype: torch.dtype, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(True, monkeypatch)
    tensors = [30 * x.detach() for x in inputs(queries=40, keys=40, width=16, dtype=dtype)]

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return strided_attention(q, k, v, stride=6, causal=causal)

    got = value_and_gradients(core, tensors)
    want = value_and_gradients(core, [x.double() for x in tensors])
    for x, y in zip(got, want, strict=True):
        assert x.dtype is dtype
        assert x.isfinite().all()
        torch.testing.assert_close(x.double(), y, atol=0.3, rtol=0.02)


def test_the_layout_of_the_input_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    take(True, monkeypatch)
    q, k, v = (x.detach() for x in inputs(queries=23, keys=23))
    plain = strided_attention(q, k, v, stride=5)
    q, k = (x.transpose(0, 3).contiguous().transpose(0, 3) for x in (q, k))
    v = v[:1].expand(2, -1, -1, -1)
    copies = q.clone(), k.clone(), v.clone()
    out = strided_attention(q, k, v, stride=5)
    assert torch.equal(out[:1], plain[:1])
    for x, y in zip((q, k, v), copies, strict=True):
        assert torch.equal(x, y)


def test_refuses_an_impossible_stride() -> None:
    for build in (lambda: module(stride=0), lambda: strided_attention(*inputs(), stride=0)):
        with pytest.raises(ValueError, match="stride must be at least 1, got stride=0"):
            build()


def test_the_predicate_broadcasts() -> None:
    i, j = torch.arange(7)[:, None], torch.arange(7)
    assert StridedPattern(3)(i, j)[5].tolist() == [False, False, True, True, True, True, False]
    assert StridedPattern(3, causal=False, keys="column")(torch.tensor(5), torch.tensor(2))


def module(heads: Any = "merged", depth: int = 0, **options: Any) -> StridedAttention:
    torch.manual_seed(0)
    return StridedAttention(Place(8, 4, 23, 23, depth), heads=heads, **options)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "depth", "patterns"),
    [
        ("merged", 1, ["merged"] * 4),
        ("interleaved", 0, ["local"] * 4),
        ("interleaved", 1, ["column"] * 4),
        ("interleaved", 2, ["local"] * 4),
        ("split", 0, ["local", "local", "column", "column"]),
    ],
)
def test_heads_share_the_sets_out(
    heads: Any, depth: int, patterns: list[str], causal: bool
) -> None:
    attention = module(heads, depth, stride=4)
    q, k, v = (x.detach() for x in inputs(2, 4, 23, 23, 2, dtype=torch.float32))
    out = attention.attend(q, k, v, causal=causal, key_mask=holes(23)[:2])
    for h, pattern in enumerate(patterns):
        one = (x[:, h : h + 1].double() for x in (q, k, v))
        want = slow(*one, 4, causal, pattern, holes(23)[:2])
        torch.testing.assert_close(out[:, h : h + 1].double(), want, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (2, 1), (84, 9), (8192, 91)])
def test_the_default_stride_is_the_root_of_the_length(length: int, stride: int) -> None:
    assert StridedAttention(Place(8, 4, length, length)).stride == stride


def test_one_head_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="needs at least 2 heads, got 1"):
        StridedAttention(Place(8, 1, 23, 23), heads="split")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "strided: steps less than 5 apart or multiples of 5 apart, of 23"),
        ({"stride": 23}, "full: stride 23, length 23"),
        ({"stride": 1}, "full: stride 1, length 23"),
        ({"heads": "interleaved"}, "strided: steps less than 5 apart, of 23"),
        ({"heads": "interleaved", "depth": 1}, "strided: steps multiples of 5 apart, of 23"),
        (
            {"heads": "split"},
            "strided: steps less than 5 apart in 2 heads, multiples of 5 apart in 2, of 23",
        ),
    ],
)
def test_says_what_it_amounts_to(options: dict[str, Any], text: str) -> None:
    assert module(**options).amounts_to().text == text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        strided_attention(q, k, v, stride=91, causal=causal).sum().backward()

    run(640)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 4
