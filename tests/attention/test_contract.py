"""The contract of every attention in the table, tested at unequal prime sizes."""

import hashlib
import inspect
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import forecaster.attention
from forecaster.attention import (
    ATTENTIONS,
    CONTROLS,
    SYNONYMS,
    Attention,
    AttentionChoice,
    Place,
    Role,
)
from forecaster.attention.base import About, SelfAttention
from forecaster.base.errors import UsageError
from forecaster.base.names import option_model
from forecaster.study.bench.cores import CORES

from .memory import peak_mib

BATCH, HEADS, WIDTH, QUERIES, KEYS = 3, 2, 12, 7, 11
NO_MECHANISMS = {"__init__", "base", "plugins"}

# Options that keep a mechanism from being full attention at these lengths.
OPTIONS = {"prob": {"factor": 1}, "lsh": {"bucket_size": 2}, "topk": {"topk": 2}}
# Their selection looks at the whole sequence: not strictly causal, and padding changes counts.
SELECTS_GLOBALLY = {"prob", "lsh"}

every = pytest.mark.parametrize("name", ATTENTIONS)
every_local = pytest.mark.parametrize("name", [n for n in ATTENTIONS if n not in SELECTS_GLOBALLY])
SELF_ONLY = {name for name, kind in ATTENTIONS.items() if issubclass(kind, SelfAttention)}
every_cross = pytest.mark.parametrize("name", [n for n in ATTENTIONS if n not in SELF_ONLY])
every_self_only = pytest.mark.parametrize("name", sorted(SELF_ONLY))
# They grow with the sixth power of their input, whose gradient is then too large for float16.
GROWS_STEEPLY = {"gau", "flash"}
# They add the projected query to the attended values.
HAS_RESIDUAL = {"fastformer"}
# They have heads of their own.
REFUSES_MIX = {"single", "gau", "flash", "aft-full", "aft-local", "aft-simple", "none"}
every_bare = pytest.mark.parametrize("name", [n for n in ATTENTIONS if n not in HAS_RESIDUAL])


def build(
    name: str, keys: int = QUERIES, queries: int = QUERIES, role: Role = "encoder"
) -> Attention:
    torch.manual_seed(0)
    place = Place(WIDTH, HEADS, queries, keys, role=role)
    module = AttentionChoice(name, OPTIONS.get(name, {})).build(place).eval()
    for child in module.modules():
        if isinstance(child, nn.Linear) and child.bias is not None:
            nn.init.zeros_(child.bias)  # so that an output row of zeros is noticed
    return module


DRAWING: dict[str, dict[str, Any]] = {
    "prob": {"factor": 2},
    "lsh": {"bucket_size": 4, "n_hashes": 2},
}


def drawing(name: str, seed: int = 0, **place: Any) -> Attention:
    torch.manual_seed(0)
    at = Place(WIDTH, HEADS, 23, 23, **place)
    return AttentionChoice(name, {**DRAWING[name], "seed": seed}).build(at).eval()


def series(batch: int = BATCH, length: int = QUERIES, seed: int = 1) -> Tensor:
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def real(*counts: int, length: int = QUERIES) -> Tensor:
    """A key mask of right-padded series with these numbers of real steps."""
    return torch.arange(length) < torch.tensor(counts)[:, None]


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_keeps_shape_and_type(name: str, dtype: torch.dtype) -> None:
    module, x = build(name).to(dtype), series().to(dtype)
    assert module(x).shape == x.shape
    assert module(x, causal=True, key_mask=real(7, 5, 0)).dtype is dtype


@every_cross
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_keeps_the_shape_of_the_query_across(name: str, dtype: torch.dtype) -> None:
    cross, x = build(name, keys=KEYS, role="cross").to(dtype), series().to(dtype)
    mask = real(11, 8, 0, length=KEYS)
    for out in (cross(x, series(length=KEYS).to(dtype), key_mask=mask), cross(x, x[:, :KEYS])):
        assert out.shape == x.shape
        assert out.dtype is dtype


@every_self_only
def test_refuses_what_it_has_no_cross_form_for(name: str) -> None:
    with pytest.raises(ValueError, match="relates a series to itself"):
        build(name, keys=KEYS, role="cross")
    with pytest.raises(ValueError, match=r"a context of shape \(3, 11, 12\)"):
        build(name)(series(), series(length=KEYS))


@every
@pytest.mark.parametrize("causal", [False, True])
def test_one_step(name: str, causal: bool) -> None:
    module = build(name, 1, 1)
    assert module(series(length=1), causal=causal).isfinite().all()


@every_local
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(name: str, causal: bool) -> None:
    module, x = build(name, 11, 11), series(1)
    padded = torch.cat([x, 100 * series(1, 4, seed=2)], dim=1)
    with torch.no_grad():
        alone = module(x, causal=causal)
        together = module(padded, causal=causal, key_mask=real(7, length=11))[:, :7]
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in ATTENTIONS if n != "prob"])
@pytest.mark.parametrize("causal", [False, True])
def test_masked_keys_take_part_in_nothing(name: str, causal: bool) -> None:
    # (Of prob, masked steps are queries too, and one may be selected instead of another.)
    module, mask, x = build(name), torch.rand(BATCH, QUERIES) > 0.4, series()
    changed = torch.where(mask[..., None], x, 50 * x + 3)
    with torch.no_grad():
        before = module(x, causal=causal, key_mask=mask)
        after = module(changed, causal=causal, key_mask=mask)
    assert torch.equal(before[mask], after[mask])


@every_cross
@pytest.mark.parametrize("causal", [False, True])
def test_masked_keys_take_part_in_nothing_across(name: str, causal: bool) -> None:
    module, mask, context = build(name), torch.rand(BATCH, QUERIES) > 0.4, series()
    changed = torch.where(mask[..., None], context, 50 * context + 3)
    with torch.no_grad():
        query = series(seed=4)
        before = module(query, context, causal=causal, key_mask=mask)
        after = module(query, changed, causal=causal, key_mask=mask)
    assert torch.equal(before, after)


@every_bare
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_nothing_is_zero_without_gradient(name: str, causal: bool) -> None:
    module = build(name)
    x = series().requires_grad_()
    out = module(x, causal=causal, key_mask=real(7, 0, 3))
    assert (out[1] == 0).all()
    (gradient,) = torch.autograd.grad((out.square() + 0 * x).sum(), x)
    assert (gradient[1] == 0).all()
    assert gradient.isfinite().all()


@every_bare
def test_a_hidden_past_leaves_the_first_causal_rows_zero(name: str) -> None:
    module, mask = build(name), ~real(3, 3, 3)  # left-padded: queries 0, 1, 2 see nothing
    x = series().requires_grad_()
    out = module(x, causal=True, key_mask=mask)
    assert (out[:, :3] == 0).all()
    (gradient,) = torch.autograd.grad((out[:, :3].square() + 0 * x[:, :3]).sum(), x)
    assert (gradient == 0).all()


@every_local
def test_strictly_causal(name: str) -> None:
    module, x = build(name), series()
    for t in range(QUERIES):
        changed = x.clone()
        changed[:, t:] += 5
        with torch.no_grad():
            difference = module(x, causal=True) - module(changed, causal=True)
        assert (difference[:, :t].abs() < 1e-6).all(), f"outputs before step {t} moved"


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_inputs_stay_finite_in_half_precision(name: str, dtype: torch.dtype) -> None:
    module = build(name).to(dtype)
    x = (30 * series()).to(dtype).requires_grad_()
    for causal in (False, True):
        out = module(x, causal=causal, key_mask=real(7, 4, 0))
        assert out.isfinite().all()
        (gradient,) = torch.autograd.grad((out + 0 * x).sum(), x)
        assert gradient.isfinite().all() or (name in GROWS_STEEPLY and dtype is torch.float16)


@every
@pytest.mark.parametrize("causal", [False, True])
def test_batch_size_changes_nothing(name: str, causal: bool) -> None:
    module, x = build(name), series(8)
    with torch.no_grad():
        together = module(x, causal=causal)
        alone = torch.cat([module(row[None], causal=causal) for row in x])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@every
def test_strides_change_nothing_and_arguments_stay_as_they_are(name: str) -> None:
    module, x = build(name), series()
    strided = x.transpose(0, 2).contiguous().transpose(0, 2)
    mask = real(7, 4, 6)
    with torch.no_grad():
        plain = module(x, causal=True, key_mask=mask)
        again = module(strided, causal=True, key_mask=mask.T.contiguous().T)
    torch.testing.assert_close(again, plain, atol=1e-6, rtol=1e-5)
    assert torch.equal(strided, series())
    assert torch.equal(mask, real(7, 4, 6))


@every
@pytest.mark.parametrize("training", [False, True])
def test_leaves_the_global_random_state_alone(name: str, training: bool) -> None:
    module = build(name).train(training)
    before = torch.get_rng_state()
    module(series())
    assert torch.equal(torch.get_rng_state(), before)


@every
def test_evaluates_twice_to_the_same_bits(name: str) -> None:
    module = build(name)
    assert torch.equal(module(series()), module(series()))


@every_cross
def test_causal_wants_equal_lengths(name: str) -> None:
    with pytest.raises(ValueError, match="got 7 queries, 11 keys"):
        build(name, keys=KEYS)(series(), series(length=KEYS), causal=True)


@every
def test_refuses_sizes_that_do_not_fit(name: str) -> None:
    with pytest.raises(ValueError, match=r"got torch.bool of shape \(3, 2\)"):
        build(name)(series(), key_mask=torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"query must be \(batch, length, 12\), got \(3, 7, 9\)"):
        build(name)(series()[..., :9])


@every
def test_options_are_read_from_the_constructor(name: str) -> None:
    options = option_model(ATTENTIONS[name], name)
    keywords = {
        parameter.name: parameter.default
        for parameter in inspect.signature(ATTENTIONS[name]).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert options().model_dump() == keywords
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        options(no_such_option=1)


FULL: dict[str, dict[str, Any]] = {
    "prob": {"factor": 4},
    "logsparse": {"dense_prefix": QUERIES},
    "lsh": {"bucket_size": QUERIES},
    "strided": {"stride": QUERIES},
    "fixed": {"stride": QUERIES, "summary": 1},
    "topk": {"topk": QUERIES},
}


@pytest.mark.parametrize("name", FULL)
def test_says_where_it_is_full_attention(name: str) -> None:
    said = (
        AttentionChoice(name, FULL[name]).build(Place(WIDTH, HEADS, QUERIES, QUERIES)).effective()
    )
    assert said.full
    assert said.text.startswith("full: ")


def test_every_mechanism_file_is_in_the_table() -> None:
    folder = Path(forecaster.attention.__file__).parent
    files = {file.stem for file in folder.glob("*.py")} - NO_MECHANISMS
    assert {kind.__module__.rpartition(".")[2] for kind in ATTENTIONS.values()} == files


def test_synonyms_are_no_names_of_the_table() -> None:
    assert not SYNONYMS.keys() & ATTENTIONS.keys()


def test_an_unknown_name_is_met_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"unknown attention 'vanilla'\. Did you mean 'full'\?"):
        build("vanilla")


def test_place_refuses_a_width_that_the_heads_do_not_divide() -> None:
    with pytest.raises(ValueError, match="width=12, heads=5"):
        Place(12, 5, 7, 7)


@every
def test_says_where_it_comes_from_and_what_it_costs(name: str) -> None:
    about = ATTENTIONS[name].about
    assert (about.paper == "none") == (name in CONTROLS)
    assert (about.year is None) == (about.paper == "none")
    assert "not stated" not in (about.cost, about.weights, about.no_export)


@every
def test_its_weights_depend_on_what_it_says(name: str) -> None:
    """A module whose weights are the same for every series is an affine map."""
    module, x, y = build(name).double(), series().double(), series(seed=2).double()
    with torch.no_grad():
        bend = module(x + y) - module(x) - module(y) + module(torch.zeros_like(x))
    assert (bend.abs().max() > 1e-6) == (ATTENTIONS[name].about.weights == "content")


def test_no_weight_of_a_control_depends_on_content() -> None:
    assert all(ATTENTIONS[name].about.weights != "content" for name in CONTROLS)


def test_a_derived_class_inherits_no_promise() -> None:
    derived = type("Derived", (ATTENTIONS["full"],), {})
    assert derived.about == replace(
        ATTENTIONS["full"].about, stalls=True, no_export=About.no_export, rows_apart=False
    )


@every
def test_runs_in_inference_mode(name: str) -> None:
    module, x = build(name), series()
    with torch.inference_mode():
        inferred = module(x, causal=True, key_mask=real(7, 4, 0))
    torch.testing.assert_close(
        inferred, module(x, causal=True, key_mask=real(7, 4, 0)).detach(), atol=1e-6, rtol=1e-5
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", [name for name in CORES if name != "static"])  # it stays short
@pytest.mark.parametrize("causal", [False, True])
def test_long_series_take_far_less_than_the_matrix_of_scores(name: str, causal: bool) -> None:
    def run(length: int) -> None:
        generator = torch.Generator().manual_seed(0)
        draw = partial(torch.randn, generator=generator)
        q, k, v = (draw(1, 1, length, 16) for _ in range(3))
        function, tensors = CORES[name].build(q, k, v, draw)
        leaves = {key: x.detach().requires_grad_() for key, x in tensors.items()}
        function(**leaves, causal=causal).sum().backward()

    run(64)
    matrix = 8192 * 8192 * 4 / 2**20
    assert peak_mib(lambda: run(8192)) < matrix / (2 if name == "aft-full" else 4)


AMOUNTS: list[tuple[str, int, dict[str, Any], str]] = [
    ("full", 7, {}, "full"),
    ("prob", 84, {}, "prob: 25 of 84 queries active, 25 of 84 keys sampled"),
    ("prob", 12, {}, "full: u >= L (u = 12, L = 12)"),
    ("logsparse", 96, {}, "logsparse: 14 of 96 distances visible"),
    ("logsparse", 96, {"sub_len": 24}, "logsparse: 40 of 96 distances visible"),
    ("logsparse", 4, {}, "full: all of 4 distances visible"),
    ("logsparse", 96, {"dense_prefix": 96}, "full: all of 96 distances visible"),
    ("lsh", 96, {}, "lsh: 4 rounds of 4 buckets, each step sees at most 96 of 96 in each"),
    ("lsh", 8192, {},
     "lsh: 4 rounds of 16 x 16 buckets, each step sees at most 128 of 8192 in each"),
    ("lsh", 64, {}, "full: one chunk (L = 64 <= bucket_size = 64), keys from queries"),
    ("strided", 23, {}, "strided: steps less than 5 apart or multiples of 5 apart, of 23"),
    ("strided", 23, {"stride": 23}, "full: stride 23, length 23"),
    ("strided", 23, {"stride": 1}, "full: stride 1, length 23"),
    ("strided", 23, {"heads": "interleaved"}, "strided: steps less than 5 apart, of 23"),
    ("strided", 23, {"heads": "split"},
     "strided: steps less than 5 apart in 1 heads, multiples of 5 apart in 1, of 23"),
    ("fixed", 23, {}, "fixed: the own block of 5 and the last 1 of every block, of 23"),
    ("fixed", 23, {"distinct_heads": True, "summary": 2},
     "fixed: the own block of 5 and 2 of every block by head, of 23"),
    ("fixed", 23, {"stride": 23}, "full: stride 23, summary 2, length 23"),
    ("fixed", 23, {"stride": 4, "summary": 4}, "full: stride 4, summary 4, length 23"),
    ("topk", 9, {}, "topk: each query attends to 8 of 9 keys"),
    ("topk", 8, {}, "full: topk >= S (topk = 8, S = 8)"),
    ("single", 7, {}, "single: one head of width 12 sees all 7 keys"),
    ("fastformer", 7, {}, "fastformer: one global query and key for each of 2 heads"),
    ("gau", 23, {}, "gau: squared ReLU over all 23 keys"),
    ("flash", 23, {"chunk_size": 8}, "flash: 3 chunks of at most 8 steps"),
    ("flash", 7, {}, "flash: 1 chunk of 7 steps"),
    ("diff", 7, {}, "diff: each head is one softmax map less lambda times another, from 0.20"),
    ("aft-full", 11, {}, "aft-full: 11 x 11 position biases of rank 11"),
    ("aft-local", 84, {}, "aft-local: biases up to 31 steps away, none beyond (L = 84)"),
    ("aft-local", 21, {}, "aft-local: aft-full, as window >= L (window = 32, L = 21)"),
    ("aft-simple", 7, {},
     "aft-simple: one mean of the visible values per feature, gated by the query"),
    ("aft-conv", 84, {}, "aft-conv: 2 kernels of 33 taps over 84 steps"),
    ("static", 11, {}, "static: 11 x 11 learned weights a head, the same for every series"),
    ("mean", 7, {}, "mean: uniform weights over all visible keys"),
    ("none", 7, {}, "none: adds nothing to its layer"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "length", "options", "text"), AMOUNTS)
def test_says_what_it_amounts_to(
    name: str, length: int, options: dict[str, Any], text: str
) -> None:
    said = AttentionChoice(name, options).build(Place(WIDTH, HEADS, length, length)).effective()
    assert said.text == text
    assert said.full == text.startswith("full")


def test_everything_says_what_it_amounts_to() -> None:
    assert {name for name, *_ in AMOUNTS} == {*ATTENTIONS}


@every
def test_learns_all_it_owns(name: str) -> None:
    module = build(name).train()
    (module(series(), causal=True) ** 2 + 0 * series().requires_grad_()).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in module.parameters())
    silent = {n for n, x in module.named_parameters() if x.grad is not None and not x.grad.any()}
    assert silent <= {"raw_kernel", "key_projection.bias", "gate_projection.bias"}


@pytest.mark.parametrize("name", sorted(REFUSES_MIX))
def test_refuses_to_mix_heads_it_does_not_have(name: str) -> None:
    with pytest.raises(ValueError, match=rf"attention '{name}' .* set model\.mix=false"):
        AttentionChoice(name).build(Place(WIDTH, HEADS, 7, 7, mix=True))


@pytest.mark.parametrize("name", sorted(SELECTS_GLOBALLY))
@pytest.mark.parametrize("other", [{"seed": 1}, {"depth": 1}, {"role": "decoder"}], ids=str)
def test_every_place_and_seed_has_a_draw_of_its_own(name: str, other: dict[str, Any]) -> None:
    here, there = drawing(name), drawing(name, **other)
    (key,) = {"sample", "rotations"} & here.state_dict().keys()
    assert not torch.equal(here.state_dict()[key], there.state_dict()[key])
    there.load_state_dict(here.state_dict())
    assert torch.equal(here(series(length=23)), there(series(length=23)))


@pytest.mark.parametrize("name", sorted(SELECTS_GLOBALLY))
def test_training_draws_anew_and_resumes_where_it_stopped(name: str, tmp_path: Path) -> None:
    attention, x = drawing(name), series(length=23)
    evaluated = attention(x)
    attention.train()
    attention(x), attention(x)
    save_file(attention.state_dict(), tmp_path / "state.safetensors")
    third, fourth = attention(x), attention(x)
    assert not torch.equal(third, fourth)
    assert torch.equal(attention.eval()(x), evaluated)

    resumed = drawing(name).train()
    resumed.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert torch.equal(resumed(x), third)
    assert torch.equal(resumed(x), fourth)


@pytest.mark.parametrize("name", sorted(SELECTS_GLOBALLY))
def test_evaluates_at_other_lengths_too_in_any_process(name: str) -> None:
    program = f"""
import hashlib, sys, torch
torch.set_num_threads(1)
from forecaster.attention import AttentionChoice, Place
torch.manual_seed(0)
attention = AttentionChoice("{name}", {DRAWING[name]}).build(Place(12, 2, 23, 23)).eval()
out = attention(torch.randn(3, 31, 12, generator=torch.Generator().manual_seed(1)))
assert not {{"pandas", "lightning", "mlflow"}} & set(sys.modules)
print(hashlib.sha256(out.detach().numpy().tobytes()).hexdigest())
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    x = series(length=31)
    with torch.inference_mode():
        first = drawing(name)(x)
    again = drawing(name)(x.requires_grad_())
    again.sum().backward()
    assert torch.equal(first, again)
    assert run.stdout.strip() == hashlib.sha256(first.numpy().tobytes()).hexdigest()
