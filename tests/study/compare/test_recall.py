"""The measurement detects what attention is for: looking up a value."""

import pytest
import torch

from benchmarks.recall import LIMITS
from forecaster.attention import ATTENTIONS
from forecaster.study.bench.cores import CORES
from forecaster.study.compare import table
from forecaster.study.compare.grid import define, read, resolve
from tests.study.compare.grids import trained


def small_recall(length, **changes):
    """The grid `recall` at one length, with one seed and only the references."""
    name, values = read("recall")
    said = {"data": [f"recall-{length}"], "attn": [], "seeds": 1} | changes
    return resolve(name, define(values | said, {}, "the test"))


def test_the_grid_holds_all_but_the_type_apart():
    assert list(LIMITS) == list(ATTENTIONS), "something is said of every type"
    cells = {cell.attn: cell for cell in small_recall(64, attn=["prob"]).cells}
    assert {"full", "prob", "static", "mean", "none"} <= set(cells)
    for cell in cells.values():
        model = cell.config.model.options
        assert (model["output"], model["positions"], model["linear"]) == ("last", False, False)
        assert cell.config.window.past == 64


@pytest.mark.slow
def test_full_attention_looks_values_up_and_the_controls_cannot(tmp_path):
    grid = small_recall(64)
    cells = [trained(grid, cell, tmp_path) for cell in grid.cells]
    rows = {row.attn: row for row in table.rows(cells)}
    assert rows["full"]["mse"] < 0.05, "it looks the value up"
    for control in ("static", "mean", "none"):
        assert rows[control]["mse"] > 0.9, f"{control} knows the mean of a sample at most"
        assert rows[control].against["full"].verdict == "worse"


def weights(call, tensors):
    """How the last output depends on each value, (S, E), feature by feature."""
    drawn = {**tensors, "v": tensors["v"].clone().requires_grad_()}
    torch.manual_seed(0)
    out = call(causal=False, **drawn)
    (found,) = torch.autograd.grad(out[0, 0, -1].sum(), drawn["v"])
    return found[0, 0, :-1]


@pytest.mark.parametrize("name", CORES)
def test_what_is_said_of_a_type_is_what_its_function_does(name):
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    options = {"flash": {"chunk_size": 16}, "lsh": {"bucket_size": 16}, "sliding": {"window": 16}}
    options = options.get(name, {})
    q, k, v = (draw(1, 1, 128, 8) for _ in range(3))
    q[:, :, -1] *= 4  # prob: selective enough to be active
    call, tensors = CORES[name].build(q, k, v, draw, **options)
    other = {key: tensor.clone() for key, tensor in tensors.items()}
    for key in {"q", "qk", "q1", "q2", "quad_q", "lin_q"} & set(other):
        other[key][0, 0, -1] = -2 * other[key][0, 0, -1].flip(0)
    one, another = weights(call, tensors), weights(call, other)
    seen, still = one.abs() > 1e-12, another.abs() > 1e-12
    both = seen & still
    ratios = [(another[:, e] / one[:, e])[both[:, e]] for e in range(8)]
    apart = [float(each.std() / each.abs().mean()) for each in ratios if len(each) > 1]
    chooses = max(apart, default=0.0) > 1e-6
    reach = LIMITS[name].reach
    if reach == "blind":
        assert not chooses
    elif reach == "all":
        assert chooses
        assert seen.all()
    elif reach == "rule":
        assert torch.equal(seen, still), "the same steps, whatever is asked"
        assert seen[:, 0].sum() < 32
    else:
        assert not torch.equal(seen, still), "which steps depends on what is asked"
