import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster.attention import (
    FixedAttention,
    Place,
    fixed,
    fixed_attention,
    full_attention,
)
from forecaster.attention.common import tiles
from forecaster.attention.fixed import FixedPattern

from .agreement import assert_agree, inputs, value_and_gradients
from .memory import peak_mib
from .naive.fixed import fixed as slow

either_path = pytest.mark.parametrize("tiled", [False, True], ids=["masked", "tiled"])


def take(tiled: bool, monkeypatch: pytest.MonkeyPatch, rows: int = 8) -> None:
    """One masked call, or small tiles of causal queries that read summaries."""
    monkeypatch.setattr(fixed, "_SHORT", 0 if tiled else 10**6)
    monkeypatch.setattr(fixed, "_ROWS", rows)


def holes(length: int) -> Tensor:
    """Three key masks: some keys hidden, the first half hidden, all hidden."""
    steps = torch.arange(length)
    return torch.stack([steps % 3 > 0, steps > length // 2, steps < 0])


@either_path
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    tiled: bool,
    causal: bool,
    distinct: bool,
    masked: bool,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take(tiled, monkeypatch)
    options: dict[str, Any] = {
        "stride": 5,
        "summary": 2,
        "causal": causal,
        "distinct_heads": distinct,
        "key_mask": holes(17) if masked else None,
    }
    assert_agree(
        lambda q, k, v: fixed_attention(q, k, v, **options),
        lambda q, k, v: slow(q, k, v, **options),
        inputs(3, 3, queries=17, keys=17, value_width=2, dtype=dtype),
        tolerance,
    )


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "stride", "summary"),
    [
        (1, 1, 1), (1, 5, 2), (2, 1, 1), (17, 2, 1), (17, 16, 3), (17, 17, 3), (24, 6, 5),
        (24, 6, 6), (23, 6, 2), (25, 6, 2), (29, 11, 1),
    ],
)  # fmt: skip
def test_borders_of_tiles_do_not_matter(
    distinct: bool,
    causal: bool,
    length: int,
    stride: int,
    summary: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = inputs(3, 3, queries=length, keys=length)
    mask = torch.rand(3, length, generator=torch.Generator().manual_seed(0)) > 0.2

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fixed_attention(
            q,
            k,
            v,
            stride=stride,
            summary=summary,
            causal=causal,
            distinct_heads=distinct,
            key_mask=mask,
            scale=0.3,
        )

    take(False, monkeypatch)
    want = value_and_gradients(core, tensors)
    for rows in (1, 13):
        take(True, monkeypatch, rows)
        for x, y in zip(value_and_gradients(core, tensors), want, strict=True):
            torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_public_operations_give_the_same_numbers(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(True, monkeypatch)
    tensors = inputs(3, queries=23, keys=23)

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fixed_attention(q, k, v, stride=5, summary=2, causal=causal, key_mask=holes(23))

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
        lambda q, k, v: fixed_attention(
            q, k, v, stride=2, summary=1, causal=causal, key_mask=holes(5)[:1], scale=0.9
        ),
        inputs(1, 1, queries=5, keys=5, width=2),
    )


@either_path
def test_a_query_that_sees_nothing_is_zero_without_gradient(
    tiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tiled, monkeypatch)
    mask = torch.arange(23).expand(2, 23) > 11  # the first 12 queries see nothing
    q, k, v = inputs(queries=23, keys=23)
    out = fixed_attention(q, k, v, stride=5, summary=1, key_mask=mask)
    assert (out[:, :, :12] == 0).all()
    assert (out[:, :, 12:] != 0).all()
    for gradient in torch.autograd.grad(out[:, :, :12].exp().sum(), (q, k, v)):
        assert (gradient == 0).all()


@either_path
@pytest.mark.parametrize("distinct", [False, True])
def test_strictly_causal(tiled: bool, distinct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    take(tiled, monkeypatch)
    q, k, v = inputs(queries=23, keys=23)
    before = fixed_attention(q, k, v, stride=4, summary=2, distinct_heads=distinct)
    for t in (1, 3, 4, 5, 12, 22):
        changed = (torch.cat([x[:, :, :t], 5 + x[:, :, t:]], dim=2) for x in (q, k, v))
        after = fixed_attention(*changed, stride=4, summary=2, distinct_heads=distinct)
        assert torch.equal(after[:, :, :t], before[:, :, :t])
        assert not torch.equal(after[:, :, t], before[:, :, t])


@either_path
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("stride", "summary"), [(13, 1), (99, 4), (4, 4), (1, 1)])
def test_is_full_attention_at_its_limits(
    tiled: bool, causal: bool, stride: int, summary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tiled, monkeypatch)
    q, k, v = inputs(queries=13, keys=13)
    out = fixed_attention(q, k, v, stride=stride, summary=summary, causal=causal)
    torch.testing.assert_close(out, full_attention(q, k, v, causal=causal))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_near_the_truth(
    dtype: torch.dtype, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(True, monkeypatch)
    tensors = [30 * x.detach() for x in inputs(queries=40, keys=40, width=16, dtype=dtype)]

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fixed_attention(q, k, v, stride=6, summary=2, causal=causal)

    got = value_and_gradients(core, tensors)
    want = value_and_gradients(core, [x.double() for x in tensors])
    for x, y in zip(got, want, strict=True):
        assert x.dtype is dtype
        assert x.isfinite().all()
        torch.testing.assert_close(x.double(), y, atol=0.3, rtol=0.02)


def test_the_layout_of_the_input_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    take(True, monkeypatch)
    q, k, v = (x.detach() for x in inputs(queries=23, keys=23))
    plain = fixed_attention(q, k, v, stride=5, summary=1)
    q, k = (x.transpose(0, 3).contiguous().transpose(0, 3) for x in (q, k))
    v = v[:1].expand(2, -1, -1, -1)
    copies = q.clone(), k.clone(), v.clone()
    out = fixed_attention(q, k, v, stride=5, summary=1)
    assert torch.equal(out[:1], plain[:1])
    for x, y in zip((q, k, v), copies, strict=True):
        assert torch.equal(x, y)


def test_the_predicate_broadcasts() -> None:
    i, j = torch.arange(7)[:, None], torch.arange(7)
    assert FixedPattern(3, 1)(i, j)[4].tolist() == [False, False, True, True, True, False, False]
    assert FixedPattern(4, 1, causal=False, slot=1)(torch.tensor(0), torch.tensor(6))


def module(length: int = 23, **options: Any) -> FixedAttention:
    torch.manual_seed(0)
    return FixedAttention(Place(8, 4, length, length), **options)


def test_the_module_passes_its_options_on() -> None:
    attention = module(stride=6, summary=2, distinct_heads=True)
    q, k, v = (x.detach() for x in inputs(2, 4, 23, 23, 2, dtype=torch.float32))
    out = attention.attend(q, k, v, causal=False, key_mask=holes(23)[:2])
    want = slow(q.double(), k.double(), v.double(), 6, 2, False, True, holes(23)[:2])
    torch.testing.assert_close(out.double(), want, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("length", "stride", "summary"), [(1, 1, 1), (2, 1, 1), (84, 9, 1), (8192, 91, 11)]
)
def test_the_default_sizes_follow_from_the_length(length: int, stride: int, summary: int) -> None:
    attention = module(length)
    assert (attention.stride, attention.summary) == (stride, summary)


@pytest.mark.parametrize(
    ("stride", "summary", "message"),
    [
        (0, 1, "stride must be at least 1, got stride=0"),
        (3, 0, "summary must be at least 1, got summary=0"),
        (3, 4, "summary must be at most stride, got summary=4, stride=3"),
    ],
)
def test_refuses_impossible_sizes(stride: int, summary: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(stride=stride, summary=summary)
    with pytest.raises(ValueError, match=message):
        fixed_attention(*inputs(), stride=stride, summary=summary)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "fixed: the own block of 5 and the last 1 of every block, of 23"),
        (
            {"distinct_heads": True, "summary": 2},
            "fixed: the own block of 5 and 2 of every block by head, of 23",
        ),
        ({"stride": 23}, "full: stride 23, summary 2, length 23"),
        ({"stride": 4, "summary": 4}, "full: stride 4, summary 4, length 23"),
    ],
)
def test_says_what_it_amounts_to(options: dict[str, Any], text: str) -> None:
    assert module(**options).amounts_to().text == text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_stay_far_below_a_dense_matrix(causal: bool) -> None:
    def run(length: int) -> None:
        q, k, v = inputs(1, 1, length, length, width=64, dtype=torch.float32)
        fixed_attention(q, k, v, stride=91, summary=11, causal=causal).sum().backward()

    run(640)
    assert peak_mib(lambda: run(8192)) < 8192 * 8192 * 4 / 2**20 / 4
