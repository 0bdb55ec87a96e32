"""Under torch.compile every attention gives the same numbers, forward and backward."""

import subprocess
import sys

import pytest

from forecaster.attention import ATTENTIONS

# In a process of its own, because the tracer cannot see through the checks of shapes in tests.
PROGRAM = """
import sys

import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place

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
def test_every_attention_compiles() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert run.stdout.split() == list(ATTENTIONS), run.stderr
