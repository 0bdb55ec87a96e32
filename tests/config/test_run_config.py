import json
import resource
import time
from dataclasses import replace
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
from forecaster.config.run_config import RunConfig, load, load_dict
from forecaster.model import SKELETONS, Task

SHIPPED = sorted(path.stem for path in installation.configs().glob("*.yaml"))
OWN = {"data": "sales.csv"}
EXAMPLES = {"attn": "mean", "data": "vic_elec", "target": "Demand", "features": "S", "horizon": 7}
EXAMPLES |= {
    "lookback": "3 cycles",
    "epochs": 2,
    "time_limit": 90.0,
    "blend": "none",
    "part": "chronos:x",
    "seed": 5,
}
EXAMPLES |= {"refit": True, "register": False, "device": "cpu", "past_covariates": ["wind"]}
EXAMPLES |= {"future_covariates": ["price", "rain"], "static": ["kind"], "time": "when", "id": "a"}
EXAMPLES |= {"stamps": "day-first", "decimal": ",", "separator": "tab", "freq": "D"}
EXAMPLES |= {"season": [7, 365], "policy": "sort", "missing": ["-9999", "?"], "split": "series"}
EXAMPLES |= {"fill": ["linear", "a=zero"], "min": 0.0, "max": 100.0, "holidays": "AU-VIC"}
EXAMPLES |= {"categorical": ["rain"], "sheet": "May", "drop_last": True}
"""A value of every option."""


def resolve(*sets, file=None, environment=None, **flags):
    return load(file, sets, flags, environment or {})


def refused(kind, *sets, **given):
    """The message with which a configuration is refused."""
    with pytest.raises(kind) as caught:
        resolve(*sets, **given)
    return str(caught.value)


@pytest.fixture
def written(tmp_path):
    """Write configuration files by name, and return the path of the first as text."""

    def write(text, **others):
        for name, each in {"run": text, **others}.items():
            (tmp_path / f"{name}.yaml").write_text(each)
        return str(tmp_path / "run.yaml")

    return write


class TestPrecedence:
    def test_each_layer_beats_the_one_before(self, written):
        file = written("train: {epochs: 11, batch: 8}")
        environment = {"FORECASTER_TRAIN__EPOCHS": "12"}
        layers = [
            ({"file": file}, 11, file),
            ({"environment": environment}, 12, "$FORECASTER_TRAIN__EPOCHS"),
            ({"sets": ["train.epochs=99", "train.epochs=13"]}, 13, "--set train.epochs=13"),
            ({"epochs": 14}, 14, "--epochs"),
        ]
        given = {}
        for layer, epochs, origin in layers:
            given |= layer
            loaded = resolve(*given.get("sets", ()), **{**given, "sets": None})
            assert loaded.config.train.epochs == epochs
            assert loaded.origins["train.epochs"] == origin
            assert (loaded.config.train.batch, loaded.origins["train.batch"]) == (8, file)
        assert resolve(horizon=None) == resolve()

    @pytest.mark.parametrize("flag", FLAGS)
    def test_every_flag_is_short_for_its_path(self, flag):
        path, value = FLAGS[flag], EXAMPLES[flag]
        loaded = resolve(**{**OWN, flag: value})
        assert loaded.config.flat()[path] == str(value)
        assert loaded.origins[path] == option(flag)
        variable = path.upper().replace(".", "__")
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        for written in {json.dumps(value), json.dumps(text)}:
            if flag == "data":  # the options of OWN come last
                continue
            assert resolve(f"{path}={written}", **OWN).config == loaded.config
            environment = {f"FORECASTER_{variable}": written}
            assert resolve(environment=environment, **OWN).config == loaded.config

    def test_a_value_may_be_written_in_several_ways(self):
        pairs = [("target", ["a", "b"], "a,b"), ("season", 24, [24]), ("time_limit", "1.5m", 90.0)]
        for flag, given, value in [*pairs, ("lookback", "504", 504)]:
            assert resolve(**OWN, **{flag: given}).config == resolve(**OWN, **{flag: value}).config

    def test_whoever_names_a_limit_on_epochs_means_it(self, written):
        assert resolve(**OWN).config.train.updates == 1000
        named = resolve(**OWN, epochs=3)
        assert (named.config.train.updates, "train.updates" in named.origins) == (None, False)
        for text, updates in (("train: {epochs: 3}", None), ("train: {batch: 8}", 1000)):
            file = written(f"base: own\n{text}")
            assert resolve(file=file).config.train.updates == updates
        both = resolve("train.updates=50", **OWN, epochs=3).config.train
        assert (both.epochs, both.updates) == (3, 50)

    def test_a_data_set_takes_its_own_configuration_where_there_is_one(self, tmp_path, monkeypatch):
        for name, seed in (("default", 1), ("ETTm1", 2), ("own", 3)):
            (tmp_path / f"{name}.yaml").write_text(f"seed: {seed}")
        monkeypatch.setattr(installation, "configs", lambda: tmp_path)
        names = ("ETTm1", "ETTh2", "sales.csv")
        for given in (
            [{"data": name} for name in names],
            [{"environment": {"FORECASTER_DATA__NAME": name}} for name in names],
        ):
            assert [resolve(**each).config.seed for each in given] == [2, 1, 3]
        for form in ("data.name={}", "data={{name: {}}}"):
            assert [resolve(form.format(name)).config.seed for name in names] == [2, 1, 3]
        assert resolve("data.name=ETTm1", data="sales.csv").config.seed == 3, "the last one"
        assert resolve(data="ETTm1", file="default").config.seed == 1, "the file that is named"

    def test_only_what_the_user_chose_is_named(self, written):
        assert not resolve().named("data.name")
        assert not resolve().named("train.patience")
        variable, file = {"FORECASTER_DATA__NAME": "ETTh1"}, written("data: {name: ETTh1}")
        for given in ({"data": "ETTh1"}, {"environment": variable}, {"file": file}):
            assert resolve(**given).named("data.name")
        loaded = resolve(file=written("base: default\ntrain: {epochs: 3}"))
        assert [loaded.named(each) for each in ("train.epochs", "train.batch")] == [True, False]


class TestEnvironment:
    def test_values_at_any_depth_but_nothing_of_the_service(self, monkeypatch):
        names = ("DATA", "MODEL", "ALLOWED_HOSTS", "MAX_BATCH")
        others = {f"FORECASTER_{name}": "3" for name in names} | {"OTHER_TRAIN__EPOCHS": "99"}
        assert resolve(environment=others) == resolve()
        names = {"FORECASTER_TRAIN__LR_OF__LINEAR": "1e-4"}
        assert resolve(environment=names).config.train.lr_of["linear"] == 1e-4
        monkeypatch.setenv("FORECASTER_SEED", "41")
        assert load().config.seed == 41, "the process environment, when none is given"

    def test_mlflows_own_variable_names_the_experiment(self):
        loaded = load(environment={"MLFLOW_EXPERIMENT_NAME": "team demand"})
        assert loaded.config.track.experiment == "team demand"
        assert loaded.origins["track.experiment"] == "$MLFLOW_EXPERIMENT_NAME"
        both = {"MLFLOW_EXPERIMENT_NAME": "a", "FORECASTER_TRACK__EXPERIMENT": "b"}
        assert load(environment=both).config.track.experiment == "b"

    def test_a_wrong_one_is_named_and_is_no_usage_error(self):
        for name, value, words in (
            ("TRAIN__EPOCS", "3", "$FORECASTER_TRAIN__EPOCS: unknown key 'train.epocs'"),
            ("SEED", "[1", "$FORECASTER_SEED: not plain YAML"),
            ("TRAIN_EPOCHS", "3", "unknown variable FORECASTER_TRAIN_EPOCHS. Did you mean "),
        ):
            assert refused(ConfigError, environment={f"FORECASTER_{name}": value}).startswith(words)


class TestNames:
    def test_naming_another_model_drops_the_rates_of_its_paths(self):
        for file in ("own", "default", "ETTh1-96"):
            assert "linear" in resolve("model.name=tokens", file=file).config.train.lr_of
            loaded = resolve("model.name=informer", file=file)
            assert loaded.config.train.lr_of == {}
            assert not [key for key in loaded.origins if key.startswith("train.lr_of")]
        named = resolve("train.lr_of.encoder=0.1", "model.name=informer", file="own")
        assert named.config.train.lr_of == {"encoder": 0.1}

    def test_naming_another_class_drops_the_options_of_lower_layers(self, written):
        file = written("attn: {name: prob, factor: 9}\nmodel: {name: tokens, parts: 2}")
        loaded = resolve("model=informer", file=file, attn="full")
        assert loaded.config.attn.options["dropout"] == 0.0
        assert not {"attn.factor", "model.parts"} & {*loaded.origins, *loaded.config.flat()}
        assert resolve(file=file, attn="PROB").config.attn.options["factor"] == 9, "the same class"

    def test_options_survive_a_name_in_their_own_layer_in_any_order(self, written):
        file = written("attn: full", other="attn: {name: prob, factor: 8}")
        names = {"FORECASTER_ATTN__NAME": "prob", "FORECASTER_ATTN__FACTOR": "8"}
        found = [
            resolve("attn.factor=8", "attn=prob", file=file),
            resolve("attn.factor=8", file=file, attn="prob"),
            resolve("attn={factor: 8, name: prob}", file=file),
            resolve(file=file, environment=names),
            resolve(file=file.replace("run", "other")),
        ]
        assert {each.config.flat()["attn.factor"] for each in found} == {"8"}
        assert resolve(file=written("attn: prob")).config.attn.options["factor"] == 5

    def test_each_place_has_its_attention(self):
        plan = resolve("attn.factor=4", file="informer").config.attn.plan()
        assert (plan.decoder, plan.cross.name) == (plan.encoder, "full"), "by default"
        assert plan.encoder.options["factor"] == 4
        sets = ("attn.decoder=mean", "attn.cross={name: prob, factor: 3}")
        plan = resolve(*sets, file="informer", attn="full").config.attn.plan()
        assert (plan.encoder.name, plan.decoder.name, plan.cross.name) == ("full", "mean", "prob")
        assert plan.cross.options["factor"] == 3

    @pytest.mark.parametrize("name", ATTENTIONS)
    def test_cross_attention_wants_a_cross_form(self, name, written):
        file = written(f"model: informer\nattn: {{name: full, decoder: {name}, cross: {name}}}")
        if not issubclass(ATTENTIONS[name], SelfAttention):
            plan = resolve(file=file).config.attn.plan()
            assert (plan.decoder.name, plan.cross.name) == (name, name)
            return
        assert "have one: full, prob, " in refused(ConfigError, file=file)
        said = refused(UsageError, f"attn.cross={name}", file="informer")
        assert said.startswith(f"--set attn.cross={name}: {name} relates ")

    @pytest.mark.parametrize("role", ["decoder", "cross"])
    def test_without_decoder_layers_there_is_no_choice_beyond_the_encoder(self, role, written):
        said = refused(UsageError, f"attn.{role}=full")
        assert f"attn.{role} is set, but the model 'tokens'" in said
        file = written(f"model: tokens\nattn: {{name: full, {role}: full}}")
        assert refused(ConfigError, file=file).endswith("its places are: encoder")
        file = written(f"model: informer\nattn: {{name: full, {role}: full}}")
        assert refused(UsageError, "model=tokens", file=file).startswith("--set model=tokens: ")
        assert resolve(f"attn.{role}=null").config.attn.plan().encoder.name == "prob"
        assert resolve("model.decoder_layers=1", f"attn.{role}=topk").config.attn.plan()


WRONG = [
    ("trian", {"epochs": 3}, "Did you mean 'train'?"),
    ("train.epocs", 3, "unknown key 'train.epocs'. Did you mean 'epochs'?"),
    ("train.7", 0.1, "unknown key 'train.7'. Known here"),
    ("attn.decodr", "full", "unknown key 'attn.decodr'. Did you mean 'decoder'?"),
    ("attn.name", "porb", "unknown attention 'porb'. Did you mean 'prob'?"),
    ("attn", None, "got no name"),
    ("model", [1], "got [1]"),
    ("attn.cross", {"name": "prob", "factr": 3}, "'attn.cross.factr'. Did you mean 'factor'?"),
    ("model.heads", True, "model.heads: "),
    ("model.encoder_layers", [1, "x"], "model.encoder_layers: "),
    ("train", 5, "train: expected keys and values, got 5"),
    ("train.epochs", 0, "got 0"),
    ("train.lr", "1e-3", "got '1e-3'"),
    ("train.lr", float("nan"), "got nan"),
    ("train.lr", 1e300, "expected at most"),
    ("model.encoder_layers", 1001, "expected at most 1,000 layers"),
    ("train.lr_of.linear", -1, "train.lr_of.linear: "),
    ("train.schedule", "halved", "'halve'"),
    ("data.target", False, "got False"),
    ("seed", [[1] * 30] * 30, "seed: "),
    ("intervals.levels", [0.1, 1.0], "got 1.0"),
    ("intervals.levels", [], "got []"),
    ("intervals.levels", [0.1, 0.1], "expected levels that rise"),
]
WRONG += [
    ("window.past", value, f"got {value!r}")
    for value in (0, 1.5, True, "0 cycles", "21 days", "21cycles", "")
]


class TestWrongValues:
    @pytest.mark.parametrize(("path", "value", "words"), WRONG)
    def test_the_message_names_origin_path_and_remedy(self, path, value, words, written):
        text = json.dumps(value).replace("NaN", ".nan")
        nested = text
        for key in reversed(path.split(".")):
            nested = f'{{"{key}": {nested}}}'
        file = written(nested)
        for origin, said in (
            (file, refused(ConfigError, file=file)),
            (f"--set {path}={text}", refused(UsageError, f"{path}={text}", file="informer")),
        ):
            assert said.startswith(f"{origin}: ")
            assert len(said) < len(origin) + 400
            assert words in said

    def test_a_set_is_a_key_and_a_value_of_plain_yaml(self):
        for item in ("horizon", "=3", "a..b=1", "a.=1", ".a=1", ""):
            assert refused(UsageError, item).startswith("--set expects KEY=VALUE such as")
        assert resolve("data.target=a=b").config.data.target == "a=b"
        assert resolve("data.target=").config.data.target is None
        for value in ("!!python/name:os.system", "[*a]", "{a: 1, a: 2}"):
            said = refused(UsageError, f"seed={value}")
            assert said.startswith(f"--set seed={value}: not plain YAML")

    def test_of_two_that_do_not_fit_the_last_is_blamed(self, written):
        for one, other, words in (
            ("data.features=M", "data.target=OT", "choose MS"),
            ("data.name=ETTh1", "data.freq=h", "describes how to read a file"),
            ("data.name=x.csv", "data.path=y.csv", "is a file already"),
        ):
            said = refused(UsageError, one, other)
            assert said.startswith(f"--set {other}: ")
            assert words in said
            if "data.name" not in one:
                assert refused(UsageError, other, one).startswith(f"--set {one}: ")
        file = written("data: {features: M, target: OT}")
        assert refused(ConfigError, file=file).startswith(f"{file}: ")


def test_a_look_back_has_steps_or_cycles():
    for past in (1, 504, "1 cycle", "21 cycles"):
        for given in (past, str(past)):
            assert resolve(lookback=given).config.window.past == past


class TestBases:
    def test_a_file_says_what_differs_from_its_base(self, written):
        file = written("base: default\ntrain: {epochs: 3, lr_of: {window: 0.1}}")
        loaded, default = resolve(file=file), resolve(file="default")
        train = default.config.train
        changes = {"epochs": 3, "lr_of": {**train.lr_of, "window": 0.1}}
        changed = {"train": train.model_copy(update=changes)}
        assert loaded.config == default.config.model_copy(update=changed)
        ours = {"train.epochs": file, "train.lr_of.window": file}
        assert loaded.origins == default.origins | ours

    def test_a_base_may_have_one_of_its_own_or_lie_beside_the_file(self, written):
        loaded = resolve(file=written("base: ETTh1\nseed: 5"))
        assert loaded.config.seed == 5
        folder = installation.configs()
        assert loaded.origins["train.tolerance"] == str(folder / "ETTh1.yaml")
        assert loaded.origins["train.batch"] == str(folder / "default.yaml")
        file = written("base: other.yaml\nseed: 5", other="seed: 4\ntrain: {batch: 7}")
        config = resolve(file=file).config
        assert (config.seed, config.train.batch) == (5, 7)

    def test_data_that_a_file_names_have_no_substitute_from_a_base(self, written):
        named = "{name: ETTh1, otherwise: ETTh2}"
        texts = {"{features: M}": "vic_elec", "{name: ETTh1}": None, named: "ETTh2"}
        for text, otherwise in texts.items():
            file = written(f"base: default\ndata: {text}")
            assert resolve(file=file).config.data.otherwise == otherwise

    def test_what_cannot_be_a_base(self, written):
        for base, words in (
            ("defualt", "Did you mean 'default'?"),
            ("5", "expected a name in configs/ or a file, got 5"),
            ("run.yaml", "run.yaml is itself based on this file"),
            ("other.yaml", "run.yaml is itself based on this file"),
        ):
            said = refused(ConfigError, file=written(f"base: {base}", other="base: run.yaml"))
            assert ".yaml: base: " in said
            assert words in said


class TestFiles:
    def test_an_empty_file_is_all_defaults_and_numbers_need_no_dot(self, written):
        assert resolve(file=written("# nothing\n")).config == RunConfig()
        assert resolve(file=written("train: {lr: 1e-3}")).config.train.lr == 1e-3

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("train: !!python/object/apply:os.mkdir [CANARY]", "python/object"),
            ("train: {epochs: 3}\ntrain: {batch: 3}", "the key 'train' appears twice"),
            ("- 1", "expected a mapping of sections, got [1]"),
            ("seed: [1", "line 1"),
            ("seed: 2026-13-45", "month"),
            ("? [a, b]\n: 3", "unhashable"),
            ("seed: " + "9" * 10_000, "digits"),
            ("train: " + "[" * 100_000, "nested too deeply"),
            ("".join(f"{' ' * i}a:\n" for i in range(2_000)), "nested too deeply"),
            ("a: &a [x]\nb: [*a, *a]", "aliases are not allowed"),
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
        message = refused(ConfigError, file=file)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory  # in KiB
        assert time.process_time() - before < 1
        assert grown < 100_000
        assert message.startswith(f"{file}: ")
        assert words in message
        assert len(message) < 500
        assert not (tmp_path / "CANARY").exists()

    def test_a_file_nested_as_deep_as_is_allowed(self, written):
        file = written("a: " + "[" * 20 + "]" * 20)
        assert "unknown key 'a'" in refused(ConfigError, file=file)

    def test_files_that_cannot_be_read(self, written, tmp_path, monkeypatch):
        (tmp_path / "latin.yaml").write_bytes(b"seed: \xff")
        said = refused(ConfigError, file=str(tmp_path / "latin.yaml"))
        assert "latin.yaml: not UTF-8 text" in said

        def refuse(path, **arguments):
            raise PermissionError(13, "Permission denied", str(path))

        file = written("seed: 1")
        monkeypatch.setattr(Path, "read_text", refuse)
        said = refused(StorageError, file=file)
        assert said == f"{file} cannot be read: Permission denied"


class TestRoundTrip:
    def test_through_json_and_yaml(self, written):
        sets = ["model.encoder_layers=[3, 1]", "attn.cross={name: prob, factor: 2}"]
        sets += ["data.path=some/file.csv", "train.lr_of={encoder: 1e-3}"]
        own = resolve(*sets, file="informer").config
        assert own.model.options["encoder_layers"] == (3, 1)
        for config in (own, *(resolve(file=name).config for name in SHIPPED)):
            assert load_dict(json.loads(json.dumps(config.to_dict())), "here") == config
        assert resolve(file=written(yaml.safe_dump(own.to_dict()))).config == own

    def test_flat_names_every_value(self):
        flat = resolve("train.lr_of={}").config.flat()
        values = [flat[key] for key in ("window.past", "train.lr_of", "data.path")]
        assert values == ["21 cycles", "{}", ""]
        with pytest.raises(ConfigError, match=r"^somewhere: unknown key 'train.x'"):
            load_dict({"train": {"x": 1}}, "somewhere")


class TestModels:
    TASK = Task(7, (6,), 168, 168, 168, calendar=4, season=24, phase=(23.0, 0.0, 0.0, 0.0))

    @pytest.mark.parametrize("name", SHIPPED)
    def test_every_shipped_configuration_builds_its_model(self, name):
        config = resolve(file=name).config
        with torch.device("meta"):
            model = config.build_model(replace(self.TASK, season=96))
        assert type(model) is SKELETONS[config.model.name]
        assert model.effective()

    def test_sizes_that_do_not_fit_are_a_usage_error(self):
        pairs = {"parts=7": "parts=7, season=24", "heads=3": "width=16, heads=3"}
        pairs |= {"width=-4": "negative dimension", "dropout=2": "dropout"}
        for item, words in pairs.items():
            with pytest.raises(UsageError, match=f"configuration cannot be built.*{words}"):
                resolve(f"model.{item}").config.build_model(self.TASK)


def test_a_file_is_told_from_a_card():
    labels = {"sales.csv": "sales", "a/b.parquet": "b", "x/*.csv": "x", "load.csv.gz": "load"}
    for name, label in (labels | {"ETTh1": "ETTh1"}).items():
        data = resolve(data=name).config.data
        assert (data.is_file, data.label) == (name != "ETTh1", label)
