from typing import Any

import pytest
import torch

from forecaster.attention import topk
from forecaster.attention.topk import topk_attention

from .agreement import assert_defined, inputs
from .test_definition import CASES, take


@pytest.fixture(params=range(len(CASES["topk"].ways)))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    take("topk", request.param, monkeypatch)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_all_that_tie_are_kept(levels: int, causal: bool) -> None:
    """Small whole numbers: their products and sums are exact, so equal scores are equal bits."""
    generator = torch.Generator().manual_seed(0)
    shape = (3, 2, 2, 13, 3)
    q, k, v = torch.randint(-levels, levels + 1, shape, generator=generator).float()
    mask = torch.stack([torch.arange(13) % 4 > 0, torch.arange(13) > 10])
    options: dict[str, Any] = {"topk": 3, "causal": causal, "key_mask": mask}
    tensors = (q, k, v + torch.randn(v.shape))
    assert_defined(topk_attention, topk.definition, tensors, 1e-5, **options)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("ties", [2, 5])
def test_a_tie_hidden_among_random_scores_is_kept(ties: int) -> None:
    q, k, v = inputs(1, 2, 6, 70, width=1, dtype=torch.float32)
    with torch.no_grad():
        k[0, 1, 10 : 10 + ties] = k[0, 1].sort(0, descending=True).values[2]
        q[0, 1, 3] = 1.0
    assert_defined(topk_attention, topk.definition, (q, k, v), 1e-5, topk=3)


@pytest.mark.parametrize("keys", [1, 2, 63, 64, 65, 200, 1000])
def test_the_ways_to_select_agree(keys: int) -> None:
    x = torch.randn(4, 9, keys, generator=torch.Generator().manual_seed(0))
    x[0, 3] = x[0, 3].sort().values
    x[0, 4] = x[0, 4].sort(descending=True).values
    x[1, :, keys // 2 :] = -torch.inf
    x[2, 0, 0], x[2, 1, -1] = 3e38, -3e38
    x[3] *= 1e30
    for count in {1, min(4, keys), min(8, keys)}:
        values, index = x.topk(count)
        got = topk._largest(x, count)
        assert torch.equal(got[0], values)
        assert torch.equal(x.gather(2, got[1]), values)
        assert torch.equal(got[1].sort(2).values[2:], index.sort(2).values[2:])
        if count < keys:
            marked_values, marked, tied = topk._select_by_rounds(x, count)
            assert not tied
            assert torch.equal(marked_values.sort(2, descending=True).values, values)
            assert torch.equal(x.gather(2, marked), marked_values)
