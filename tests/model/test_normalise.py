import pytest
import torch

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
    levels = [before[centre](cycle).expand(-1, -1, 4) for cycle in window.split(4, -1)[:2]]
    torch.testing.assert_close(changes[..., 4:], window[..., 4:] - torch.cat(levels, -1))
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


def test_the_prior_knows_the_observed_rows_alone_in_any_portions() -> None:
    whole, gaps = CyclePrior(4, 2, (3.0, 0.0)), CyclePrior(4, 2, (3.0, 0.0))
    phase = torch.arange(42) % 4
    values, calendar = torch.randn(42, 2), torch.stack([phase / 3 - 0.5, torch.randn(42)], dim=1)
    values[torch.rand(42, 2) < 0.4] = torch.nan
    values[3::4, 1] = torch.nan
    whole.fit([(values, calendar)])
    gaps.fit(zip(values.split(10), calendar.split(10), strict=True))
    torch.testing.assert_close(gaps.table, whole.table)
    wanted = torch.stack([values[phase::4].nanmean(dim=0) for phase in range(4)]).nan_to_num()
    torch.testing.assert_close(whole.table, wanted)
    assert torch.equal(whole(calendar[None, 3:9])[0], whole.table[[3, 0, 1, 2, 3, 0]])
