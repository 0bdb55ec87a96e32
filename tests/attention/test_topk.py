from typing import Any

import pytest
import torch

from .agreement import assert_agree, inputs
from .test_definition import CASES, cores, take


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
    assert_agree(*cores("topk", "qkv", options), (q, k, v + torch.randn(v.shape)), 1e-5)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("ties", [2, 5])
def test_a_tie_hidden_among_random_scores_is_kept(ties: int) -> None:
    q, k, v = inputs(1, 2, 6, 70, width=1, dtype=torch.float32)
    with torch.no_grad():
        k[0, 1, 10 : 10 + ties] = k[0, 1].sort(0, descending=True).values[2]
        q[0, 1, 3] = 1.0
    assert_agree(*cores("topk", "qkv", {"topk": 3}), (q, k, v), 1e-5)
