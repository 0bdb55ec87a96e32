import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.attention import ATTENTIONS
from forecaster.base import installation
from forecaster.base.errors import ConfigError, DataError, UsageError
from forecaster.model.start import STARTS
from forecaster.plan import splits as module
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.study.compare.grid import (
    BUDGET_MARGIN,
    amounts_to_full,
    define,
    read,
    resolve,
    tokens,
)
from tests import small
from tests.study.compare.grids import REGIMES, small_grid, values

DATA = os.environ.get("FORECASTER_DATA", "")
LONG = ("usual", "known", "columns", "recall", "drift", "hops")
"""The grids that build the most models."""
PACKAGED = [
    pytest.param(file, id=file.stem, marks=[pytest.mark.long] * (file.stem in LONG))
    for file in sorted((installation.configs() / "grids").glob("*.yaml"))
]


@pytest.fixture(scope="module")
def grid(home):
    return small_grid(attn="all", seeds=2)


def build(cell, grid):
    return make_splits(make_plan(cell.config, grid.data[cell.data]), known=None).build_model()


def test_a_small_file_gets_the_recipe_of_files_and_the_regimes_that_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    months = pd.date_range("2020-01-01", periods=54, freq="MS")
    frame = pd.DataFrame({"month": months, "sales": np.sin(np.arange(54) * np.pi / 6) + 2})
    frame.to_csv("own.csv", index=False)
    said, changes = [], {"data": ["own.csv"], "horizons": [3], "attn": ["prob"], "seeds": 1}
    found = resolve("own", define(read("default")[1], changes, "default"), said.append)
    assert {(cell.regime, cell.config.window.past) for cell in found.cells} == {("quarters", 12)}
    assert said[0].startswith("without the regime 'hours': own: 54 steps are too few for a horizon")
    with pytest.raises(DataError, match=r"too few for a horizon of 30: .* window of 12 \+ 30"):
        resolve("own", define(read("default")[1], {**changes, "horizons": [30]}, "default"))


class TestDefine:
    def test_references_come_along_and_changes_replace_values_and_add_sets(self):
        references = ["full", "prob", "lsh", "static", "mean", "none"]
        assert define(values(attn=["lsh", "prob"]), {}, "").attentions() == references
        assert define(values(attn="all"), {}, "").attentions() == list(ATTENTIONS)
        given = values()
        changes = {"horizons": [7, 8], "protocol.steps": 9, "protocol.set": ["train.lr=0.5"]}
        changed = define(given, changes, "")
        assert (changed.horizons, changed.protocol.steps) == ([7, 8], 9)
        assert changed.protocol.set == [*given["protocol"]["set"], "train.lr=0.5"]
        assert given == values(), "what was given stays"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"horizon": [5]}, "toy.yaml: horizon: .*Did you mean 'horizons'"),
            ({"protocol.step": 3}, "protocol.step: unknown. Did you mean 'steps'"),
            ({"protocol.regimes": {"x": {"sets": []}}}, r"regimes.x.sets: .*Did you mean 'set'"),
            ({"protocol.regimes": {"a-b": {}}}, "a-b"),
            ({"protocol.regimes": {}}, "protocol.regimes: .*at least 1"),
            ({"protocol.regimes": {"x": {"swap": ["middle"]}}}, "swap.0: input should be 'encod"),
            ({"protocol.regimes": {"x": {"set": ["data.features=S"]}}}, "into protocol.set"),
        ],
    )
    def test_what_is_wrong_is_named(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            define(values(), changes, "toy.yaml")


def test_a_grid_is_read_by_file_and_by_name(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("seeds: 2\n")
    assert read(str(file)) == ("mine", {"seeds": 2})
    assert read("default")[0] == "default"
    with pytest.raises(UsageError, match=r"no grid 'defult'.*Did you mean 'default'"):
        read("defult")


class TestResolve:
    def test_every_combination_once(self, grid):
        names = [cell.name for cell in grid.cells]
        assert len(set(names)) == len(names) == len(ATTENTIONS) * (2 + 1) * 2 + 2
        assert "prob-5-few-linear-s1" in names
        alone = [name for name in names if name.startswith("linear")]
        assert alone == [f"linear-5-few-linear-s{seed}" for seed in (0, 1)]
        assert [cell.seed for cell in grid.cells] == sorted(cell.seed for cell in grid.cells)
        for cell in grid.cells:
            assert cell.config.model.options["linear"] is cell.linear
            assert cell.config.train.lr_of == ({"linear": 0.001} if cell.linear else {}), "its rate"
            assert cell.config.train.patience == cell.steps

    def test_in_a_group_the_attention_alone_varies(self, grid):
        for place in (("few", True, 0), ("few", False, 1), ("many", False, 1)):
            group = [c for c in grid.cells if (c.regime, c.linear, c.seed) == place]
            configs = [cell.config.to_dict() for cell in group]
            for config, cell in zip(configs, group, strict=True):
                assert config.pop("attn")
                assert config["model"].pop("feed_forward")
                assert config["model"].pop("alone") == (cell.attn == "linear")
                assert config == configs[0]
                assert tokens(build(cell, grid)) == (9 if cell.regime == "few" else 36)

    def test_where_the_data_decide_it_all_start_as_full_attention_does(self, home, monkeypatch):
        asked = []

        def started(splits):
            config = splits.plan.config
            asked.append(config.attn.name)
            return config.model_copy(update={"model": config.model.model_copy(update=STARTS[2])})

        monkeypatch.setattr(module, "started", started)
        sets = [f"model.{name}=null" for name in STARTS[2]]
        given = values(attn=["prob", "none"])
        cells = resolve("toy", define(given, {"protocol.set": sets}, "")).cells
        assert asked == ["full"] * len(REGIMES)
        for cell in cells:
            assert STARTS[2].items() <= cell.config.model.options.items()

    def test_the_budget(self, grid):
        counts = {}
        for cell in grid.cells:
            named = build(cell, grid).named_parameters()
            learned = [
                p.numel() for n, p in named if p.requires_grad and not n.startswith("linear.")
            ]
            assert sum(learned) == cell.parameters
            place = cell.regime, cell.attn
            assert counts.setdefault(place, cell.parameters) == cell.parameters
        for cell in grid.cells:
            full = counts[cell.regime, "full"]
            assert cell.within_budget == (abs(cell.parameters / full - 1) <= BUDGET_MARGIN)
        far = {cell.attn for cell in grid.cells if not cell.within_budget}
        known = {"gau", "flash", "ssd", "position-prior", "static", "linear"}
        assert known >= {name for name in far if not name.startswith("aft-")} > set()

    def test_a_skeleton_without_linear_path(self):
        bare = values()
        bare["protocol"]["set"] = [
            "window.past=24", "model=informer", "model.width=8", "model.feed_forward=8",
        ]  # fmt: skip
        made = resolve("toy", define(bare, {"protocol.regimes": {"points": {}}}, ""))
        assert {cell.linear for cell in made.cells} == {False}

    @pytest.mark.parametrize("swap", [["cross"], ["encoder", "cross"]])
    def test_the_cross_attention_is_swapped_where_the_regime_says_so(self, home, swap):
        decoder = ["model.decoder_layers=1", "model.output=both", "attn=mean"]
        regimes = {"protocol.regimes": {"x": {"set": decoder, "swap": swap}}}
        made = small_grid(attn=["topk", "logsparse"], **regimes)
        cells = [cell for cell in made.cells if cell.attn != "linear"]
        assert {cell.attn for cell in cells} == {"full", "topk", "static", "mean", "none"}
        for cell in cells:
            model = build(cell, made)
            own = ATTENTIONS[cell.attn if "encoder" in swap else "mean"]
            assert type(model.encoder[0].attention) is type(model.decoder[0].attention) is own
            assert type(model.decoder[0].cross) is ATTENTIONS[cell.attn]
        assert len({cell.digest for cell in made.cells}) == len(made.cells)

    def test_static_is_left_out_where_there_are_too_many_positions(self, monkeypatch):
        monkeypatch.setattr("forecaster.study.compare.grid.LONGEST", 9)
        cells = small_grid().cells
        assert {cell.regime for cell in cells if cell.attn == "static"} == {"few"}
        assert {cell.regime for cell in cells if cell.attn == "mean"} == {"few", "many"}

    def test_the_linear_path_alone(self, grid):
        (first, second) = [cell for cell in grid.cells if cell.attn == "linear"]
        model = build(first, grid)
        assert (tokens(model), amounts_to_full("linear", model)) == (9, False)
        assert (first.parameters, first.within_budget) == (3, False), "how far each level falls"
        assert first.digest != second.digest

    def test_a_type_may_have_options_of_its_own(self, home):
        grid = small_grid(attn=["prob"], options={"prob": {"factor": 2}})
        attention = {cell.attn: cell.config.to_dict()["attn"] for cell in grid.cells}
        assert attention["prob"]["factor"] == 2
        assert attention["none"].get("factor") != 2
        with pytest.raises(UsageError, match="the same cell twice: small-full-5-few-linear-s0"):
            small_grid(data=["small", "small"])
        for name, key in (("porb", "factor"), ("prob", "facto")):
            with pytest.raises(UsageError, match=r"unknown attention 'porb'|facto"):
                small_grid(attn=["prob"], options={name: {key: 2}})

    def test_epochs_become_steps_of_the_data(self):
        one, four = (
            {cell.steps for cell in small_grid(**{"protocol.epochs": count}).cells}
            for count in (1, 4)
        )
        assert len(one) == 1
        assert four == {4 * steps for steps in one}

    def test_the_digest_depends_on_steps_and_configuration(self):
        others = {}, {"protocol.steps": 7}, {"protocol.set": ["train.lr=0.5"]}
        cells = [cell for changes in others for cell in small_grid(**changes).cells]
        assert len({cell.digest for cell in cells}) == len(cells)
        assert small_grid().cells[0].digest == cells[0].digest


def test_what_amounts_to_full(home):
    sets = {"full": [], "prob": ["attn.factor=9"], "topk": ["attn.topk=9"], "lsh": []}
    for name, own in sets.items():
        model = small.splits(*own, attn=name).build_model()
        assert amounts_to_full(name, model) == (name != "full")


@pytest.mark.data
@pytest.mark.parametrize("file", PACKAGED)
def test_the_packaged_grids(file, monkeypatch):
    """Each trains the types that it names within the budget, and no type amounts to full there."""
    cards = Path(installation.__file__).parents[2] / "data" / "cards"
    monkeypatch.setattr(installation, "cards", lambda: cards)
    monkeypatch.setenv("FORECASTER_DATA", DATA)
    made = resolve(*[file.stem, define(read(str(file))[1], {"seeds": 1}, file.name)])
    assert {cell.attn for cell in made.cells} - {"linear"} == set(made.definition.attentions())
    if file.stem in ("default", "small"):
        lengths = sorted({tokens(build(cell, made)) for cell in made.cells if cell.attn == "full"})
        assert lengths[0] >= 84
        assert lengths[-1] >= 512
    outside = {c.attn for c in made.cells if not c.within_budget}
    assert outside <= {"aft-full", "aft-local", "position-prior", "static", "linear"}
    assert not any(amounts_to_full(cell.attn, build(cell, made)) for cell in made.cells)
