import torch

from forecaster.model.normalise import CyclePrior, WindowNorm


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
