import errno
import json
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import yaml

from forecaster.attention import ATTENTIONS
from forecaster.attention.base import SelfAttention
from forecaster.base import installation
from forecaster.base.errors import ConfigError, StorageError, UsageError
from forecaster.base.spelling import option
from forecaster.config.flags import FLAGS
from forecaster.config.run_config import (
    Loaded,
    RunConfig,
    differences,
    leaves,
    load,
    load_dict,
    read_yaml,
)
from forecaster.model import SKELETONS, Task

SHIPPED = sorted(path.stem for path in installation.configs().glob("*.yaml"))


def resolve(*sets, file=None, environment=None, **flags):
    """`load` with a given environment."""
    return load(file, sets, flags, environment or {})


@pytest.fixture
def written(tmp_path):
    """Write a configuration file and return its path as text."""

    def write(text):
        file = tmp_path / "run.yaml"
        file.write_text(text)
        return str(file)

    return write


def test_differences_are_told_leaf_by_leaf():
    old = {"a": 1, "b": {"c": [1], "d": None}}
    new = {"a": 1, "b": {"c": [2], "e": True}}
    assert differences(old, new) == [
        "b.c: [1] there, [2] here",
        "b.d: None there, nothing here",
        "b.e: nothing there, True here",
    ]
    assert differences(old, old) == []


class TestPrecedence:
    def test_each_layer_beats_the_one_before(self, written):
        path = "train.epochs"
        file = written("train: {epochs: 11, batch: 8}")
        environment = {"FORECASTER_TRAIN__EPOCHS": "12"}
        steps = [
            (resolve(file=written("seed: 1")), 6, ""),
            (resolve(file=written("train: {epochs: 11, batch: 8}")), 11, file),
            (resolve(file=file, environment=environment), 12, "$FORECASTER_TRAIN__EPOCHS"),
            (
                resolve("train.epochs=13", file=file, environment=environment),
                13,
                "--set train.epochs=13",
            ),
            (
                resolve("train.epochs=13", file=file, environment=environment, epochs=14),
                14,
                "--epochs",
            ),
        ]
        for loaded, epochs, origin in steps:
            assert loaded.config.train.epochs == epochs
            assert loaded.origins.get(path, "") == origin
        assert steps[-1][0].config.train.batch == 8
        assert steps[-1][0].origins["train.batch"] == file

    @pytest.mark.parametrize(
        ("flag", "value"),
        [
            ("attn", "mean"),
            ("data", "vic_elec"),
            ("target", "Demand"),
            ("features", "S"),
            ("horizon", 7),
            ("lookback", "3 cycles"),
            ("epochs", 2),
            ("time_limit", 90.0),
            ("blend", "none"),
            ("refit", True),
            ("register", False),
            ("seed", 5),
            ("device", "cpu"),
            ("past_covariates", ["wind"]),
            ("future_covariates", ["price", "rain"]),
            ("static", ["kind"]),
            ("time", "when"),
            ("stamps", "day-first"),
            ("decimal", ","),
            ("separator", "tab"),
            ("id", "shop"),
            ("freq", "D"),
            ("season", [7, 365]),
            ("policy", "sort"),
            ("missing", ["-9999", "?"]),
            ("split", "series"),
            ("holidays", "AU-VIC"),
        ],
    )
    def test_every_flag_is_short_for_its_path(self, flag, value):
        loaded = resolve(**{"data": "sales.csv", flag: value})
        assert loaded.config.flat()[FLAGS[flag]] == str(value)
        assert loaded.origins[FLAGS[flag]] == option(flag)

    @pytest.mark.parametrize(
        ("flag", "text", "value"),
        [
            ("past_covariates", "wind, a price", ["wind", "a price"]),
            ("season", "7, 365", [7, 365]),
            ("missing", "-9999,?", ["-9999", "?"]),
            ("time_limit", "1.5m", 90.0),
        ],
    )
    def test_a_text_is_read_wherever_it_comes_from(self, flag, text, value):
        own, path = {"data": "sales.csv"}, FLAGS[flag]
        variable = {f"FORECASTER_{path.upper().replace('.', '__')}": json.dumps(text)}
        wanted = resolve(**own, **{flag: value}).config
        assert resolve(**own, **{flag: text}).config == wanted
        assert resolve(f"{path}={json.dumps(text)}", **own).config == wanted
        assert resolve(environment=variable, **own).config == wanted

    @pytest.mark.parametrize(
        ("flag", "given", "value"),
        [("target", ["a", "b"], "a,b"), ("id", ["shop"], "shop"), ("season", 24, [24])],
    )
    def test_one_stands_for_a_list_and_a_list_for_names(self, flag, given, value):
        own = {"data": "sales.csv"}
        assert resolve(**own, **{flag: given}).config == resolve(**own, **{flag: value}).config

    def test_the_flags_above_are_all_there_are(self):
        marks = self.test_every_flag_is_short_for_its_path.pytestmark
        assert {flag for flag, _ in marks[0].args[1]} == set(FLAGS)

    def test_whoever_names_a_limit_on_epochs_means_it(self, written):
        own = {"data": "sales.csv"}
        assert resolve(**own).config.train.updates == 1000
        assert resolve(**own, epochs=3).config.train.updates is None
        assert "train.updates" not in resolve(**own, epochs=3).origins
        environment = {"FORECASTER_TRAIN__EPOCHS": "3"}
        assert resolve(environment=environment, **own).config.train.updates is None
        for file in ("base: own\ntrain: {epochs: 3}", "base: own\ntrain: {batch: 8}"):
            updates = resolve(file=written(file)).config.train.updates
            assert updates == (None if "epochs" in file else 1000)
        both = resolve("train.updates=50", **own, epochs=3).config.train
        assert (both.epochs, both.updates) == (3, 50)

    def test_no_flag_given_is_no_flag(self):
        assert resolve(horizon=None).config == resolve().config

    def test_the_last_of_two_sets_holds(self):
        assert resolve("seed=1", "seed=2").config.seed == 2

    def test_a_data_set_takes_its_own_configuration_where_there_is_one(self, tmp_path, monkeypatch):
        (tmp_path / "default.yaml").write_text("seed: 1")
        (tmp_path / "ETTm1.yaml").write_text("seed: 2")
        monkeypatch.setattr(installation, "configs", lambda: tmp_path)
        assert resolve(data="ETTm1").config.seed == 2
        assert resolve(data="ETTh2").config.seed == 1
        assert resolve(data="ETTm1", file="default").config.seed == 1, "the file that is named"

    def test_only_what_the_user_chose_is_named(self, written):
        assert not resolve().named("data.name")
        assert resolve().config.data.otherwise == "vic_elec"
        assert not resolve().named("train.patience")
        assert resolve(data="ETTh1").named("data.name")
        assert resolve("data.name=ETTh1").named("data.name")
        assert resolve(environment={"FORECASTER_DATA__NAME": "ETTh1"}).named("data.name")
        assert resolve(file=written("data: {name: ETTh1}")).named("data.name")


class TestEnvironment:
    def test_variables_of_the_service_and_the_data_folder_are_no_configuration(self):
        others = {
            "FORECASTER_DATA": "/data",
            "FORECASTER_MODEL": "runs/x",
            "FORECASTER_ALLOWED_HOSTS": "*",
            "FORECASTER_MAX_BATCH": "3",
            "OTHER_TRAIN__EPOCHS": "99",
        }
        assert resolve(environment=others) == resolve()

    def test_values_at_the_top_and_deep_below(self):
        environment = {
            "FORECASTER_SEED": "7",
            "FORECASTER_DEVICE": "cpu",
            "FORECASTER_TRAIN__LR_OF__LINEAR": "1e-4",
            "FORECASTER_TRACK__REGISTER_MODEL": "false",
        }
        config = resolve(environment=environment).config
        assert config.seed == 7
        assert config.train.lr_of["linear"] == 1e-4
        assert not config.track.register_model

    def test_the_process_environment_is_read_when_none_is_given(self, monkeypatch):
        monkeypatch.setenv("FORECASTER_SEED", "41")
        assert load().config.seed == 41

    def test_a_wrong_one_is_named_and_is_no_usage_error(self):
        with pytest.raises(ConfigError, match=r"\$FORECASTER_TRAIN__EPOCS: unknown key .*'epochs'"):
            resolve(environment={"FORECASTER_TRAIN__EPOCS": "3"})
        with pytest.raises(ConfigError, match=r"\$FORECASTER_SEED: not plain YAML"):
            resolve(environment={"FORECASTER_SEED": "[1"})


class TestNames:
    def test_a_bare_name_is_short_for_a_name_without_options(self, written):
        short, long = written("attn: prob"), "attn: {name: prob}"
        config = resolve(file=short).config
        assert config == resolve(file=written(long)).config
        assert config.attn.options["factor"] == 5

    def test_options_get_the_defaults_of_the_constructor(self):
        config = resolve("attn=prob", "attn.factor=7").config
        assert config.attn.options["factor"] == 7
        assert config.attn.options["variant"] == "paper"
        assert config.flat()["attn.factor"] == "7"

    def test_naming_another_model_drops_the_rates_of_its_paths(self):
        for file in ("own", "default", "ETTh1-96"):
            assert "linear" in resolve("model.name=tokens", file=file).config.train.lr_of
            loaded = resolve("model.name=informer", file=file)
            assert loaded.config.train.lr_of == {}
            assert not [key for key in loaded.origins if key.startswith("train.lr_of")]
        named = resolve("train.lr_of.encoder=0.1", "model.name=informer", file="own")
        assert named.config.train.lr_of == {"encoder": 0.1}
        assert "linear" in resolve("attn.name=full").config.train.lr_of

    def test_naming_another_class_drops_the_options_of_lower_layers(self, written):
        file = written("attn: {name: prob, factor: 9}\nmodel: {name: tokens, parts: 2}")
        loaded = resolve("model=informer", file=file, attn="full")
        assert loaded.config.attn.options == {"dropout": 0.0}
        assert "parts" not in loaded.config.model.options
        assert not {"attn.factor", "model.parts"} & set(loaded.origins)

    def test_naming_the_same_class_keeps_them(self, written):
        file = written("attn: {name: prob, factor: 9}")
        assert resolve(file=file, attn="PROB").config.attn.options["factor"] == 9

    def test_options_survive_a_name_in_their_own_layer_in_any_order(self, written):
        file = written("attn: full")
        names = {"FORECASTER_ATTN__NAME": "prob", "FORECASTER_ATTN__FACTOR": "8"}
        for loaded in (
            resolve("attn.factor=8", "attn=prob", file=file),
            resolve("attn.factor=8", file=file, attn="prob"),
            resolve("attn={factor: 8, name: prob}", file=file),
            resolve(file=file, environment=names),
        ):
            assert loaded.config.attn.options["factor"] == 8

    def test_other_places_have_attentions_of_their_own(self):
        config = resolve(
            "attn.decoder=full", "attn.cross={name: prob, factor: 3}", file="informer"
        ).config
        plan = config.attn.plan()
        assert (plan.encoder.name, plan.decoder.name, plan.cross.name) == ("prob", "full", "prob")
        assert plan.cross.options["factor"] == 3
        assert plan.encoder.options["factor"] == 5

    def test_by_default_the_decoder_attends_like_the_encoder_and_cross_attention_is_full(self):
        plan = resolve("attn.factor=4", file="informer").config.attn.plan()
        assert plan.decoder == plan.encoder
        assert plan.encoder.options["factor"] == 4
        assert plan.cross.name == "full"

    def test_another_attention_of_the_encoder_leaves_the_decoder_alone(self):
        config = resolve("attn.decoder=mean", file="informer", attn="full").config
        assert config.attn.decoder.name == "mean"

    @pytest.mark.parametrize("name", ATTENTIONS)
    def test_cross_attention_wants_a_cross_form(self, name, written):
        file = written(f"model: informer\nattn: {{name: full, decoder: {name}, cross: {name}}}")
        if not issubclass(ATTENTIONS[name], SelfAttention):
            plan = resolve(file=file).config.attn.plan()
            assert (plan.decoder.name, plan.cross.name) == (name, name)
            return
        with pytest.raises(ConfigError, match=f"{name} relates .* have one: full, prob, "):
            resolve(file=file)
        with pytest.raises(UsageError, match=f"^--set attn.cross={name}: "):
            resolve(f"attn.cross={name}", file="informer")

    @pytest.mark.parametrize("role", ["decoder", "cross"])
    def test_without_decoder_layers_there_is_no_choice_beyond_the_encoder(self, role, written):
        with pytest.raises(UsageError, match=f"attn.{role} is set, but the model 'tokens'"):
            resolve(f"attn.{role}=full")
        file = written(f"model: tokens\nattn: {{name: full, {role}: full}}")
        with pytest.raises(ConfigError, match=r"run.yaml: .*its places are: encoder"):
            resolve(file=file)
        file = written(f"model: informer\nattn: {{name: full, {role}: full}}")
        with pytest.raises(UsageError, match=r"^--set model=tokens: "):
            resolve("model=tokens", file=file)
        assert resolve(f"attn.{role}=null").config.attn.plan().encoder.name == "prob"
        assert resolve("model.decoder_layers=1", f"attn.{role}=topk").config.attn.plan()


@dataclass(frozen=True)
class Wrong:
    """A wrong value, and words that its message must contain."""

    path: str
    value: object
    words: tuple[str, ...]

    @property
    def text(self):
        return json.dumps(self.value).replace("NaN", ".nan")

    @property
    def yaml(self):
        text = self.text
        for key in reversed(self.path.split(".")):
            text = f'{{"{key}": {text}}}'
        return text


WRONG = [
    Wrong("trian", {"epochs": 3}, ("unknown key", "trian", "Did you mean 'train'?")),
    Wrong("train.epocs", 3, ("unknown key 'train.epocs'", "Did you mean 'epochs'?")),
    Wrong("train.weight-decay", 0.1, ("'train.weight-decay'", "Did you mean 'weight_decay'?")),
    Wrong("train.7", 0.1, ("unknown key 'train.7'. Known here",)),
    Wrong("window.hoirzon", 3, ("unknown key 'window.hoirzon'", "Did you mean 'horizon'?")),
    Wrong("data.nmae", "x", ("unknown key 'data.nmae'", "Did you mean 'name'?")),
    Wrong("track.urii", "x", ("unknown key 'track.urii'", "Did you mean 'uri'?")),
    Wrong("model.widht", 3, ("unknown key 'model.widht'", "Did you mean 'width'?")),
    Wrong("attn.facotr", 3, ("unknown key 'attn.facotr'", "Did you mean 'factor'?")),
    Wrong("attn.decodr", "full", ("unknown key 'attn.decodr'", "Did you mean 'decoder'?")),
    Wrong("attn.name", "porb", ("unknown attention 'porb'", "Did you mean 'prob'?")),
    Wrong("attn.name", "ProbSparse", ("unknown attention 'ProbSparse'", "Did you mean 'prob'?")),
    Wrong("attn", 5, ("name of a known attention", "got 5")),
    Wrong("attn", None, ("name of a known attention", "got no name")),
    Wrong("model.name", "informr", ("unknown model 'informr'", "Did you mean 'informer'?")),
    Wrong("model", [1], ("name of a known model", "got [1]")),
    Wrong("attn.cross.factor", 3, ("name of a known attention", "got no name")),
    Wrong("attn.cross", {"name": "prob", "factr": 3}, ("'attn.cross.factr'", "mean 'factor'?")),
    Wrong("attn.cross", {"name": "prob", "factor": "x"}, ("attn.cross.factor: ", "integer", "'x'")),
    Wrong("attn.decoder", "fulll", ("unknown attention 'fulll'", "Did you mean 'full'?")),
    Wrong("attn.factor", 3.5, ("attn.factor: ", "integer", "got 3.5")),
    Wrong("model.dropout", "high", ("model.dropout: ", "number", "got 'high'")),
    Wrong("model.heads", True, ("model.heads: ", "integer", "got True")),
    Wrong("model.encoder_layers", [1, "x"], ("model.encoder_layers: ", "integer")),
    Wrong("train", 5, ("train: expected keys and values, got 5",)),
    Wrong("train.epochs", "many", ("train.epochs: ", "integer", "got 'many'")),
    Wrong("train.epochs", True, ("train.epochs: ", "integer", "got True")),
    Wrong("train.epochs", 0, ("train.epochs: ", "greater than or equal to 1", "got 0")),
    Wrong("train.lr", "1e-3", ("train.lr: ", "number", "got '1e-3'")),
    Wrong("train.lr", -1, ("train.lr: ", "greater than 0", "got -1")),
    Wrong("train.lr", float("nan"), ("train.lr: ", "finite", "got nan")),
    Wrong("train.lr_of", 3, ("train.lr_of: expected keys and values, got 3",)),
    Wrong("train.lr_of.linear", -1, ("train.lr_of.linear: ", "greater than 0", "got -1")),
    Wrong("train.schedule", "halved", ("train.schedule: ", "'halve'", "got 'halved'")),
    Wrong("train.refit", "yes", ("train.refit: ", "boolean", "got 'yes'")),
    Wrong("window.horizon", 0, ("window.horizon: ", "greater than or equal to 1", "got 0")),
    Wrong("window.horizon", -1, ("window.horizon: ", "greater than or equal to 1", "got -1")),
    Wrong("window.horizon", 1.5, ("window.horizon: ", "integer", "got 1.5")),
    Wrong("window.start", 0, ("window.start: ", "greater than or equal to 1", "got 0")),
    Wrong("data.features", "m", ("data.features: ", "'M', 'S' or 'MS'", "got 'm'")),
    Wrong("data.target", False, ("data.target: ", "string", "got False")),
    Wrong("data.name", 7, ("data.name: ", "string", "got 7")),
    Wrong("seed", -1, ("seed: ", "got -1")),
    Wrong("seed", 2**32, ("seed: ", "got 4294967296")),
    Wrong("seed.deep", 1, ("seed: ", "integer", "got {'deep': 1}")),
    Wrong("intervals.levels", [0.1, 1.0], ("intervals.levels: ", "less than 1", "got 1.0")),
    Wrong("intervals.levels", [], ("intervals.levels: ", "at least 1", "got []")),
    Wrong("intervals.levels", [0.9, 0.1], ("expected levels that rise", "got [0.9, 0.1]")),
    Wrong("intervals.levels", [0.1, 0.1], ("expected levels that rise",)),
    Wrong("device", "gpu", ("device: ", "'cpu' or 'cuda'", "got 'gpu'")),
    Wrong("seed", [[1] * 30] * 30, ("seed: ", "integer")),
    *[
        Wrong("window.past", value, ("window.past: ", '"21 cycles"', f"got {value!r}"))
        for value in (0, -3, 1.5, True, "0 cycles", "21 days", "cycles", "21cycles", "")
    ],
]


class TestWrongValues:
    @pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.path}={wrong.value!r:.20}")
    def test_the_message_names_origin_path_and_remedy(self, wrong, written):
        file = written(wrong.yaml)
        with pytest.raises(ConfigError) as in_file:
            resolve(file=file)
        assert in_file.value.exit_code == 78
        given = f"{wrong.path}={wrong.text}"
        with pytest.raises(UsageError) as on_command_line:
            resolve(given, file="informer")
        assert on_command_line.value.exit_code == 2
        for caught, origin in ((in_file, file), (on_command_line, f"--set {given}")):
            message = str(caught.value)
            assert message.startswith(f"{origin}: ")
            assert len(message) < len(origin) + 400
            for word in wrong.words:
                assert word in message

    @pytest.mark.parametrize("item", ["horizon", "=3", "a..b=1", "a.=1", ".a=1", ""])
    def test_a_set_without_key_or_value(self, item):
        with pytest.raises(UsageError, match="--set expects KEY=VALUE such as"):
            resolve(item)

    def test_a_value_may_hold_an_equals_sign_and_be_empty(self):
        assert resolve("data.target=a=b").config.data.target == "a=b"
        assert resolve("data.target=").config.data.target is None

    def test_an_unknown_configuration(self):
        with pytest.raises(UsageError, match=r"'infromer'.*Did you mean 'informer'\?"):
            resolve(file="infromer")

    def test_flags_are_named_as_flags(self):
        for flags, words in (
            ({"attn": "porb"}, "--attn: unknown attention 'porb'. Did you mean 'prob'?"),
            ({"horizon": 0}, "--horizon: window.horizon: "),
            ({"lookback": "3 weeks"}, "--lookback: window.past: "),
            ({"features": "X"}, "--features: data.features: "),
        ):
            with pytest.raises(UsageError) as caught:
                resolve(**flags)
            assert str(caught.value).startswith(words)

    def test_the_blame_falls_on_what_came_last(self, written):
        file = written("data: {features: M, target: OT}")
        with pytest.raises(ConfigError, match=r"run.yaml: data.target=OT .* choose MS"):
            resolve(file=file)
        file = written("data: {features: M}\nseed: 1")
        with pytest.raises(UsageError, match=r"^--target: data.target=OT "):
            resolve("seed=3", file=file, target="OT")
        file = written("data: {target: OT}")
        with pytest.raises(UsageError, match=r"^--features: data.target=OT "):
            resolve("seed=3", file=file, features="M")


class TestFeatures:
    @pytest.mark.parametrize(
        ("features", "target"), [(None, None), (None, "OT"), ("M", None), ("S", "OT"), ("MS", None)]
    )
    def test_what_goes_together(self, features, target):
        data = resolve(features=features, target=target).config.data
        assert (data.features, data.target) == (features, target)


class TestLookback:
    @pytest.mark.parametrize("past", [1, 504, "1 cycle", "21 cycles"])
    def test_steps_or_cycles(self, past):
        assert resolve(lookback=past).config.window.past == past
        assert resolve(lookback=str(past)).config.window.past == past


class TestBases:
    @pytest.fixture
    def files(self, tmp_path):
        """Write the files of a folder by name and return the path of the first as text."""

        def write(**texts):
            for name, text in texts.items():
                (tmp_path / f"{name}.yaml").write_text(text)
            return str(tmp_path / f"{next(iter(texts))}.yaml")

        return write

    def test_a_file_says_what_differs_from_its_base(self, files):
        file = files(run="base: default\ntrain: {epochs: 3, lr_of: {window: 0.1}}")
        loaded, default = resolve(file=file), resolve(file="default")
        train = default.config.train
        changes = {"epochs": 3, "lr_of": {**train.lr_of, "window": 0.1}}
        assert loaded.config == default.config.model_copy(
            update={"train": train.model_copy(update=changes)}
        )
        ours = {"train.epochs": file, "train.lr_of.window": file}
        assert loaded.origins == default.origins | ours

    def test_a_base_may_have_one_of_its_own(self, files):
        loaded = resolve(file=files(run="base: ETTh1\nseed: 5"))
        assert loaded.config.train.tolerance == 0.02
        assert loaded.config.seed == 5
        folder = installation.configs()
        assert loaded.origins["train.tolerance"] == str(folder / "ETTh1.yaml")
        assert loaded.origins["train.batch"] == str(folder / "default.yaml")

    def test_it_may_lie_beside_the_file(self, files):
        file = files(run="base: other.yaml\nseed: 5", other="seed: 4\ntrain: {batch: 7}")
        config = resolve(file=file).config
        assert (config.seed, config.train.batch) == (5, 7)

    def test_another_class_drops_the_options_that_the_base_gave(self, files):
        file = files(run="base: default\nmodel: informer")
        assert "parts" not in resolve(file=file).config.model.options

    def test_what_default_says_is_not_what_the_user_chose(self, files):
        loaded = resolve(file=files(run="base: default\ntrain: {epochs: 3}"))
        assert loaded.named("train.epochs")
        assert not loaded.named("train.batch")
        assert not loaded.named("data.name")
        assert loaded.config.data.otherwise == "vic_elec"

    def test_data_that_a_file_names_have_no_substitute_from_a_base(self, files):
        loaded = resolve(file=files(run="base: default\ndata: {name: ETTh1}"))
        assert loaded.named("data.name")
        assert loaded.config.data.otherwise is None
        file = files(run="base: default\ndata: {name: ETTh1, otherwise: ETTh2}")
        assert resolve(file=file).config.data.otherwise == "ETTh2"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("base: defualt", r"no configuration 'defualt'.*Did you mean 'default'\?"),
            ("base: 5", r"expected a name in configs/ or a file, got 5"),
            ("base: run.yaml", r"run.yaml is itself based on this file"),
            ("base: other.yaml", r"run.yaml is itself based on this file"),
        ],
    )
    def test_what_cannot_be_a_base(self, text, words, files):
        file = files(run=text, other="base: run.yaml")
        with pytest.raises(ConfigError, match=rf"(run|other).yaml: base: {words}"):
            resolve(file=file)

    def test_prices_are_forecast_by_the_recipe_of_ones_own_files(self):
        prices, own = (resolve(file=name).config.flat() for name in ("epf", "own"))
        changed = {"data.name": "epf-NP", "window.past": "168", "window.horizon": "24"}
        changed |= {"model.centre": "cycle", "model.changes": "False", "model.shrink": "True"}
        assert prices == own | changed

    @pytest.mark.parametrize("name", SHIPPED)
    def test_no_shipped_file_repeats_its_base(self, name):
        values = read_yaml(installation.configs() / f"{name}.yaml")
        base = values.pop("base", None)
        if base is None:
            assert name in ("default", "informer")
            return
        given = {**resolve(file=base).config.flat(), "data.name": "whatever the base is for"}
        assert not [key for key, value in leaves(values) if str(value) == given.get(key)]


class TestFiles:
    def test_an_empty_file_is_all_defaults(self, written):
        assert resolve(file=written("# nothing\n")).config == RunConfig()

    def test_numbers_without_a_dot_are_numbers(self, written):
        assert resolve(file=written("train: {lr: 1e-3}")).config.train.lr == 1e-3
        assert resolve("train.lr=2E-4").config.train.lr == 2e-4

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("train: !!python/object/apply:os.mkdir [CANARY]", "python/object"),
            ("train: !!python/name:os.system", "python/name"),
            ("train: {epochs: 3}\ntrain: {batch: 3}", "the key 'train' appears twice"),
            ("- 1", "expected a mapping of sections, got [1]"),
            ("seed: [1", "line 1"),
            ("seed: 2026-13-45", "month"),
            ("? [a, b]\n: 3", "unhashable"),
            ("seed: " + "9" * 10_000, "digits"),
            ("train: " + "[" * 100_000, "nested too deeply"),
            ("train: " + "{a: " * 100_000, "nested too deeply"),
            ("".join(f"{' ' * i}a:\n" for i in range(2_000)), "nested too deeply"),
            (
                "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
                + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
                + "train: *a9\n",
                "aliases are not allowed",
            ),
            ("a: &a {b: *a}", "aliases are not allowed"),
        ],
        ids=lambda value: value[:20],
    )
    def test_what_is_not_plain_yaml_is_refused_at_once(
        self, text, words, written, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        file = written(text)
        before, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ConfigError) as caught:
            resolve(file=file)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory  # in KiB
        assert time.process_time() - before < 1
        assert grown < 100_000
        message = str(caught.value)
        assert message.startswith(f"{file}: ")
        assert words in message
        assert len(message) < 500
        assert not (tmp_path / "CANARY").exists()

    @pytest.mark.parametrize(
        "value", ["!!python/name:os.system", "[" * 10_000, "[*a]", "{a: 1, a: 2}"]
    )
    def test_values_of_the_command_line_are_read_as_carefully(self, value):
        with pytest.raises(UsageError, match=r"^--set seed=.*: not plain YAML"):
            resolve(f"seed={value}")

    def test_wrong_encoding(self, tmp_path):
        file = tmp_path / "run.yaml"
        file.write_bytes(b"seed: \xff")
        with pytest.raises(ConfigError, match=r"run.yaml: not UTF-8 text"):
            resolve(file=str(file))

    def test_unreadable(self, written, monkeypatch):
        def refuse(path, **arguments):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        file = written("seed: 1")
        monkeypatch.setattr(Path, "read_text", refuse)
        with pytest.raises(StorageError, match=r"run.yaml cannot be read: Permission denied"):
            resolve(file=file)


class TestRoundTrip:
    @pytest.mark.parametrize("name", SHIPPED)
    def test_through_plain_json(self, name):
        config = resolve(file=name).config
        assert load_dict(json.loads(json.dumps(config.to_dict())), "here") == config

    def test_every_kind_of_value(self, written):
        config = resolve(
            "model.encoder_layers=[3, 1]",
            "attn.cross={name: prob, factor: 2}",
            "data.path=some/file.csv",
            "train.lr_of={encoder: 1e-3}",
            file="informer",
        ).config
        assert config.model.options["encoder_layers"] == (3, 1)
        assert load_dict(json.loads(json.dumps(config.to_dict())), "here") == config
        assert resolve(file=written(yaml.safe_dump(config.to_dict()))).config == config

    def test_flat_names_every_value(self):
        flat = resolve("train.lr_of={}").config.flat()
        assert flat["window.past"] == "21 cycles"
        assert flat["train.lr_of"] == "{}"
        assert flat["data.path"] == ""
        assert flat["model.name"] == "tokens"
        assert all(isinstance(value, str) for value in flat.values())

    def test_load_dict_names_where_the_values_came_from(self):
        with pytest.raises(ConfigError, match=r"^somewhere: unknown key 'train.x'"):
            load_dict({"train": {"x": 1}}, "somewhere")


def test_a_configuration_is_frozen():
    config = resolve().config
    for part, name in ((config, "seed"), (config.train, "epochs"), (config.attn, "name")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(part, name, 1)


class TestIntervals:
    def test_a_loss_of_quantiles_gives_a_head_at_these_levels(self):
        task = TestModels.TASK
        assert resolve(file="default").config.build_model(task).spread is None
        sets = ("train.loss=pinball", "intervals.levels=[0.2, 0.5]")
        spread = resolve(*sets, file="default").config.build_model(task).spread
        assert spread.levels == (0.2, 0.5)
        assert spread.steps.shape == (task.horizon, 1, 1)

    @pytest.mark.parametrize(
        ("sets", "words"),
        [
            (("intervals.levels=[0.1, 0.9]", "train.loss=pinball"), "must hold 0.5"),
            (("intervals.calibrate=false", "intervals.online=true"), "needs calibrated"),
        ],
    )
    def test_what_does_not_go_together(self, sets, words):
        for order in (sets, sets[::-1]):
            with pytest.raises(UsageError, match=words) as caught:
                resolve(*order)
            assert str(caught.value).startswith(f"--set {order[-1]}: ")


class TestModels:
    """Every shipped configuration builds its model."""

    TASK = Task(
        columns=7,
        targets=(6,),
        past=168,
        start=168,
        horizon=168,
        calendar=4,
        season=24,
        phase=(23.0, 0.0, 0.0, 0.0),
    )

    def test_the_shipped_ones_are_these(self):
        assert {"default", "informer", "informer2020"} <= set(SHIPPED)

    @pytest.mark.parametrize("name", SHIPPED)
    def test_shipped(self, name):
        config = resolve(file=name).config
        with torch.device("meta"):
            model = config.build_model(replace(self.TASK, season=96))
        assert type(model) is SKELETONS[config.model.name]
        assert model.effective()

    @pytest.mark.parametrize("attn", ATTENTIONS)
    def test_every_attention(self, attn):
        config = resolve(file="default", attn=attn).config
        assert len(config.build_model(self.TASK).effective()) == 1, "of the encoder's one layer"

    @pytest.mark.parametrize(
        ("item", "words"),
        [
            ("model.parts=7", "parts=7, season=24"),
            ("model.width=-4", "negative dimension"),
            ("model.heads=3", "width=16, heads=3"),
            ("model.heads=0", "heads=0"),
            ("model.dropout=2", "dropout"),
        ],
    )
    def test_sizes_that_do_not_fit_are_a_usage_error(self, item, words):
        with pytest.raises(UsageError, match="this configuration cannot be built") as caught:
            resolve(item).config.build_model(self.TASK)
        assert words in str(caught.value)


def test_loaded_is_equal_by_value():
    assert resolve(seed=3) == Loaded(resolve(seed=3).config, resolve(seed=3).origins)


def test_one_underscore_in_the_environment_is_told() -> None:
    with pytest.raises(ConfigError, match="Did you mean FORECASTER_TRAIN__EPOCHS"):
        load(environment={"FORECASTER_TRAIN_EPOCHS": "3"})
    load(environment={"FORECASTER_DATA": "folder", "FORECASTER_MODEL": "name"})


class TestData:
    @pytest.mark.parametrize(
        ("name", "label"),
        [("sales.csv", "sales"), ("a/b.parquet", "b"), ("x/*.csv", "x"), ("load.csv.gz", "load")],
    )
    def test_a_file_is_told_from_a_card(self, name, label):
        data = resolve(data=name).config.data
        assert (data.is_file, data.label) == (True, label)
        assert not resolve(data="ETTh1").config.data.is_file

    def test_a_file_of_ones_own_has_a_recipe_of_its_own(self):
        loaded = resolve(data="sales.csv")
        assert loaded.config.window.past == "auto"
        assert loaded.origins["window.past"].endswith("own.yaml")

    def test_what_a_card_knows_is_not_said_again(self):
        with pytest.raises(
            UsageError, match=r"data.freq describes how .* data.name=ETTh1 is a data card"
        ):
            resolve(data="ETTh1", freq="h")
        with pytest.raises(UsageError, match=r"data.name=x.csv is a file already"):
            resolve("data.path=y.csv", data="x.csv")

    def test_targets_have_commas_between(self):
        assert resolve(data="x.csv", target="a, b").config.data.targets == ["a", "b"]
