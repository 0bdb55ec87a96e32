import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from forecaster.attention import LSHAttention, Place, lsh, lsh_attention, lsh_buckets, tiles
from forecaster.attention.lsh import bucket_counts, draw_rotations

from . import naive
from .agreement import assert_agree, inputs
from .naive.lsh import lsh as slow_lsh

# 13 steps: some hidden, all but two hidden, all hidden.
MASK = torch.stack([torch.arange(13) % 3 > 0, torch.arange(13) > 10, torch.zeros(13) > 0])
MODULE: dict[str, Any] = {"bucket_size": 4, "n_hashes": 2}


@pytest.fixture(params=["dense", "tiles"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute, whatever the length."""
    monkeypatch.setattr(lsh, "_DENSE", 512 if request.param == "dense" else 0)
    return str(request.param)


def agree(
    L: int, tolerance: float = 1e-9, dtype: torch.dtype = torch.float64, **options: Any
) -> None:
    """The function and its definition, with rotations from N(0, 1) and the buckets they give."""
    options = {"bucket_size": 4, "n_hashes": 2, **options}
    n_buckets = options.pop("n_buckets", None) or bucket_counts(L, options["bucket_size"])
    columns = (sum(n_buckets) if isinstance(n_buckets, tuple) else n_buckets) // 2
    rotations = draw_rotations(2, 3, options.pop("n_hashes"), columns, seed=7).double()
    q, _, v = inputs(3, queries=L, keys=L, dtype=dtype)
    assert_agree(
        lambda q, v: lsh_attention(
            q, v, rotations=rotations, n_hashes=rotations.shape[2], n_buckets=n_buckets, **options
        ),
        lambda q, v: slow_lsh(q, v, rotations, n_buckets=n_buckets, **options),
        (q, v),
        tolerance,
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str
)
def test_equals_its_definition(
    causal: bool, masked: bool, deduplicate: bool, dtype: torch.dtype, tolerance: float
) -> None:
    mask = MASK if masked else None
    agree(13, tolerance, dtype, causal=causal, key_mask=mask, deduplicate=deduplicate, scale=0.7)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("L", [1, 3, 4, 5, 7, 8, 9, 17])
@pytest.mark.parametrize("n_hashes", [1, 3])
def test_lengths_around_the_chunks(L: int, n_hashes: int) -> None:
    agree(L, n_hashes=n_hashes)
    agree(L, n_hashes=n_hashes, causal=True, deduplicate=True)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("n_buckets", [2, 10, (2, 4), (4, 2)])
def test_any_even_number_of_buckets(n_buckets: Any) -> None:
    agree(11, n_buckets=n_buckets, bucket_size=3)
