"""What does not fit is refused with a ValueError that names the argument and the sizes."""

import inspect
import re
from typing import Any

import pytest
import torch
import yaml

from forecaster import attention
from forecaster.attention import ATTENTIONS, AttentionChoice, Place
from forecaster.attention.static import LONGEST

from .test_definition import CASES

LONGER = torch.zeros(3, 2, 9, 3)
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("full", {"v": torch.zeros(3, 2, 6, 5)}, "got q (3, 2, 7, 3), k (3, 2, 7, 3), v (3, 2, 6, 5)"),
    ("full", {"k": torch.zeros(3, 2, 7, 5)}, "got q (3, 2, 7, 3), k (3, 2, 7, 5)"),
    ("full", {"k": torch.zeros(1, 2, 7, 3)}, "got q (3, 2, 7, 3), k (1, 2, 7, 3)"),
    ("full", {"k": torch.zeros(2, 7, 3)}, "got q (3, 2, 7, 3), k (2, 7, 3)"),
    ("logsparse", {"k": LONGER, "v": LONGER}, "got 7 queries, 9 keys"),
    ("prob", {"factor": 0}, "factor=0"),
    ("prob", {"sample_index": torch.zeros(7, 0).long()}, "L = 7, got torch.int64 of shape (7, 0)"),
    ("prob", {"sample_index": torch.full((7, 2), 9)}, "in [0, 7), got values from 9 to 9"),
    ("prob", {"sample_index": torch.full((7, 2), -1)}, "in [0, 7), got values from -1 to -1"),
    ("lsh", {"rotations": torch.zeros(3, 4, 2)}, "(3, 2, 2), or (2, 3, 2, 2)"),
    ("lsh", {"n_buckets": 8}, "(3, 2, 4), or"),
    ("lsh", {"n_buckets": (4, 3)}, "got (4, 3)"),
    ("strided", {"stride": 0}, "stride=0"),
    ("strided", {"pattern": "near"}, "pattern must be one of 'merged'"),
    ("fixed", {"stride": 3, "summary": 4}, "summary=4, stride=3"),
    ("topk", {"topk": 0}, "topk=0"),
    ("single", {name: torch.zeros(3, 2, 7, 3) for name in "qkv"}, "q (3, 2, 7, 3): 2 heads"),
    ("fastformer", {"k": LONGER, "v": LONGER}, "q (3, 2, 7, 3), k (3, 2, 9, 3)"),
    ("fastformer", {"query_weight": torch.zeros(2, 5)}, "= (2, 6) or (H, E) = (2, 3), got (2, 5)"),
    ("fastformer", {"key_bias": torch.zeros(3)}, "key_bias must be (H,) = (2,), got (3,)"),
    ("gau", {"bias": torch.zeros(7, 8)}, "= (2, 7, 7), got (7, 8)"),
    ("gau", {"relative_bias": torch.zeros(11)}, "H = 2 and M >= 7, got (11,)"),
    ("gau", {"bias": torch.zeros(7, 7), "relative_bias": torch.zeros(13)}, "not both"),
    ("flash", {"chunk_size": 0}, "chunk_size=0"),
    ("flash", {"bias": torch.zeros(9, 9)}, "(2, 4, 4), got (9, 9)"),
    ("flash", {"quad_k": LONGER, "lin_k": LONGER, "v": LONGER}, "got 7 queries, 9 keys"),
    ("diff", {"q2": torch.zeros(3, 2, 7, 2)}, "both pairs must have the same shapes"),
    ("diff", {"lam": torch.zeros(3)}, "(2,), one per head, got (3,)"),
    ("aft-full", {"position_bias": torch.zeros(7, 5)}, "(7, 7), (H, L, S) = (2, 7, 7)"),
    ("aft-full", {"position_bias": (torch.zeros(7, 4), torch.zeros(7, 3))}, "(7, 4) and (7, 3)"),
    ("aft-local", {"window": 0}, "window=0"),
    ("aft-local", {"window": 4}, "(2, 7, 7)"),
    ("aft-local", {"k": LONGER, "v": LONGER}, "got 7 queries, 9 keys"),
    ("aft-conv", {"kernel": torch.zeros(2, 4)}, "window=4"),
    ("aft-conv", {"kernel": torch.zeros(2, 0)}, "a window of at least 1, got (2, 0)"),
    ("aft-conv", {"k": torch.zeros(3, 2, 7, 2)}, "k (3, 2, 7, 2)"),
    ("gated", {"gate": torch.zeros(3, 2, 7, 4)}, "(3, 2, 7, 1) or (3, 2, 7, 5), got (3, 2, 7, 4)"),
    ("sliding", {"window": 0}, "window=0"),
    ("sliding", {"sinks": -1}, "sinks=-1"),
    ("sliding", {"k": LONGER, "v": LONGER}, "got 7 queries, 9 keys"),
    ("forgetting", {"log_gate": torch.zeros(3, 2, 6)}, "= (3, 2, 7), got (3, 2, 6)"),
    ("retention", {"decay": torch.zeros(3)}, "decay must be (H,) = (2,), got (3,)"),
    ("delta", {"beta": torch.zeros(3, 2, 6)}, "beta must be (B, H, L) = (3, 2, 7), got (3, 2, 6)"),
    ("delta", {"log_decay": torch.zeros(3, 1, 7)}, "log_decay must be"),
    ("ssd", {"log_decay": torch.zeros(3, 1, 7)}, "= (3, 2, 7), got (3, 1, 7)"),
    ("position-prior", {"alpha": torch.zeros(2, 7, 6)}, "= (2, 7, 7), got (2, 7, 6)"),
    ("static", {"A": torch.zeros(3, 7, 7)}, "v (3, 2, 7, 5), A (3, 7, 7)"),
]


@pytest.mark.parametrize(("name", "changes", "text"), CALLS)
def test_a_function_refuses(name: str, changes: dict[str, Any], text: str) -> None:
    case = CASES[name]
    tensors, options = case.build(7, 7, torch.float32, **case.options[0])
    function = inspect.unwrap(getattr(attention, case.function))  # without the check of shapes
    with pytest.raises(ValueError, match=re.escape(text)):
        function(**{**tensors, **options, **changes})


OPTIONS = """
full dropout=-0.1, full dropout=1.0, prob factor=0, prob dropout=1.5,
logsparse sub_len=0, logsparse local_len=0, logsparse kernel_size=0, logsparse dense_prefix=-1,
lsh bucket_size=0, lsh n_hashes=0, lsh eval_hashes=0, lsh n_buckets=7 bucket_size=2,
strided stride=0, fixed stride=0, fixed summary=0, fixed summary=4 stride=3,
topk topk=0, fastformer dropout=1.0, gau key_width=3, gau expansion=0,
sliding window=0, sliding sinks=-1, delta taps=0, ssd state=0, ssd taps=0, gated dropout=1.0,
flash chunk_size=0, aft-local window=0, aft-conv window=0, aft-conv window=8
"""


@pytest.mark.parametrize("case", [case.strip() for case in OPTIONS.split(",")])
def test_a_module_refuses_options(case: str) -> None:
    name, *settings = case.split()
    options = {key: yaml.safe_load(value) for key, _, value in (x.partition("=") for x in settings)}
    with pytest.raises(ValueError, match=rf"^{next(iter(options))} must"):
        AttentionChoice(name, options).build(Place(12, 2, 7, 7))


def test_a_module_refuses_a_place() -> None:
    for choice, sizes, text in (
        (AttentionChoice("full"), (12, 5, 7, 7), "width=12, heads=5"),
        (AttentionChoice("strided", {"heads": "split"}), (12, 1, 7, 7), "at least 2 heads, got 1"),
        (AttentionChoice("diff"), (10, 2, 7, 7), "which gives heads of width 5"),
        (AttentionChoice("static"), (4, 1, LONGEST + 1, 4), f"at most {LONGEST} positions"),
        (AttentionChoice("static"), (4, 1, 4, LONGEST + 1), f"at most {LONGEST} positions"),
        (AttentionChoice("position-prior"), (4, 1, 4, LONGEST + 1), f"at most {LONGEST} positions"),
        (AttentionChoice("retention"), (6, 2, 7, 7), "an even width of a head, got 3"),
    ):
        with pytest.raises(ValueError, match=text):
            choice.build(Place(*sizes))


REFUSES_MIX = {"single", "gau", "flash", "aft-full", "aft-local", "aft-simple", "none"}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_only_the_heads_of_the_model_can_be_mixed(name: str) -> None:
    place = Place(12, 2, 7, 7, mix=True)
    if name not in REFUSES_MIX:
        assert AttentionChoice(name).build(place)(torch.randn(2, 7, 12)).shape == (2, 7, 12)
        return
    with pytest.raises(ValueError, match=r"set model\.mix=false"):
        AttentionChoice(name).build(place)


@pytest.mark.parametrize("name", ["static", "position-prior", "aft-full", "aft-local", "gau"])
def test_what_is_learned_for_positions_ends_at_the_place(name: str) -> None:
    """A shorter series has the first positions; a longer one is refused with both lengths."""
    torch.manual_seed(0)
    module = AttentionChoice(name).build(Place(12, 2, 11, 11)).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, 12, 12)
    with pytest.raises(ValueError, match=r"11 .*12"):
        module(x)
    shorter = AttentionChoice(name).build(Place(12, 2, 7, 7)).eval()
    state = {}
    for key, wanted in shorter.state_dict().items():
        cut = module.state_dict()[key]
        if key == "relative_bias.weight":  # from the middle on
            cut = cut[4:-4]
        state[key] = cut[tuple(slice(size) for size in wanted.shape)]
    shorter.load_state_dict(state)
    for options in ({}, {"causal": True}, {"key_mask": torch.arange(7).expand(2, 7) > 2}):
        torch.testing.assert_close(module(x[:, :7], **options), shorter(x[:, :7], **options))
