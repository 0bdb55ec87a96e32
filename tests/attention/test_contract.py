"""The contract of every attention in the table, tested at unequal prime sizes."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from forecaster.attention import ATTENTIONS, Attention, AttentionChoice, Place, Role
from forecaster.attention.base import About, SelfAttention
from forecaster.base.machine import memory_rise
from forecaster.study.bench.cores import CORES

BATCH, HEADS, WIDTH, QUERIES, KEYS = 3, 2, 12, 7, 11

# Options that keep a mechanism from being full attention at these lengths.
OPTIONS = {
    "prob": {"factor": 1}, "lsh": {"bucket_size": 2}, "topk": {"topk": 2},
    "sliding": {"window": 2, "sinks": 1},
}  # fmt: skip
# Their selection looks at the whole sequence: not strictly causal, and padding changes counts.
SELECTS_GLOBALLY = {"prob", "lsh"}

every = pytest.mark.parametrize("name", ATTENTIONS)
SHORT = {"static", "position-prior"}  # of which every position has numbers

drawing_ones = pytest.mark.parametrize("name", sorted(SELECTS_GLOBALLY))
both = pytest.mark.parametrize("causal", [False, True])


def build(
    name: str, keys: int = QUERIES, role: Role = "encoder", options: dict[str, Any] | None = None
) -> Attention:
    torch.manual_seed(0)
    place = Place(WIDTH, HEADS, QUERIES, keys, role=role)
    module = AttentionChoice(name, options or OPTIONS.get(name, {})).build(place).eval()
    for child in module.modules():
        if isinstance(child, nn.Linear) and child.bias is not None:
            nn.init.zeros_(child.bias)  # so that an output row of zeros is noticed
    return module


DRAWING: Any = {"prob": {"factor": 2}, "lsh": {"bucket_size": 4, "n_hashes": 2}}


def drawing(name: str, seed: int = 0, **place: Any) -> Attention:
    torch.manual_seed(0)
    at = Place(WIDTH, HEADS, 23, 23, **place)
    return AttentionChoice(name, {**DRAWING[name], "seed": seed}).build(at).eval()


def series(batch: int = BATCH, length: int = QUERIES, seed: int = 1) -> Tensor:
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def real(*counts: int, length: int = QUERIES) -> Tensor:
    """A key mask of right-padded series with these numbers of real steps."""
    return torch.arange(length) < torch.tensor(counts)[:, None]


@pytest.mark.parametrize("name", ["full", "prob", "gated"])
def test_dropout_acts_in_training_only(name: str) -> None:
    module, x = build(name, options={**OPTIONS.get(name, {}), "dropout": 0.5}), series()
    assert torch.equal(module(x), build(name)(x))
    assert not torch.equal(module.train()(x), build(name).train()(x))


@pytest.mark.parametrize("name", [n for n in ATTENTIONS if n != "prob"])
@both
def test_masked_keys_take_part_in_nothing(name: str, causal: bool) -> None:
    # (Of prob, masked steps are queries too, and one may be selected instead of another.)
    module, mask, x = build(name), torch.rand(BATCH, QUERIES) > 0.4, series()
    changed = torch.where(mask[..., None], x, 50 * x + 3)
    with torch.no_grad():
        before = module(x, causal=causal, key_mask=mask)
        after = module(changed, causal=causal, key_mask=mask)
        assert torch.equal(before[mask], after[mask])
        if name != "lsh":  # of which padding changes the number of chunks
            alone = module(x[:, :4], causal=causal)
            padded = module(x, causal=causal, key_mask=real(4, 4, 4))[:, :4]
            torch.testing.assert_close(padded, alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in ATTENTIONS if n != "fastformer"])  # adds the query
@both
def test_a_query_that_sees_nothing_is_zero_without_gradient(name: str, causal: bool) -> None:
    module = build(name)
    x = series().requires_grad_()
    out = module(x, causal=causal, key_mask=real(7, 0, 3))
    assert (out[1] == 0).all()
    (gradient,) = torch.autograd.grad((out.square() + 0 * x).sum(), x)
    assert (gradient[1] == 0).all()
    assert gradient.isfinite().all()


@every
def test_strictly_causal(name: str) -> None:
    """Of those that select by the whole sequence, where they select all of it."""
    all_of_it = {"prob": {"factor": 4}, "lsh": {"bucket_size": QUERIES}}
    module, x = build(name, options=all_of_it.get(name)), series()
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
        assert (out.shape, out.dtype) == (x.shape, dtype)
        assert out.isfinite().all()
        (gradient,) = torch.autograd.grad((out + 0 * x).sum(), x)
        # In float16 it is too large where outputs grow with the sixth power of the input (gau,
        # flash), or are divided by lengths near 0 (delta).
        too_large = name in ("gau", "flash", "delta") and dtype is torch.float16
        assert gradient.isfinite().all() or too_large


@every
@pytest.mark.parametrize("causal", [False, True])
def test_batch_size_changes_nothing(name: str, causal: bool) -> None:
    module, x = build(name), series(8)
    with torch.no_grad():
        together = module(x, causal=causal)
        alone = torch.cat([module(row[None], causal=causal) for row in x])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@every
def test_leaves_the_global_random_state_alone(name: str) -> None:
    module, before = build(name), torch.get_rng_state()
    for training in (False, True):
        module.train(training)(series())
        assert torch.equal(torch.get_rng_state(), before)


@every
def test_refuses_sizes_that_do_not_fit(name: str) -> None:
    with pytest.raises(ValueError, match=r"got torch.bool of shape \(3, 2\)"):
        build(name)(series(), key_mask=torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"query must be \(batch, length, 12\), got \(3, 7, 9\)"):
        build(name)(series()[..., :9])
    if issubclass(ATTENTIONS[name], SelfAttention):
        with pytest.raises(ValueError, match=r"no cross form for 7 queries and 11 keys"):
            build(name, keys=KEYS, role="cross")
        with pytest.raises(ValueError, match=r"a context of shape \(3, 11, 12\)"):
            build(name)(series(), series(length=KEYS))
    else:
        with pytest.raises(ValueError, match=r"context must be .* got \(2, 11, 12\)"):
            build(name, KEYS).check_call(series(), series(2, KEYS), False, None)
        with pytest.raises(ValueError, match="got 7 queries, 11 keys"):
            build(name, KEYS)(series(), series(length=KEYS), causal=True)


@every
def test_its_weights_depend_on_what_it_says(name: str) -> None:
    """A module whose weights are the same for every series is an affine map."""
    module, x, y = build(name).double(), series().double(), series(seed=2).double()
    with torch.no_grad():
        bend = module(x + y) - module(x) - module(y) + module(torch.zeros_like(x))
    assert (bend.abs().max() > 1e-6) == (ATTENTIONS[name].about.weights == "content")


def test_a_derived_class_inherits_no_promise() -> None:
    derived, about = type("Derived", (ATTENTIONS["full"],), {}), ATTENTIONS["full"].about
    assert derived.about == replace(about, no_export=About.no_export, rows_apart=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", [name for name in CORES if name not in SHORT])
@both
def test_long_series_take_far_less_than_the_matrix_of_scores(name: str, causal: bool) -> None:
    def call(length: int) -> None:
        generator = torch.Generator().manual_seed(0)
        draw = partial(torch.randn, generator=generator)
        q, k, v = (draw(1, 1, length, 16) for _ in range(3))
        function, tensors = CORES[name].build(q, k, v, draw)
        leaves = {key: x.detach().requires_grad_() for key, x in tensors.items()}
        function(**leaves, causal=causal).sum().backward()

    call(64)
    matrix = 8192 * 8192 * 4
    assert memory_rise(lambda: call(8192), "cpu")[1] < matrix / (2 if name == "aft-full" else 4)


AMOUNTS = """
full 7 | full
prob 84 | prob: 25 of 84 queries active, 25 of 84 keys sampled
prob 12 | full: u >= L (u = 12, L = 12)
logsparse 96 | logsparse: 14 of 96 distances visible
logsparse 96 sub_len=24 | logsparse: 40 of 96 distances visible
logsparse 4 | full: all of 4 distances visible
lsh 96 | lsh: 4 rounds of 4 buckets, each step sees at most 96 of 96 in each
lsh 8192 | lsh: 4 rounds of 16 x 16 buckets, each step sees at most 128 of 8192 in each
lsh 64 | full: one chunk (L = 64 <= bucket_size = 64), keys from queries
strided 23 | strided: steps less than 5 apart or multiples of 5 apart, of 23
strided 23 stride=23 | full: stride 23, length 23
strided 23 heads=interleaved | strided: steps less than 5 apart, of 23
strided 9 heads=split | strided: steps less than 3 apart in 1 heads, multiples of 3 apart in 1, of 9
fixed 23 | fixed: the own block of 5 and the last 1 of every block, of 23
fixed 9 distinct_heads=true summary=2 | fixed: the own block of 3 and 2 of every block by head, of 9
fixed 23 stride=23 | full: stride 23, summary 2, length 23
fixed 23 stride=4 summary=4 | full: stride 4, summary 4, length 23
fixed 8192 | fixed: the own block of 91 and the last 11 of every block, of 8192
topk 9 | topk: each query attends to 8 of 9 keys
topk 8 | full: topk >= S (topk = 8, S = 8)
full 7 rotary=true qk_norm=true | full, normalised queries and keys, rotary positions
topk 8 rotary=true | full: topk >= S (topk = 8, S = 8), rotary positions
sliding 23 window=6 | sliding: steps less than 6 apart and the first 4, of 23
sliding 23 window=23 | full: window 23, 4 sinks, length 23
flash 23 chunk_size=8 | flash: 3 chunks of at most 8 steps
flash 7 | flash: 1 chunk of 7 steps
aft-local 84 | aft-local: biases up to 31 steps away, none beyond (L = 84)
aft-local 21 | aft-local: aft-full, as window >= L (window = 32, L = 21)
mean 7 | Mean attention: every query gives all visible keys the same weight
"""


@pytest.mark.parametrize("line", AMOUNTS.strip().splitlines())
def test_says_what_it_amounts_to(line: str) -> None:
    call, _, text = line.partition(" | ")
    name, length, *settings = call.split()
    options = {key: yaml.safe_load(value) for key, _, value in (x.partition("=") for x in settings)}
    said = AttentionChoice(name, options).build(Place(WIDTH, HEADS, int(length), int(length)))
    assert said.effective().text == text
    assert said.effective().full == (
        text == "full" or (text.startswith("full:") and "rot" not in text)
    )


@every
def test_learns_all_it_owns(name: str) -> None:
    module = build(name).train()
    (module(series(), causal=True) ** 2 + 0 * series().requires_grad_()).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in module.parameters())
    silent = {n for n, x in module.named_parameters() if x.grad is not None and not x.grad.any()}
    assert silent <= {"raw_kernel", "key_projection.bias", "gate_projection.bias"}


@drawing_ones
@pytest.mark.parametrize("other", [{"seed": 1}, {"depth": 1}, {"role": "decoder"}], ids=str)
def test_every_place_and_seed_has_a_draw_of_its_own(name: str, other: dict[str, Any]) -> None:
    here, there = drawing(name), drawing(name, **other)
    (key,) = {"sample", "rotations"} & here.state_dict().keys()
    assert not torch.equal(here.state_dict()[key], there.state_dict()[key])
    there.load_state_dict(here.state_dict())
    assert torch.equal(here(series(length=23)), there(series(length=23)))


@drawing_ones
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


@drawing_ones
def test_evaluates_at_other_lengths_too(name: str) -> None:
    """tests/equality compares the draws with those of another process."""
    x = series(length=31)
    with torch.inference_mode():
        first = drawing(name)(x)
    again = drawing(name)(x.requires_grad_())
    again.sum().backward()
    assert torch.equal(first, again)
