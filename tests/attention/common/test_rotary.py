from typing import Any

import pytest
import torch

from forecaster.attention import AttentionChoice, Place
from forecaster.attention.common.rotary import rotate
from tests.attention.agreement import projected


def test_a_position_turns_the_first_half_with_the_second() -> None:
    """By position · 10000^(-k / 3), so that products depend on the distance alone."""
    x, steps = torch.randn(6).double(), torch.arange(9)
    angles = steps[:, None] / 10000.0 ** (torch.arange(3) / 3)
    pairs = torch.complex(x[:3], x[3:]) * torch.exp(1j * angles)
    want = torch.cat([pairs.real, pairs.imag], 1).double()
    torch.testing.assert_close(rotate(x.expand(9, -1)), want)


BOTH: dict[str, Any] = {"rotary": True, "qk_norm": True}


@pytest.mark.parametrize("name", ["full", "topk", "diff", "single"])
@pytest.mark.parametrize("options", [{"rotary": True}, {"qk_norm": True}, BOTH], ids=str)
def test_queries_and_keys_are_normalised_and_then_turned(name: str, options: Any) -> None:
    """What the plain module makes of q and k that are prepared by hand."""
    torch.manual_seed(0)
    place = Place(12, 3, 7, 7)
    plain = AttentionChoice(name).build(place).double()
    module = AttentionChoice(name, options).build(place).double()
    extra = module.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert extra == ["query_key.gains"] * ("qk_norm" in options)
    if extra:
        torch.nn.init.normal_(module.query_key.gains)
    said = [", normalised queries and keys"] * ("qk_norm" in options)
    said += [", rotary positions"] * ("rotary" in options)
    assert module.effective().text == plain.effective().text + "".join(said)
    assert not module.effective().full
    heads, width = {"single": (1, 12), "diff": (6, 2)}.get(name, (3, 4))
    x = torch.randn(2, 7, 12).double()
    q, k, v = projected(module, x, x, heads=3) if name != "single" else (x[:, None],) * 3

    def prepared(x: torch.Tensor, n: int) -> torch.Tensor:
        parts = x.transpose(1, 2).flatten(2).unflatten(2, (heads, width)).transpose(1, 2)
        if "qk_norm" in options:
            norm = (parts.square().mean(3, keepdim=True) + 1e-5).sqrt()
            parts = parts / norm * module.query_key.gains[n]
        parts = rotate(parts) if "rotary" in options else parts
        merged = parts.transpose(1, 2).flatten(2)
        return merged.unflatten(2, (x.shape[1], -1)).transpose(1, 2)

    if name == "single":
        given, want = module.query_key(q, k), (prepared(q, 0), prepared(k, 1))
    else:
        given = (module.attend(q, k, v, causal=True, key_mask=None),)
        want = (plain.attend(prepared(q, 0), prepared(k, 1), v, causal=True, key_mask=None),)
    torch.testing.assert_close(given, want)


def test_scores_depend_on_distances_alone() -> None:
    """The first steps, given twice: rows further on see the same at the same distance."""
    module = AttentionChoice("full", {"rotary": True}).build(Place(8, 2, 9, 9)).double()
    x = torch.randn(1, 1, 8).double().expand(1, 9, 8)
    q, k, _ = module.projected(x, x)
    scores = (lambda pair: pair[0] @ pair[1].mT)(module.query_key(q, k))
    torch.testing.assert_close(scores[..., 1:, 1:], scores[..., :-1, :-1])


def test_positions_of_two_series_are_not_compared() -> None:
    with pytest.raises(ValueError, match="7 queries and 11 keys have no common ones"):
        AttentionChoice("full", {"rotary": True}).build(Place(8, 2, 7, 11, role="cross"))
    with pytest.raises(ValueError, match="an even width of a head, got 3"):
        AttentionChoice("topk", {"rotary": True}).build(Place(6, 2, 7, 7))
    AttentionChoice("topk", {"qk_norm": True}).build(Place(6, 2, 7, 11, role="cross"))
