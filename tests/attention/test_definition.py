"""Every function equals the definition in its file, forward and gradient, whatever way it takes.

A way sets constants that choose between kernels and cut series into parts, so that every kind of
border occurs at the short lengths of these tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from forecaster import attention
from forecaster.attention import full_attention
from forecaster.attention.common import banded, patterns, prefix, recurrence, rows, tiles, unit
from forecaster.attention.lsh import bucket_counts, draw_rotations

from .agreement import Core, assert_agree, defined, inputs, value_and_gradients

Options = dict[str, Any]
Way = dict[Any, dict[str, Any]]
"""Constants by module; the file of the mechanism is named ""."""

HEADS, WIDTH, VALUES, LONG = 2, 3, 5, 13
FAR = 515
"""Longer than the tiles and the short cuts as they are."""
MASK = torch.stack([torch.arange(FAR) % 3 > 0, torch.arange(FAR) > 10, torch.zeros(FAR) > 0])
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


def fastformer(L: int, S: int, dtype: Any, width: int = 6, size: float = 1.0, **o: Any) -> Any:
    tensors, _ = qkv(L, S, dtype, WIDTH)
    for name in ("query", "key"):
        tensors[f"{name}_weight"] = draw(HEADS, width, dtype=dtype, size=size)
        tensors[f"{name}_bias"] = draw(HEADS, dtype=dtype)
    return tensors, o


def gau(L: int, S: int, dtype: torch.dtype, bias: str = "", **options: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    length = 2 * max(L, S)
    shapes = {"bias": (L, S), "biases": (HEADS, L, S), "line": (length + 3,)}
    shapes["lines"] = (HEADS, length - 1)
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
    q1, k1, v = inputs(3, HEADS, L, S, WIDTH, VALUES, dtype)
    q2, k2, _ = inputs(3, HEADS, L, S, WIDTH, VALUES, dtype, seed=1)
    tensors = {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "v": v}
    if "lam" not in options:
        tensors["lam"] = torch.linspace(-0.3, 0.7, HEADS, dtype=dtype).requires_grad_()
    return tensors, options


def aft_full(L: int, S: int, dtype: Any, form: str = "bias", size: float = 1, **o: Any) -> Any:
    tensors, _ = qkv(L, S, dtype, WIDTH)
    shapes = {"bias": [(L, S)], "by head": [(HEADS, L, S)], "pair": [(L, 4), (S, 4)]}[form]
    names = ["position_bias"] if len(shapes) == 1 else ["rows", "columns"]
    drawn = (draw(*shape, dtype=dtype, size=size) for shape in shapes)
    return {**tensors, **dict(zip(names, drawn, strict=True))}, o


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


def gated(L: int, S: int, dtype: torch.dtype, gates: int = 1, **o: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    return {**tensors, "gate": draw(3, HEADS, L, gates, dtype=dtype)}, o


def decaying(
    L: int, S: int, dtype: torch.dtype, size: float = 1.0, beta: bool = False, **options: Any
) -> Any:
    """Steps that forget e^-`size` at most; with `beta`, keys of length 1 and a rate each."""
    tensors, _ = qkv(L, S, dtype)
    name = options.pop("name", "log_decay")
    tensors[name] = (-size * draw(3, HEADS, L, dtype=dtype).abs()).detach().requires_grad_()
    if beta:
        tensors["k"] = torch.nn.functional.normalize(tensors["k"].detach(), dim=3).requires_grad_()
        tensors["beta"] = draw(3, HEADS, L, dtype=dtype).sigmoid().detach().requires_grad_()
    return tensors, options


def prior(L: int, S: int, dtype: torch.dtype, size: float = 1.0, **options: Any) -> Any:
    tensors, _ = qkv(L, S, dtype)
    return {**tensors, "alpha": draw(HEADS, L, S, dtype=dtype, size=size)}, options


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
    "": {"_SHORT": 0, "_BLOCK": 4, "_TALLEST": 8, "_SLICE": 1},
    patterns: {"_AT_ONCE": 180},
}
STRIDED_TILES: Way = {"": {"_SHORT": 0, "_BLOCK": 4}, patterns: {"_AT_ONCE": 1}}
FIXED_TILES: Way = {"": {"_SHORT": 0, "_ROWS": 8}}
PREFIX: Way = {prefix: {"_AT_ONCE": 24, "_CHUNK": 4}}
SLIDING_TILES: Way = {"": {"_SHORT": 0, "_BLOCK": 2, "_ROWS": 5}, patterns: {"_AT_ONCE": 180}}
ROWS = ({}, *({rows: {"_SCORES": n, "_MOST_SCORES": n, "_CAUSAL_ROWS": 5}} for n in (1, 30, 169)))
CHUNKS = ({}, *({recurrence: {"_CHUNK": n, "_SCORES": s}} for n, s in ((4, 1), (1, 99), (4, 300))))
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
        ({}, {"": {"_largest_tile": lambda x: 4}, unit: ONE_TILE_OF_ONE_HEAD},
         {"": {"_largest_tile": lambda x: 5}}),
        gau, across=True,
    ),
    "flash": Case(
        "mixed_chunk_attention",
        ({"chunk_size": 4}, {"chunk_size": 4, "bias": 1}, {"chunk_size": 5, "bias": 2},
         {"chunk_size": 20, "bias": 1, "linear_scale": 0.3}, {"chunk_size": 1}),
        ({}, {unit: ONE_TILE_OF_ONE_HEAD}, {unit: {"scores_at_once": lambda x: 40}}),
        flash,
    ),
    "diff": Case(
        "differential_attention",
        ({}, {"scale": 0.4, "lam": 0.3}, {"lam": torch.tensor(0.3).double()}),
        ({}, {"": {"_BY_BLOCKS": set()}},
         *ROWS[1:]),
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
    "aft-simple": Case("aft_simple_attention", ({},), ({}, PREFIX), partial(qkv, values=WIDTH),
                       across=True),
    "aft-conv": Case(
        "aft_conv_attention", ({}, {"keys": 3}, {"window": 11}, {"window": 29}, {"window": 1}),
        ({}, BAND, {**BAND, banded: {**BAND[banded], "_reach": lambda kind: 0.0}}), aft_conv,
    ),
    "gated": Case(
        "gated_attention", ({}, {"gates": VALUES, "scale": 0.7}), build=gated, across=True
    ),
    "sliding": Case(
        "sliding_attention",
        ({"window": 3, "sinks": 2}, {"window": 1, "sinks": 1}, {"window": 5, "sinks": 0},
         {"window": 2, "sinks": 7, "scale": 0.3}),
        ({}, SLIDING_TILES, {**SLIDING_TILES, tiles: PUBLIC}, {"": {"_SHORT": 0}}),
        full=({"window": 13, "sinks": 0}, {"window": 1, "sinks": 13}),
    ),
    "forgetting": Case(
        "forgetting_attention",
        ({"name": "log_gate"}, {"name": "log_gate", "size": 30.0, "scale": 1.0}), ROWS, decaying,
    ),
    "retention": Case(
        "retention_attention",
        ({"decay": torch.tensor([0.9, 0.5])}, {"decay": torch.tensor([1.0, 1e-9]), "scale": 2.0}),
        CHUNKS,
    ),
    "delta": Case(
        "gated_delta_attention",
        ({"beta": True}, {"beta": True, "size": 0.0}, {"beta": True, "size": 30.0}), CHUNKS,
        decaying,
    ),
    "ssd": Case(
        "state_space_attention", ({}, {"size": 30.0}, {"size": 0.01, "scale": 0.5}), CHUNKS,
        decaying,
    ),
    "position-prior": Case(
        "position_prior_attention", ({}, {"size": 20.0, "scale": 0.7}), ROWS, prior, across=True
    ),
    "static": Case("static_attention", ({}, {"size": 20.0}), build=static, across=True),
    "mean": Case("mean_attention", across=True),
}  # fmt: skip

both = pytest.mark.parametrize("causal", [False, True])
WAYS = [(name, n) for name, case in CASES.items() for n in range(len(case.ways))]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def take(name: str, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = import_module(f"forecaster.attention.{name.replace('-', '_')}")
    if hasattr(own, "_plan"):
        own._plan.cache_clear()
    for module, constants in CASES[name].ways[way].items():
        for constant, value in constants.items():
            monkeypatch.setattr(module or own, constant, value)


@pytest.fixture(params=WAYS, ids=lambda each: f"{each[0]}-{each[1]}")
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """The name of a mechanism, and the number of the way that is taken."""
    name, way = request.param
    take(name, way, monkeypatch)
    return name, way


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
    return of(getattr(attention, CASES[name].function)), of(defined(file.definition))


def test_equals_its_definition(taken: tuple[str, int]) -> None:
    """Forward and gradient, at lengths around every border of a tile, masked or not, in any order
    in memory; the arguments stay as they are."""
    name, way = taken
    case = CASES[name]
    lengths = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 12, LONG, LONG, LONG, 17, 31, 32, 33])

    keys_too = lengths if case.across else st.none()
    switches = st.tuples(*[st.booleans()] * 3, st.sampled_from([*TOLERANCE]))

    @settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @given(lengths, keys_too, st.sampled_from(case.options), switches)
    def check(L: int, keys: int | None, options: Options, drawn: Any) -> None:
        causal, masked, other, dtype = drawn
        S = L if keys is None or causal else keys
        mask = MASK[:, :S].T.clone().T if masked else None
        options = {**options, "causal": causal, "key_mask": mask}
        tensors, options = case.build(L, S, dtype, **options)
        given = [*tensors.values()]
        if other:
            given = [x.detach().transpose(0, -1).contiguous().transpose(0, -1) for x in given]
        assert_agree(*cores(name, tensors, options), given, TOLERANCE[dtype])
        for x, y in zip(given, tensors.values(), strict=True):
            assert torch.equal(x, y)

    check()
    for options, causal in product(case.options, (False, True)):  # none is left out
        for L in [LONG, FAR][: 1 + (way == 0)]:
            seen = {"causal": causal, "key_mask": MASK[:, :L]}
            tensors, built = case.build(L, L, torch.float64, **options, **seen)
            assert_agree(*cores(name, tensors, built), [*tensors.values()], 1e-9)


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_low_precision_is_near_the_truth(taken: Any, causal: bool, dtype: torch.dtype) -> None:
    """In half precision, and in float32 where autocast would lower it: sums stay in float32."""
    name, _ = taken
    tensors, options = CASES[name].build(37, 37, dtype, **CASES[name].options[0], causal=causal)
    fast, slow = cores(name, tensors, options)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.float32):
        got = value_and_gradients(fast, list(tensors.values()))
    want = value_and_gradients(slow, [x.detach().double() for x in tensors.values()])
    for x, y in zip(got, want, strict=True):
        error = (x.double() - y).abs().max() / y.abs().max().clamp(min=1.0)
        assert error < 0.05
    assert got[0].dtype is dtype or dtype is torch.float32


@both
def test_is_full_attention_at_its_limits(taken: tuple[str, int], causal: bool) -> None:
    name, _ = taken
    for options in CASES[name].full:
        options = {**options, "causal": causal}
        tensors, options = CASES[name].build(LONG, LONG, torch.float64, **options)
        fast, _ = cores(name, tensors, options)
        want = full_attention(**tensors, causal=causal)
        torch.testing.assert_close(fast(*tensors.values()), want, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_learned_changes_no_other_gradient(name: str) -> None:
    """Also when the backward pass runs a second time."""
    for options in CASES[name].options:
        tensors, built = CASES[name].build(LONG, LONG, torch.float64, **options, causal=True)
        fast, _ = cores(name, tensors, built)
        whole = value_and_gradients(fast, [*tensors.values()])[1:]
        for fixed in range(len(tensors)):
            leaves = [x.detach().requires_grad_(n != fixed) for n, x in enumerate(tensors.values())]
            out = fast(*leaves)
            weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
            loss = (out * weights + 0 * leaves[fixed - 1].sum()).sum()
            loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            loss.backward()  # type: ignore[no-untyped-call]
            assert leaves[fixed].grad is None
            for x, want in zip(leaves, whole, strict=True):
                if x.requires_grad and want.any():
                    torch.testing.assert_close(x.grad, 2 * want)


EXPONENTIAL = {
    "aft-full": {"form": "pair", "size": 3.0},
    "aft-local": {"window": 3, "size": 3.0},
    "aft-conv": {},
    "aft-simple": {},
    "fastformer": {"width": 6},
}


@pytest.mark.parametrize("taken", [x for x in WAYS if x[0] in EXPONENTIAL], indirect=True)
@both
@pytest.mark.parametrize("kind", ["uniform", "rising", "falling", "step", "peak", "cliff"])
def test_scores_of_any_size(taken: tuple[str, int], causal: bool, kind: str) -> None:
    """Scores whose exponentials no single shift can hold in float32, or (cliff) in float64."""
    name, _ = taken
    ramp = torch.linspace(-50, 50, 41)[:, None].double()
    uniform = 100 * torch.rand(41, 3, generator=torch.Generator().manual_seed(3)).double() - 50
    shapes = {"uniform": uniform, "rising": ramp, "falling": -ramp, "step": 50 * ramp.sign()}
    scores = {**shapes, "peak": 50 - 2 * ramp.abs(), "cliff": 40 * ramp}[kind]
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-3)):
        tensors, options = CASES[name].build(41, 41, dtype, **EXPONENTIAL[name], causal=causal)
        if name == "fastformer":  # its scores are w·q and w·k
            for x in "qk":
                tensors[x] = (scores / 50).clamp(-1, 1).to(dtype) + 0.05 * tensors[x].detach()
            for x in ("query_weight", "key_weight"):
                tensors[x] = torch.full((HEADS, 6), 50 / 6 * 3**0.5, dtype=dtype)
        else:
            tensors["k"] = scores[:, : tensors["k"].shape[3]].to(dtype) + tensors["k"].detach()
        assert_agree(*cores(name, tensors, options), [*tensors.values()], tolerance)
