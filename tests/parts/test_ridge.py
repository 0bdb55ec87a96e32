from itertools import product

import numpy as np
import pytest
import torch

from forecaster.parts import Ridge, ridge
from forecaster.parts.base import filled
from forecaster.parts.moments import Layout
from tests.parts import folds
from tests.parts.folds import HORIZON, PAST, SEASON, TARGETS

KNOWN = torch.sin(torch.arange(400.0) ** 1.3)[:, None] * torch.tensor([1.0, -2.0])


def unfitted(fold, past=PAST, **settings):
    layout = Layout.of(fold)
    facts = {
        "season": SEASON, "centre": "last", "maps": 1, "inputs": "past", "penalties": (0.1,),
        "moving": layout.moving, "others": layout.others, "before": layout.before,
        "seasons": layout.seasons, "phases": layout.phases,
    } | settings  # fmt: skip
    return Ridge(fold.task, "x", past, **facts)


def rows(fold, part, target):
    """Inputs and outputs of every training window, collected one by one."""
    data, inputs, outputs = fold.train, [], []
    for number in range(len(data)):
        item, row, _ = data.origin(number)
        begin = 0 if data.items is None else int(data.items.bounds[item])
        lead = torch.full((max(0, begin - (row - data.past)),), torch.nan)
        own = torch.cat([lead, data.values[max(begin, row - data.past) : row + HORIZON, target]])
        past, whole = (
            filled(each.nan_to_num(), ~each.isnan(), SEASON).double().numpy()
            for each in (own[: data.past], own)
        )
        level = np.mean(past[-1 if part.centre == "last" else -SEASON :])
        each = past[-part.past :] - level
        if part.inputs != "past":
            batch = data.batch(torch.tensor([number]))
            extras = part.layout.extras(fold.task, *batch.inputs)[0].double().numpy()
            each = np.concatenate([each, extras, [level] if part.inputs == "level" else []])
        inputs.append(each)
        outputs.append(whole[data.past :] - level)
    return np.stack(inputs), np.stack(outputs)


def solved(x, y, part, penalty):
    """The same map by least squares, with the penalties as additional rows."""
    width = part.layout.moving * (part.layout.before + HORIZON)
    width += len(part.layout.others) * part.layout.before
    groups = [part.past, width, part.layout.waves, 1]
    groups = groups[: {"past": 1, "calendar": 3, "level": 4}[part.inputs]]
    scale = []
    for count in filter(None, groups):
        own = x[:, len(scale) : len(scale) + count]
        scale += [penalty * max(1e-9, float(np.square(own).sum(axis=0).mean()))] * count
    start = np.zeros((x.shape[1], HORIZON))
    if part.centre == "cycle":
        cycles = part.past // SEASON
        for i, step in np.ndindex(cycles * SEASON, HORIZON):
            start[part.past - 1 - i, step] = (-1 - i - step) % SEASON == 0
        start /= cycles
    root = np.sqrt(scale)
    both = np.concatenate([x, np.diag(root)]), np.concatenate([y, root[:, None] * start])
    return np.linalg.lstsq(*both, rcond=None)[0]


FOLDS = {
    "covariates": folds.fold(folds.series(), moving=2, covariates=KNOWN),
    "panel": folds.panel_fold(),
    "whole panel": folds.panel_fold(missing=False),
    "all columns": folds.fold(folds.series(), targets=(0, 1, 2)),
}


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "by column"])
@pytest.mark.parametrize("inputs", ridge.INPUTS)
@pytest.mark.parametrize("centre", ["last", "cycle"])
@pytest.mark.parametrize(
    ("name", "past"), [("covariates", PAST), ("covariates", 7), ("panel", 12), ("panel", 6)]
)
def test_it_is_penalised_least_squares(name, past, centre, inputs, shared):
    fold = FOLDS[name]
    count = len(fold.task.targets)
    penalties = (0.3,) if shared else tuple(0.1 * (1 + k) for k in range(count))
    part = unfitted(
        fold, past, centre=centre, inputs=inputs, maps=len(penalties), penalties=penalties
    )
    got = part.refit(fold).weights.double().numpy()
    pairs = [rows(fold, part, target) for target in fold.task.targets]
    if shared:
        pairs = [(np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs]))]
    for weights, (x, y), penalty in zip(got, pairs, penalties, strict=True):
        np.testing.assert_allclose(weights, solved(x, y, part, penalty), atol=2e-4)


class TestFit:
    @pytest.mark.parametrize("targets", [TARGETS, (1,)])
    def test_of_a_long_and_a_short_look_back_by_each_kind_of_inputs(self, targets):
        parts = Ridge.fit(folds.fold(folds.series(), past=60, targets=targets))
        assert [(part.past, part.inputs) for part in parts] == [*product((60, 12), ridge.INPUTS)]
        for part in parts:
            assert part.name == f"{ridge.INPUTS[part.inputs]}, {part.past}"
            assert part.family == ("ridge" if part.inputs == "past" else "calendar ridge")
            facts = part.inputs != "past", part.inputs == "level", len(targets) > 1
        for word, there in zip(("calendar", "level", "map for"), facts, strict=True):
            assert (word in part.chosen) == there

    def test_look_backs(self):
        for longest, season, found in (
            (336, 24, [336, 48]), (96, 24, [96, 24]), (24, 24, [24]), (10, 1, [10, 2]), (1, 1, [1]),
        ):  # fmt: skip
            assert ridge.look_backs(longest, season) == found

    def test_a_long_look_back_is_read_in_part(self, monkeypatch):
        monkeypatch.setattr(ridge, "LONGEST", 3 * SEASON + 1)
        fold = folds.fold(folds.series())
        found = Ridge.fit(fold)
        assert max(part.past for part in found) == 3 * SEASON
        assert torch.allclose(found[0].refit(fold).weights, found[0].weights, atol=1e-5)

    @pytest.mark.parametrize("name", FOLDS)
    def test_what_is_chosen_has_the_least_error_on_what_chooses(self, name):
        """The error from products is that of the forecasts, exactly if there are no gaps."""
        fold = FOLDS[name]
        for part in Ridge.fit(fold)[:3]:
            errors = {}
            for centre, maps in product(("last", "cycle"), (1, len(fold.task.targets))):
                found = []
                for penalty in ridge.PENALTIES:
                    facts = {
                        "centre": centre,
                        "inputs": part.inputs,
                        "penalties": (penalty,) * maps,
                    }
                    other = unfitted(fold, part.past, maps=maps, **facts).refit(fold)
                    found.append(folds.errors(other, fold.choose).square().nanmean(dim=(0, 1)))
                table = torch.stack(found)
                best = table.mean(dim=1).min() if maps == 1 else table.min(dim=0).values.mean()
                errors[(centre, maps)] = float(best)
            own, least = folds.error(part, fold.choose), min(errors.values())
            if name == "panel":  # gaps count as filled there
                assert own <= 1.1 * least
            else:
                assert own == pytest.approx(least, rel=1e-5)
                assert errors[(part.centre, part.maps)] == least
            ends = f"{min(part.penalties):g}", f"{max(part.penalties):g}"
            reach = "value" if part.centre == "last" else "cycle"
            assert f"centred on the last {reach}" in part.chosen
            assert f"penalty {'–'.join(dict.fromkeys(ends))}, " in part.chosen
            assert part.chosen.endswith("one map for all columns") == (part.maps == 1)

    def test_wide_windows_are_forecast_one_by_one(self, monkeypatch):
        fold = FOLDS["covariates"]
        monkeypatch.setattr(ridge, "WORK", 0)
        parts = Ridge.fit(fold)
        together = [folds.forecast(part, fold.choose) for part in parts]
        monkeypatch.setattr(ridge, "WIDE", 1)
        for part, wanted in zip(parts, together, strict=True):
            apart = folds.forecast(part, fold.choose)
            torch.testing.assert_close(apart, wanted, rtol=1e-5, atol=1e-5)

    def test_what_would_be_too_large_is_shared(self, monkeypatch):
        fold = FOLDS["all columns"]
        for bound in ("SIZE", "HELD"):
            with monkeypatch.context() as patch:
                patch.setattr(ridge, bound, 0)
                assert ridge._Fitting(fold, Layout.of(fold), SEASON).own == []
        monkeypatch.setattr(ridge, "WORK", 0)
        assert {part.maps for part in Ridge.fit(fold)} == {1}


def test_no_map_that_makes_no_sense():
    fold = FOLDS["all columns"]
    for wrong in (
        {"centre": "middle"}, {"inputs": "more"}, {"maps": 2}, {"season": PAST + 1}, {"season": 0}
    ):  # fmt: skip
        with pytest.raises(ValueError, match="no map"):
            unfitted(fold, **wrong)
    for wrong in (
        {"moving": 10**9}, {"before": PAST + 1}, {"others": (99,)}, {"others": (1,) * 10**6},
        {"seasons": (SEASON,), "phases": ()}, {"seasons": (0,), "phases": ((1.0,),)},
        {"seasons": (SEASON,), "phases": ((1.0,) * 9,)},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="not those of the task"):
            unfitted(fold, **wrong)


def test_it_reads_whole_cycles_within_its_limit_and_of_a_longer_cycle_as_many_steps():
    assert ridge.reach(2_000, 10_080) == 2_000
    assert ridge.reach(20_160, 10_080) == ridge.LONGEST
    assert ridge.reach(20_160, 1_000) == 2_000
