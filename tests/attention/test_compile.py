"""Under torch.compile every attention gives the same numbers, forward and backward."""

import pytest

from forecaster.attention import ATTENTIONS

from .agreement import run

PROGRAM = """
import sys

import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place, fixed, logsparse, lsh, strided

if sys.argv[1]:
    strided._SHORT = fixed._SHORT = lsh._DENSE = 0
    logsparse._DENSE = {"cpu": 0}
torch.set_num_threads(1)
for name in ATTENTIONS:
    torch.manual_seed(0)
    module = AttentionChoice(name).build(Place(32, 2, 67, 67)).eval()
    for causal in (False, True):
        results = []
        for call in (module, torch.compile(module, backend="aot_eager")):
            x = torch.randn(2, 67, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
            out = call(x, causal=causal)
            (out.square() + 0 * x).sum().backward()
            results.append((out.detach(), x.grad))
        torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4, msg=lambda m: f"{name}: {m}")
    print(name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["", "tiles"])
def test_every_attention_compiles(tiles: str) -> None:
    assert run(PROGRAM, tiles) == list(ATTENTIONS)
