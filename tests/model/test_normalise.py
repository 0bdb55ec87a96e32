import pytest
import torch
from torch import Tensor

from forecaster.model.normalise import Centre, CyclePrior, WindowNorm


def test_none_leaves_the_window_and_has_no_level_to_shrink() -> None:
    window = torch.randn(4, 2, 12)
    norm = WindowNorm("none", "cycle", season=5, targets=2, shrink=True)
    inner, level, scale = norm(window)
    assert torch.equal(inner, window)
    assert torch.equal(norm.restore(inner, level, scale), window)
    assert list(norm.parameters()) == []


@pytest.mark.parametrize("centre", ["cycle", "last"])
def test_a_cycle_changes_from_the_centre_of_the_one_before(centre: Centre) -> None:
    norm = WindowNorm("window", centre, season=4, targets=1, shrink=False)
    window = torch.randn(3, 2, 12)
    changes, there = norm.changes(window)
    before = {"cycle": lambda x: x.mean(dim=-1, keepdim=True), "last": lambda x: x[..., -1:]}
    for begin in (4, 8):
        level = before[centre](window[..., begin - 4 : begin])
        got = changes[..., begin : begin + 4]
        torch.testing.assert_close(got, window[..., begin : begin + 4] - level)
    assert there.tolist() == [[[False] * 4 + [True] * 8] * 2] * 3
    single, whole = norm.changes(window[..., :4])
    assert torch.equal(single, window[..., :4])
    assert whole.all()


def test_there_is_no_change_from_a_cycle_without_values() -> None:
    norm = WindowNorm("window", "last", season=2, targets=1, shrink=False)
    window = torch.tensor([[[1.0, 0.0, 5.0, 7.0, 0.0, 0.0, 9.0, 9.0]]])
    seen = torch.tensor([[[1, 0, 1, 1, 0, 0, 1, 1]]], dtype=torch.bool)
    changes, there = norm.changes(window, seen)
    assert changes.flatten().tolist() == [0, 0, 4, 6, 0, 0, 0, 0]
    assert there.flatten().tolist() == [False, False, True, True, False, False, False, False]


def test_the_level_shrinks_by_two_percent_at_first() -> None:
    norm = WindowNorm("window", "last", season=5, targets=2, shrink=True)
    flat = torch.zeros(1, 2, 3)
    level = norm.restore(flat, torch.full((1, 2, 1), 10.0), torch.ones(1, 2, 1))
    torch.testing.assert_close(level, torch.full((1, 2, 3), 10 * (1 - 0.017986)))


def days(length: int) -> Tensor:
    """A calendar (N, 2) of days of four steps, beside an uninformative feature."""
    hour = torch.arange(length) % 4
    return torch.stack([hour / 3 - 0.5, torch.randn(length)], dim=1)


def test_the_prior_knows_the_observed_rows_alone_in_any_portions() -> None:
    whole, gaps = CyclePrior(4, 2, (3.0, 0.0)), CyclePrior(4, 2, (3.0, 0.0))
    values, calendar = torch.randn(42, 2), days(42)
    values[torch.rand(42, 2) < 0.4] = torch.nan
    values[3::4, 1] = torch.nan
    whole.fit([(values, calendar)])
    gaps.fit(zip(values.split(10), calendar.split(10), strict=True))
    torch.testing.assert_close(gaps.table, whole.table)
    wanted = torch.stack([values[phase::4].nanmean(dim=0) for phase in range(4)]).nan_to_num()
    torch.testing.assert_close(whole.table, wanted)
    assert torch.equal(whole(calendar[None, 3:9])[0], whole.table[[3, 0, 1, 2, 3, 0]])


def test_a_season_without_a_phase_is_refused() -> None:
    with pytest.raises(ValueError, match="got season=7 steps"):
        CyclePrior(7, 1, ())


@pytest.mark.parametrize("centre", ["cycle", "last", "window"])
@pytest.mark.parametrize("observed", ["1" * 12, "101101110101", "111011110000", "0" * 12])
def test_only_what_was_observed_has_centre_and_scale(centre: Centre, observed: str) -> None:
    there = torch.tensor([digit == "1" for digit in observed])
    window = 3 * torch.randn(1, 1, 12) + 7
    norm = WindowNorm("window", centre, season=4, targets=1, shrink=False)
    normal, level, scale = norm(window.where(there, torch.nan), there[None, None])
    seen = window[0, 0][there]
    recent = {"cycle": window[0, 0, -4:][there[-4:]], "last": seen[-1:], "window": seen}[centre]
    if not len(recent):  # an empty last cycle, or an empty window
        recent = seen if len(seen) else torch.zeros(1)
    torch.testing.assert_close(level.flatten(), recent.mean()[None])
    spread = seen.std(correction=0) if len(seen) else torch.zeros(())
    torch.testing.assert_close(scale.flatten(), spread[None] + 0.01)
    wanted = torch.where(there, (window - level) / scale, 0)
    torch.testing.assert_close(normal, wanted)
    back = norm.restore(normal, level, scale)
    torch.testing.assert_close(back[..., there], window[..., there])
    if there.all():
        for x, y in zip(norm(window), (normal, level, scale), strict=True):
            torch.testing.assert_close(x, y)
