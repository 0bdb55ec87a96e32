"""What `About.no_export` declares is what torch.export does."""

import subprocess
import sys

import pytest
import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place

OPTIONS = {"prob": {"factor": 1}, "lsh": {"bucket_size": 8}, "topk": {"topk": 2}}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_form_that_is_exported_equals_the_usual_one(
    name: str, causal: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = AttentionChoice(name, OPTIONS.get(name, {})).build(Place(8, 2, 67, 67)).eval()
    x = torch.randn(2, 67, 8, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(67) < torch.tensor([[67], [58]]) if masked else None
    with torch.no_grad():
        usual = module(x, causal=causal, key_mask=mask)
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
        exported = module(x, causal=causal, key_mask=mask)
    torch.testing.assert_close(exported, usual, atol=1e-6, rtol=1e-5)


# In a process of its own, because the tracer cannot see through the checks of shapes in tests.
PROGRAM = """
import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place

OPTIONS = {"prob": {"factor": 1}, "lsh": {"bucket_size": 8}, "topk": {"topk": 2}}
torch.set_num_threads(1)


def agrees(name, length, **form):
    torch.manual_seed(0)
    module = AttentionChoice(name, OPTIONS.get(name, {})).build(Place(32, 2, length, length)).eval()
    first, second = torch.randn(2, 2, length, 32)
    try:
        program = torch.export.export(module, (first,), form)
    except Exception:  # of many classes, one for each thing that a trace cannot do
        return False
    torch.testing.assert_close(program.module()(second, **form), module(second, **form))
    return True


for name in ATTENTIONS:
    with torch.no_grad():
        exported = [
            agrees(name, length, causal=causal, key_mask=mask)
            for length in (67, 600)
            for causal in (False, True)
            for mask in (None, torch.arange(length) < torch.tensor([[length], [length - 9]]))
        ]
    print(name, all(exported))
"""


@pytest.mark.slow
def test_what_is_said_to_be_exported_is() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    found = dict(line.split() for line in run.stdout.splitlines())
    declared = {name: str(not kind.about.no_export) for name, kind in ATTENTIONS.items()}
    assert found == declared, run.stderr
