"""`About.no_export` agrees with what torch.export and ONNX do, and every attention compiles."""

from typing import Any

import pytest
import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place

from .agreement import run

OPTIONS = {"prob": {"factor": 1}, "lsh": {"bucket_size": 8}, "topk": {"topk": 2}}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_form_that_is_exported_equals_the_usual_one(name: str, monkeypatch: Any) -> None:
    module = AttentionChoice(name, OPTIONS.get(name, {})).build(Place(8, 2, 67, 67)).eval()
    x = torch.randn(2, 67, 8, generator=torch.Generator().manual_seed(1))
    masks = None, torch.arange(67) < torch.tensor([[67], [58]])
    results = []
    for exporting in (False, True):
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda it=exporting: it)
        with torch.no_grad():
            results.append([module(x, causal=c, key_mask=m) for m in masks for c in (False, True)])
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-5)


PROGRAM = """
import sys

import torch

from forecaster.attention import AttentionChoice, Place
from forecaster.forecast.export.graph import quiet
from forecaster.forecast.export.runtime import session

OPTIONS = {"prob": {"factor": 1}, "lsh": {"bucket_size": 8}, "topk": {"topk": 2}}
torch.set_num_threads(1)


class Alone(torch.nn.Module):
    def __init__(self, module, causal):
        super().__init__()
        self.module, self.causal = module, causal

    def forward(self, x, mask=None):
        return self.module(x, causal=self.causal, key_mask=mask)


def agrees(name, length, causal, masked):
    torch.manual_seed(0)
    place = Place(32, 2, length, length)
    module = Alone(AttentionChoice(name, OPTIONS.get(name, {})).build(place), causal).eval()
    rows = torch.tensor([[length], [length - 9], [length - 3]])
    inputs = [torch.randn(3, length, 32), torch.arange(length) < rows][: 1 + masked]
    fewer = [each[:2] for each in inputs]
    batch = torch.export.Dim("batch")
    dims = tuple({0: batch} for _ in inputs)
    try:
        program = torch.export.export(module, tuple(inputs), dynamic_shapes=dims)
        written = torch.onnx.export(
            program, input_names=["x", "mask"][: 1 + masked], output_names=["y"], dynamo=True,
            verbose=False,
        )
        run = session(written.model_proto.SerializeToString(), 1)
        feed = {name: each.numpy() for name, each in zip(["x", "mask"], fewer)}
        found = [program.module()(*fewer), torch.from_numpy(run(feed, ["y"])[0])]
    except Exception:  # of many classes, one for each thing that a trace cannot do
        return False
    for each in found:
        torch.testing.assert_close(each, module(*fewer), atol=1e-5, rtol=1e-4)
    return True


for name in sys.argv[1:]:
    with torch.no_grad(), quiet():
        exported = all(
            agrees(name, length, causal, masked)  # every pair of values once
            for causal, length, masked in (
                (True, 600, False), (False, 600, True), (True, 67, True), (False, 67, False)
            )
        )
    print(name, exported, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_what_is_said_to_be_exported_is() -> None:
    """With torch.export and ONNX Runtime, short and long, masked or not, for any batch."""
    found = dict(line.split() for line in run(PROGRAM, *ATTENTIONS))
    assert found == {name: str(not kind.about.no_export) for name, kind in ATTENTIONS.items()}


COMPILING = """
import sys

import torch

from forecaster.attention import ATTENTIONS, AttentionChoice, Place
from forecaster.attention import fixed, logsparse, lsh, sliding, strided

torch.set_num_threads(1)
tiled = ["strided", "fixed", "logsparse", "sliding", "lsh"]
for name in [*ATTENTIONS, "", *tiled]:
    if not name:  # from here on in tiles, as of long series
        strided._SHORT = fixed._SHORT = logsparse._SHORT = sliding._SHORT = lsh._DENSE = 0
        continue
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
def test_compiled_it_gives_the_same_numbers() -> None:
    """Forward and backward."""
    assert run(COMPILING) == [*ATTENTIONS, "strided", "fixed", "logsparse", "sliding", "lsh"]
