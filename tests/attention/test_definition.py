"""Every function equals the definition in its file, forward and gradient, whatever way it takes.

A way sets constants that choose between kernels and cut series into parts, so that every kind of
border occurs at the short lengths of these tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from forecaster import attention
from forecaster.attention import full_attention
from forecaster.attention.common import banded, gated, prefix, tiles
from forecaster.attention.lsh import bucket_counts, draw_rotations

from .agreement import Core, assert_agree, inputs, value_and_gradients

Options = dict[str, Any]
Way = dict[Any, dict[str, Any]]
"""Constants by module; the file of the mechanism is named ""."""

HEADS, WIDTH, VALUES, LONG = 2, 3, 5, 13
MASK = torch.stack([torch.arange(37) % 3 > 0, torch.arange(37) > 10, torch.zeros(37) > 0])
"""Some keys hidden, the first hidden (so that early causal rows see none), all hidden."""


def draw(*shape: int, dtype: torch.dtype, size: float = 1.0) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(5)).double()
    return (size * drawn).to(dtype).requires_grad_()


def qkv(
    L: int, S: int, dtype: torch.dtype, values: int = VALUES, **options: Any
) -> tuple[dict[str, Tensor], Options]:
    """The tensors by name, and the options that the function gets."""
    x = inputs(3, HEADS, L, S, WIDTH, values, dtype)
    return dict(zip("qkv", x, strict=True)), options


def equal_widths(L: int, S: int, dtype: torch.dtype, **options: Any) -> Any:
    return qkv(L, S, dtype, WIDTH, **options)


def prob(L: int, S: int, dtype: torch.dtype, **options: Any) -> Any:
    sample = torch.randint(S, (L, 4), generator=torch.Generator().manual_seed(0))
    return qkv(L, S, dtype, **{"sample_index": sample, **options})


def lsh(L: int, S: int, dtype: torch.dtype, **options: Any) -> Any:
    options = {"bucket_size": 4, "n_hashes": 2, **options}
    tensors, _ = qkv(L, S, dtype)
    buckets = options.setdefault("n_buckets", bucket_counts(L, options["bucket_size"]))
    columns = (sum(buckets) if isinstance(buckets, tuple) else buckets) // 2
    rotations = draw_rotations(HEADS, WIDTH, options["n_hashes"], columns, seed=7).double()
    return {"qk": tensors["q"], "v": tensors["v"]}, {**options, "rotations": rotations}


def single(L: int, S: int, dtype: torch.dtype, **options: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    return {name: x[:, :1] for name, x in tensors.items()}, options


def fastformer(
    L: int, S: int, dtype: torch.dtype, width: int = 6, size: float = 1.0, **options: Any
) -> Any:
    tensors, _ = qkv(L, S, dtype, WIDTH)
    for name in ("query", "key"):
        tensors[f"{name}_weight"] = draw(HEADS, width, dtype=dtype, size=size)
        tensors[f"{name}_bias"] = draw(HEADS, dtype=dtype)
    return tensors, options


def gau(L: int, S: int, dtype: torch.dtype, bias: str = "", **options: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    longest = max(L, S)
    shapes = {"bias": (L, S), "biases": (HEADS, L, S), "line": (2 * longest + 3,)}
    shapes["lines"] = (HEADS, 2 * longest - 1)
    if bias:
        name = "relative_bias" if bias.startswith("line") else "bias"
        tensors[name] = draw(*shapes[bias], dtype=dtype)
    return tensors, options


def flash(L: int, S: int, dtype: torch.dtype, bias: bool | int = False, **options: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    quad_q, quad_k, v = tensors.values()
    lin_q, lin_k, _ = inputs(3, HEADS, L, S, 4, dtype=dtype, seed=1)
    tensors = {"quad_q": quad_q, "quad_k": quad_k, "lin_q": lin_q, "lin_k": lin_k, "v": v}
    if bias:
        square = [options["chunk_size"]] * 2
        tensors["bias"] = draw(*([HEADS] if bias > 1 else []), *square, dtype=dtype)
    return tensors, options


def diff(L: int, S: int, dtype: torch.dtype, **options: Any) -> Any:
    (q1, k1, v), (q2, k2, _) = (
        inputs(3, HEADS, L, S, WIDTH, VALUES, dtype, seed=seed) for seed in (0, 1)
    )
    tensors = {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "v": v}
    if "lam" not in options:
        tensors["lam"] = torch.linspace(-0.3, 0.7, HEADS, dtype=dtype).requires_grad_()
    return tensors, options


def aft_full(
    L: int, S: int, dtype: torch.dtype, form: str = "bias", size: float = 1.0, **options: Any
) -> Any:
    tensors, _ = qkv(L, S, dtype, WIDTH)
    shapes = {"bias": [(L, S)], "by head": [(HEADS, L, S)], "pair": [(L, 4), (S, 4)]}[form]
    names = ["position_bias"] if len(shapes) == 1 else ["rows", "columns"]
    drawn = (draw(*shape, dtype=dtype, size=size) for shape in shapes)
    return {**tensors, **dict(zip(names, drawn, strict=True))}, options


def aft_local(
    L: int, S: int, dtype: torch.dtype, heads: int | None = None, size: float = 1.0, **options: Any
) -> Any:
    tensors, _ = qkv(L, S, dtype, WIDTH)
    shape = [heads] * (heads is not None) + [L, 2 * options["window"] - 1]
    return {**tensors, "band_bias": draw(*shape, dtype=dtype, size=size)}, options


def aft_conv(L: int, S: int, dtype: torch.dtype, window: int = 5, keys: int = 1, **o: Any) -> Any:
    tensors, _ = qkv(L, S, dtype, WIDTH)
    kernel = draw(HEADS, window, dtype=dtype)
    return {**tensors, "k": tensors["k"][..., :keys], "kernel": kernel}, o


def static(L: int, S: int, dtype: torch.dtype, size: float = 2.0, **options: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    return {"v": tensors["v"], "A": draw(HEADS, L, S, dtype=dtype, size=size)}, options


@dataclass(frozen=True)
class Case:
    """`across`: L and S may differ. `full`: options that make it full attention for 13 steps."""

    function: str
    options: tuple[Options, ...] = ({},)
    ways: tuple[Way, ...] = ({},)
    build: Callable[..., Any] = qkv
    across: bool = False
    full: tuple[Options, ...] = ()


PUBLIC: dict[str, Any] = {"_FORWARD": None}
BAND: Way = {banded: {"_TILE": 4, "_DENSE": 4}}
LOG_TILES: Way = {
    "": {"_DENSE": {"cpu": 0}, "_CHUNK": {"cpu": 216}, "_BLOCK": 4, "_TALLEST": 8, "_SLICE": 1}
}
STRIDED_TILES: Way = {"": {"_SHORT": 0, "_BLOCK": 4, "_AT_ONCE": 1}}
FIXED_TILES: Way = {"": {"_SHORT": 0, "_ROWS": 8}}
PREFIX: Way = {prefix: {"_AT_ONCE": 24, "_CHUNK": 4}}
ONE_TILE_OF_ONE_HEAD: dict[str, Any] = {"scores_at_once": lambda x: 1}

CASES = {
    "full": Case("full_attention", ({}, {"scale": 0.7}), across=True, full=({},)),
    "prob": Case(
        "prob_sparse_attention",
        ({"factor": 1}, {"factor": 1, "variant": "informer2020", "scale": 0.3}),
        ({}, {"": {"_SCORES": 1}}, {"": {"_SCORES": 13 * 4 * 2}}),
        prob, across=True, full=({"factor": 5, "sample_index": None},),
    ),
    "logsparse": Case(
        "log_sparse_attention",
        ({}, {"local_len": 1, "dense_prefix": 6}, {"local_len": 7, "scale": 1.7},
         {"sub_len": 10, "dense_prefix": 11}, {"sub_len": 3}, {"sub_len": 60}),
        ({}, LOG_TILES, {**LOG_TILES, tiles: PUBLIC}),
        full=({"local_len": 13}, {"dense_prefix": 13}, {"sub_len": 1}),
    ),
    "lsh": Case(
        "lsh_attention",
        ({"scale": 0.7}, {"deduplicate": True}, {"n_hashes": 3, "bucket_size": 3},
         {"n_hashes": 1}, {"n_buckets": (2, 4)}, {"n_buckets": 10}, {"bucket_size": 40}),
        ({}, {"": {"_DENSE": 0}}, {"": {"_SCORES": 1}}, {"": {"_DENSE": 0, "_SCORES": 13 * 13 * 2}},
         {"": {"_DENSE": 0}, tiles: PUBLIC}),
        lsh,
    ),
    "strided": Case(
        "strided_attention",
        ({"stride": 3}, {"stride": 3, "pattern": "local"}, {"stride": 5, "pattern": "column"},
         {"stride": 1, "pattern": "local", "scale": 0.3}, {"stride": 12}),
        ({}, STRIDED_TILES, {"": {"_SHORT": 0, "_BLOCK": 1}}, {**STRIDED_TILES, tiles: PUBLIC}),
        full=({"stride": 13}, {"stride": 99, "pattern": "local"},
              {"stride": 1, "pattern": "column"}),
    ),
    "fixed": Case(
        "fixed_attention",
        ({"stride": 5, "summary": 2}, {"stride": 5, "summary": 2, "distinct_heads": True},
         {"stride": 2, "summary": 1, "scale": 0.3}, {"stride": 6, "summary": 5}),
        ({}, FIXED_TILES, {"": {"_SHORT": 0, "_ROWS": 1}}, {**FIXED_TILES, tiles: PUBLIC}),
        full=({"stride": 13, "summary": 1}, {"stride": 99, "summary": 4},
              {"stride": 4, "summary": 4}),
    ),
    "topk": Case(
        "topk_attention",
        ({"topk": 3}, {"topk": 2, "scale": 0.7}),
        ({}, {"": {"_SHORT": 0}}, {"": {"_SHORT": 0, "_GROUP": 2}},
         {"": {"_SHORT": 0, "_SCORES": 50, "_ROWS": 3}}, {"": {"_SCORES": 90, "_ROWS": 4}}),
        across=True, full=({"topk": 13}, {"topk": 14}),
    ),
    "single": Case("single_head_attention", build=single, across=True),
    "fastformer": Case(
        "additive_attention", ({}, {"width": 3}, {"size": 25.0}), ({}, PREFIX), fastformer
    ),
    "gau": Case(
        "relu_squared_attention",
        ({}, *({"bias": each} for each in ("bias", "biases", "line", "lines")),
         {"normalizer": "ns", "bias": "line"}),
        ({}, {"": {"_largest_tile": lambda x: 4}, gated: ONE_TILE_OF_ONE_HEAD},
         {"": {"_largest_tile": lambda x: 5}}),
        gau, across=True,
    ),
    "flash": Case(
        "mixed_chunk_attention",
        ({"chunk_size": 4}, {"chunk_size": 4, "bias": 1}, {"chunk_size": 5, "bias": 2},
         {"chunk_size": 20, "bias": 1, "linear_scale": 0.3}, {"chunk_size": 1}),
        ({}, {gated: ONE_TILE_OF_ONE_HEAD}, {gated: {"scores_at_once": lambda x: 40}}),
        flash,
    ),
    "diff": Case(
        "differential_attention",
        ({}, {"scale": 0.4, "lam": 0.25}, {"lam": torch.tensor(0.25).double()}),
        ({}, {"": {"_BY_BLOCKS": set()}},
         *({"": {"_SCORES": n, "_MOST_SCORES": n, "_CAUSAL_ROWS": 5}} for n in (1, 30, 13 * 13))),
        diff, across=True,
    ),
    "aft-full": Case(
        "aft_attention",
        ({}, {"form": "by head"}, {"form": "pair"}, {"form": "pair", "size": 9.0}, {"size": 80.0}),
        ({}, {"": {"_BIASES": 40}}),
        aft_full, across=True,
    ),
    "aft-local": Case(
        "aft_local_attention",
        ({"window": 3}, {"window": 1}, {"window": 6, "heads": 2}, {"window": 14, "size": 9.0}),
        ({}, BAND, {banded: {"_AT_ONCE": 1}}, {banded: {"_AT_ONCE": 60}},
         {banded: {"_reach": lambda kind: 0.0}},
         {banded: {**BAND[banded], "_reach": lambda kind: 0.0}}),
        aft_local,
    ),
    "aft-simple": Case("aft_simple_attention", ({},), ({}, PREFIX), equal_widths, across=True),
    "aft-conv": Case(
        "aft_conv_attention", ({}, {"keys": 3}, {"window": 11}, {"window": 29}, {"window": 1}),
        ({}, BAND, {**BAND, banded: {**BAND[banded], "_reach": lambda kind: 0.0}}), aft_conv,
    ),
    "static": Case("static_attention", ({}, {"size": 20.0}), build=static, across=True),
    "mean": Case("mean_attention", across=True),
}  # fmt: skip

every = pytest.mark.parametrize("name", CASES)
both = pytest.mark.parametrize("causal", [False, True])
ways = pytest.mark.parametrize(
    ("name", "way"), [(name, n) for name, case in CASES.items() for n in range(len(case.ways))]
)


def take(name: str, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = import_module(f"forecaster.attention.{name.replace('-', '_')}")
    if hasattr(own, "_plan"):
        own._plan.cache_clear()
    for module, constants in CASES[name].ways[way].items():
        for constant, value in constants.items():
            monkeypatch.setattr(module or own, constant, value)


def cores(name: str, names: Any, options: Options) -> tuple[Core, Core]:
    """The function and its definition, of tensors with these names."""

    def of(function: Callable[..., Tensor]) -> Core:
        def core(*x: Tensor) -> Tensor:
            tensors: dict[str, Any] = dict(zip(names, x, strict=True))
            if "rows" in tensors:
                tensors["position_bias"] = tensors.pop("rows"), tensors.pop("columns")
            return function(**tensors, **options)

        return core

    file = import_module(f"forecaster.attention.{name.replace('-', '_')}")
    return of(getattr(attention, CASES[name].function)), of(file.definition)


def agree(name: str, L: int, S: int, dtype: torch.dtype, options: Options) -> None:
    tensors, options = CASES[name].build(L, S, dtype, **options)
    fast, slow = cores(name, tensors, options)
    tolerance = 1e-9 if dtype is torch.float64 else 1e-4
    assert_agree(fast, slow, list(tensors.values()), tolerance)


@ways
@both
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_equals_its_definition(
    name: str,
    way: int,
    causal: bool,
    masked: bool,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take(name, way, monkeypatch)
    for options in CASES[name].options:
        mask = MASK[:, :LONG] if masked else None
        agree(name, LONG, LONG, dtype, {**options, "causal": causal, "key_mask": mask})


@ways
@both
def test_at_any_length(name: str, way: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    take(name, way, monkeypatch)
    first = CASES[name].options[0]
    for L in (1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 31, 32, 33):
        agree(name, L, L, torch.float64, {**first, "causal": causal})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.across])
def test_with_more_or_fewer_keys_than_queries(name: str) -> None:
    for L, S in ((7, 13), (13, 7), (1, 5), (5, 1), (3, 29)):
        for options in CASES[name].options:
            agree(name, L, S, torch.float64, options)
        agree(name, L, S, torch.float64, {**CASES[name].options[0], "key_mask": MASK[:, :S]})


@ways
@both
def test_gradients_by_finite_differences(
    name: str, way: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(name, way, monkeypatch)
    options = {**CASES[name].options[0], "causal": causal, "key_mask": MASK[:1, :5]}
    tensors, options = CASES[name].build(5, 5, torch.float64, **options)
    names, shared = list(tensors), {"query_weight", "A", "kernel", "lam", "bias"}
    few = [
        x.detach() if key in shared or "weight" in key or "bias" in key else x.detach()[:1]
        for key, x in tensors.items()
    ]
    fast, _ = cores(name, names, options)
    assert torch.autograd.gradcheck(fast, [x.requires_grad_() for x in few], fast_mode=True)


@ways
@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_the_truth(
    name: str, way: int, causal: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(name, way, monkeypatch)
    tensors, options = CASES[name].build(37, 37, dtype, **CASES[name].options[0], causal=causal)
    fast, slow = cores(name, tensors, options)
    got = value_and_gradients(fast, list(tensors.values()))
    want = value_and_gradients(slow, [x.detach().double() for x in tensors.values()])
    for x, y in zip(got, want, strict=True):
        assert x.dtype is dtype
        error = (x.double() - y).abs().max() / y.abs().max().clamp(min=1.0)
        assert error < 0.05


@ways
@both
def test_autocast_keeps_sums_and_selections(
    name: str, way: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(name, way, monkeypatch)
    built = CASES[name].build(37, 37, torch.float32, **CASES[name].options[0], causal=causal)
    tensors, options = built
    fast, _ = cores(name, tensors, options)
    plain = value_and_gradients(fast, list(tensors.values()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = value_and_gradients(fast, list(tensors.values()))
    for x, y in zip(mixed, plain, strict=True):
        torch.testing.assert_close(x.float(), y, atol=0.05, rtol=0.05)


@ways
@both
def test_strides_change_nothing_and_arguments_stay_as_they_are(
    name: str, way: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(name, way, monkeypatch)
    options = {**CASES[name].options[0], "causal": causal, "key_mask": MASK[:, :13].T.clone().T}
    tensors, options = CASES[name].build(13, 13, torch.float64, **options)
    fast, _ = cores(name, tensors, options)
    plain = [x.detach().contiguous() for x in tensors.values()]
    turned = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in plain]
    results = [value_and_gradients(fast, each) for each in (plain, turned)]
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-9)
    for x, y in zip(turned, tensors.values(), strict=True):
        assert torch.equal(x, y)


@ways
@both
def test_is_full_attention_at_its_limits(
    name: str, way: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(name, way, monkeypatch)
    for options in CASES[name].full:
        options = {**options, "causal": causal}
        tensors, options = CASES[name].build(LONG, LONG, torch.float64, **options)
        fast, _ = cores(name, tensors, options)
        want = full_attention(**tensors, causal=causal)
        torch.testing.assert_close(fast(*tensors.values()), want, atol=1e-12, rtol=1e-10)
