import errno
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from forecaster.base import atomic
from forecaster.base.errors import BundleError, StorageError
from forecaster.base.installation import is_bundle
from forecaster.forecast.bundle import (
    FILES,
    FORMAT,
    INTERVALS,
    MANIFEST,
    PARTS,
    UNSAID,
    WEIGHTS,
    load,
)
from forecaster.forecast.golden import Golden
from forecaster.forecast.intervals import Conditions
from forecaster.forecast.predictor import Predictor, keep
from forecaster.record import Record
from tests.bundles import MODELS, rejudged, sign, unsaved, warning


@pytest.fixture
def folder(tmp_path):
    unsaved().save(tmp_path / "bundle")
    return tmp_path / "bundle"


def edit(folder, name, change):
    """Change one JSON file on purpose, manifest and all."""
    file = folder / name
    content = json.loads(file.read_text())
    changed = change(content)
    file.write_text(json.dumps(content if changed is None else changed))
    sign(folder)


class TestRoundTrip:
    @pytest.mark.parametrize("model", MODELS)
    def test_everything_comes_back_and_forecasts_are_bit_equal(self, model, tmp_path):
        bundle = unsaved(model)
        saved = bundle.save(tmp_path / "deep" / "er")
        found = load(tmp_path / "deep" / "er")
        assert found.config == bundle.config
        assert found.schema == bundle.schema
        assert found.record == bundle.record
        assert found.about.items() >= bundle.about.items()
        assert set(found.about["versions"]) == {"forecaster", "torch", "numpy", "pandas"}
        assert found.digest == saved.digest
        assert found.weights.keys() == bundle.weights.keys()
        for name, tensor in bundle.weights.items():
            assert found.weights[name].dtype == tensor.dtype
            assert torch.equal(found.weights[name], tensor)
        frame = Predictor(bundle).example
        before, after = Predictor(bundle).predict(frame), Predictor(found).predict(frame)
        assert before.equals(after)

    @pytest.mark.parametrize("loss", ["mse", "pinball"])
    def test_so_do_its_intervals(self, loss, tmp_path):
        bundle = unsaved(calibrated=True, loss=loss)
        assert unsaved().save(tmp_path / "none").intervals is None
        found = bundle.save(tmp_path / "with").intervals
        assert (found.nominal, found.windows) == (bundle.intervals.nominal, 99)
        for name in ("offsets", "scale"):
            np.testing.assert_array_equal(getattr(found, name), getattr(bundle.intervals, name))
        frame = Predictor(bundle).example
        levels = (0.1, 0.3, 0.9)
        before, after = (
            Predictor(each).predict(frame, levels=levels)
            for each in (bundle, load(tmp_path / "with"))
        )
        assert before.equals(after)

    @pytest.mark.parametrize("weights", [(), (23.0, 0.5)])
    def test_so_do_the_conditions_of_its_intervals(self, weights, tmp_path):
        bundle = unsaved(calibrated=True)
        told = Conditions(4, weights, np.arange(3.0), np.random.default_rng(0).random((2, 3)))
        bundle = replace(bundle, intervals=replace(bundle.intervals, conditions=told))
        found = bundle.save(tmp_path).intervals.conditions
        assert (found.season, found.weights) == (4, weights)
        np.testing.assert_array_equal(found.usual, told.usual)
        np.testing.assert_array_equal(found.phases, told.phases)

    def test_so_do_its_golden_forecasts(self, tmp_path):
        bundle = unsaved(calibrated=True, targets=("wind", "load"))
        assert bundle.save(tmp_path / "without").golden is None
        golden = keep(bundle, tmp_path / "with").golden
        assert golden.forecast.shape == (16, 6, 2, 4)
        forecaster = Predictor(load(tmp_path / "with"), "cpu")
        again = forecaster.bundle.golden
        np.testing.assert_array_equal(again.which, golden.which)
        np.testing.assert_array_equal(again.forecast, golden.forecast)
        np.testing.assert_array_equal(forecaster.golden(golden.which.tolist()), golden.forecast)

    def test_the_digest_follows_the_contents_alone(self, tmp_path):
        bundle = unsaved()
        one, two = bundle.save(tmp_path / "one"), bundle.save(tmp_path / "two")
        other = rejudged(bundle, mse=0.5).save(tmp_path / "other")
        assert one.digest == two.digest != other.digest
        assert one.digest.startswith("sha256:")

    def test_saving_again_replaces(self, folder):
        bundle = replace(unsaved("informer"), record=Record(validation_mse=1))
        bundle.save(folder)
        assert load(folder).record == Record(validation_mse=1)

    def test_the_built_model_is_ready_for_use(self, folder):
        model = load(folder).build()
        assert not model.training
        assert {tensor.device.type for tensor in model.state_dict().values()} == {"cpu"}

    def test_a_non_contiguous_weight_is_kept(self, tmp_path):
        bundle = unsaved()
        name = next(name for name, tensor in bundle.weights.items() if tensor.ndim == 2)
        turned = bundle.weights[name].T.contiguous().T
        saved = replace(bundle, weights={**bundle.weights, name: turned}).save(tmp_path)
        assert torch.equal(saved.weights[name], turned)


class TestDamage:
    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
    def test_one_flipped_byte_is_refused_by_name(self, name, where, folder):
        data = bytearray((folder / name).read_bytes())
        data[int(where * (len(data) - 1))] ^= 1
        (folder / name).write_bytes(data)
        with pytest.raises(BundleError, match=f"{name} is damaged"):
            load(folder)

    def test_one_flipped_byte_of_the_manifest_is_refused_wherever_it_is(self, folder):
        manifest = folder / MANIFEST
        good = manifest.read_bytes()
        for position in range(0, len(good), 7):
            data = bytearray(good)
            data[position] ^= 1
            manifest.write_bytes(data)
            wanted = r"is damaged: .* MANIFEST.sha256 differ|MANIFEST.sha256 names '"
            with pytest.raises(BundleError, match=wanted):
                load(folder)

    @pytest.mark.parametrize("name", [*FILES, MANIFEST])
    def test_a_missing_file_is_named(self, name, folder):
        (folder / name).unlink()
        with pytest.raises(BundleError, match=f"{name} is missing") as caught:
            load(folder)
        assert caught.value.exit_code == 65

    @pytest.mark.parametrize("name", FILES)
    def test_a_truncated_or_empty_file_is_refused(self, name, folder):
        data = (folder / name).read_bytes()
        for size in (0, len(data) // 2):
            (folder / name).write_bytes(data[:size])
            with pytest.raises(BundleError, match=f"{name} is damaged"):
                load(folder)

    def test_a_folder_in_place_of_a_file(self, folder):
        (folder / WEIGHTS).unlink()
        (folder / WEIGHTS).mkdir()
        with pytest.raises(StorageError, match=f"{WEIGHTS} could not be read"):
            load(folder)


class TestFormat:
    """A complete bundle of another format is refused by name, whatever files it has."""

    @pytest.mark.parametrize(
        ("found", "remedy"),
        [
            (6, "use it with the version that made it, or train the model again"),
            (9, "use it with the version that made it$"),
        ],
    )
    def test_another_format_is_refused_with_what_to_do(self, found, remedy, folder):
        about = json.loads((folder / "about.json").read_text())
        (folder / "about.json").write_text(json.dumps({**about, "format": found}))
        (folder / "parts.json").unlink()
        (folder / MANIFEST).write_text(
            "".join(
                f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
                for name in FILES
                if name != "parts.json"
            )
        )
        with pytest.raises(BundleError, match=f"bundle format {found}.*reads format 8: {remedy}"):
            load(folder)

    def test_a_part_of_an_unknown_kind_is_refused(self, folder):
        part = {"name": "line", "kind": "oracle", "settings": {}}
        (folder / "parts.json").write_text(json.dumps([part]))
        weights = {"weights": torch.ones(1, 6)}
        (folder / PARTS).write_bytes(safetensors.torch.save(weights))
        sign(folder)
        with pytest.raises(BundleError, match=r"a part of the kind 'oracle', .*install the pack"):
            load(folder)


@pytest.mark.parametrize("name", ["model.pkl", "../elsewhere.json", "/etc/passwd", ""])
def test_a_foreign_line_in_the_manifest_is_refused(name, folder):
    with (folder / MANIFEST).open("a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    with pytest.raises(BundleError, match=r"MANIFEST\.sha256 is damaged"):
        load(folder)


class TestForeign:
    """Bundles with a correct manifest and wrong contents."""

    def header(self, folder, header, rest=b""):
        (folder / WEIGHTS).write_bytes(header + rest)
        sign(folder)

    @pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 10**8])
    def test_a_header_longer_than_the_file_allocates_nothing(self, length, folder):
        self.header(folder, struct.pack("<Q", length), b"{}")
        with pytest.raises(BundleError, match=r"not a bundle of this version.*header"):
            load(folder)

    @pytest.mark.parametrize("shape", [[2**40, 2**40], [2**62, 4], [-1], [1000]])
    def test_shapes_that_overflow(self, shape, folder):
        tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}
        text = json.dumps({"x": tensor}).encode()
        self.header(folder, struct.pack("<Q", len(text)), text + b"\0" * 4)
        with pytest.raises(BundleError, match="not a bundle of this version"):
            load(folder)

    def test_pickled_weights_under_the_name_of_the_safe_ones(self, folder, tmp_path):
        torch.save({"x": torch.zeros(1)}, folder / WEIGHTS)
        sign(folder)
        with pytest.raises(BundleError, match="not a bundle of this version"):
            load(folder)

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("width", 8, "size mismatch"),
            ("encoder_layers", 2, "Missing key"),
            ("encoder_layers", 0, "encoder_layers"),
            ("parts", 3, "parts=3, season=4"),
        ],
    )
    def test_weights_of_another_architecture(self, key, value, words, folder):
        edit(folder, "config.json", lambda config: config["model"].update({key: value}))
        bundle = load(folder)
        with pytest.raises(BundleError, match=words) as caught:
            bundle.build()
        assert "config.json" in str(caught.value)

    @pytest.mark.parametrize("key", ["format", "name"])
    def test_what_is_said_about_it_is_not_all_there(self, key, folder):
        edit(folder, "about.json", lambda about: {k: v for k, v in about.items() if k != key})
        with pytest.raises(BundleError, match=rf"not a bundle of this version.*{key}"):
            load(folder)

    def test_what_may_be_left_out(self, folder):
        edit(folder, "about.json", lambda about: {"format": about["format"], "name": "x"})
        assert load(folder).about == {"format": FORMAT, "name": "x", **UNSAID}

    @pytest.mark.parametrize("key", ["train", "test", "parts", "new"])
    @pytest.mark.parametrize("value", [1, [], "none"])
    def test_figures_of_another_form(self, key, value, folder):
        edit(folder, "metrics.json", lambda metrics: {**metrics, key: value})
        with pytest.raises(BundleError, match=rf"not a bundle of this version: .*{key}: .*input"):
            load(folder)

    def test_intervals_of_another_horizon(self, tmp_path):
        other = unsaved(calibrated=True, horizon=9).intervals
        with pytest.raises(BundleError, match=r"intervals.safetensors does not fit config.json"):
            replace(unsaved(), intervals=other).save(tmp_path)

    @pytest.mark.parametrize(("usual", "phases"), [(2, (1, 3)), (3, (1, 2)), (3, (3,))])
    def test_conditions_of_other_columns(self, usual, phases, tmp_path):
        bundle = unsaved(calibrated=True)
        told = Conditions(4, (), np.ones(usual), np.ones(phases))
        bundle = replace(bundle, intervals=replace(bundle.intervals, conditions=told))
        with pytest.raises(BundleError, match=r"intervals.safetensors does not fit config.json"):
            bundle.save(tmp_path)

    @pytest.mark.parametrize(
        ("name", "tensor", "words"),
        [
            (
                "levels",
                torch.tensor([0.75, 0.5, 0.25]),
                "expected levels (0.1, 0.5, 0.9), got (0.75",
            ),
            ("levels", torch.ones(2), "expected levels (0.1, 0.5, 0.9), got (1.0, 1.0)"),
            ("offsets", torch.ones(3), "expected offsets of shape (6, 3, 3), got (3,)"),
            ("scale", torch.ones(6, 2), "expected a scale of shape (6, 3), got (6, 2)"),
            ("windows", torch.tensor([1, 2]), "not a bundle of this version"),
            ("season", torch.tensor(0), "expected a season of at least 1 step, here 1, got 0"),
            ("season", torch.tensor([4, 4]), "not a bundle of this version"),
            ("weights", torch.ones(50), "features at most, here 4, got 50"),
            ("weights", torch.tensor(1.0), "not a bundle of this version"),
            ("usual", torch.ones(2), "expected the usual deviations of shape (3,), got (2,)"),
            ("phases", torch.ones(0, 3), "expected widths of shape (1, 3), got (0, 3)"),
            ("phases", torch.ones(2, 3, 1), "expected widths of shape (2, 3), got (2, 3, 1)"),
        ],
    )
    def test_intervals_of_other_sizes(self, name, tensor, words, tmp_path):
        bundle = unsaved(calibrated=True)
        told = Conditions(4, (23.0, 0.5), np.ones(3), np.ones((2, 3)))
        replace(bundle, intervals=replace(bundle.intervals, conditions=told)).save(tmp_path)
        tensors = safetensors.torch.load((tmp_path / INTERVALS).read_bytes())
        tensors[name] = tensor.to(tensors[name].dtype)
        (tmp_path / INTERVALS).write_bytes(safetensors.torch.save(tensors))
        sign(tmp_path)
        with pytest.raises(BundleError, match=re.escape(words)):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"season": 0}, "expected a season of 1 step or more, got 0"),
            ({"season": "4"}, "expected a season of 1 step or more, got '4'"),
            ({"low": [[0.0] * 3]}, "do not fit 3 columns, 3 targets"),
            ({"high": [[0.0], [0.0, 1.0]]}, "cannot be read: ValueError"),
            ({"change": "far"}, "cannot be read: ValueError"),
            ({"change": None}, "do not fit 3 columns, 3 targets"),
            ({"change": [10**400] * 3}, "cannot be read: OverflowError"),
            (None, "cannot be read: KeyError"),
            ([1], "cannot be read: TypeError"),
        ],
    )
    def test_ranges_of_other_sizes(self, change, words, folder):
        told = warning(unsaved()).about["ranges"]
        ranges = told | change if isinstance(change, dict) else {} if change is None else change
        edit(folder, "about.json", lambda about: about.update(ranges=ranges))
        with pytest.raises(BundleError, match=re.escape(words)):
            Predictor(load(folder), "cpu")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda schema: schema["scaler"]["mean"].pop(), "a mean and a deviation (3,)"),
            (lambda schema: schema.update(items=["a"]), "a mean and a deviation (1, 3)"),
            (lambda schema: schema["known"].update(low=[0.0]), "each of 0 covariates, got 1 and 0"),
            (lambda schema: schema.update(targets=["rain"]), "the targets ['rain'] are not col"),
            (lambda schema: schema["reading"].update(seasons=[]), "seasons of 1 step or more"),
            (lambda schema: schema["reading"].update(seasons=[4, 0]), "seasons of 1 step or more"),
        ],
    )
    def test_a_schema_of_other_sizes(self, change, words, folder):
        schema = json.loads((folder / "schema.json").read_text())
        change(schema)
        edit(folder, "schema.json", lambda _: schema)
        with pytest.raises(BundleError, match=re.escape(words)):
            load(folder)

    def test_lengths_that_nobody_resolved(self, folder):
        edit(folder, "config.json", lambda config: config["window"].update(past="auto"))
        with pytest.raises(BundleError, match=r"window\.past=auto"):
            load(folder)

    def test_a_golden_forecast_of_another_shape(self, tmp_path):
        golden = Golden(np.arange(2), np.zeros((2, 6, 3, 4), np.float32))
        with pytest.raises(BundleError, match=r"golden.safetensors does not fit config.json"):
            replace(unsaved(), golden=golden).save(tmp_path)

    @pytest.mark.parametrize("tensors", [{"levels": torch.zeros(3)}, {"other": torch.zeros(1)}])
    def test_intervals_without_their_parts(self, tensors, folder):
        (folder / INTERVALS).write_bytes(safetensors.torch.save(tensors))
        sign(folder)
        with pytest.raises(BundleError, match=r"not a bundle of this version: KeyError"):
            load(folder)

    def test_weights_of_another_horizon(self, tmp_path):
        bundle = replace(unsaved(horizon=9), weights=unsaved().weights)
        with pytest.raises(BundleError, match="size mismatch"):
            bundle.save(tmp_path).build()

    @pytest.mark.parametrize(
        ("name", "change", "words"),
        [
            ("about.json", lambda about: {**about, "format": 1}, "format 1, .* reads format 8"),
            ("about.json", lambda about: {}, "KeyError.*format"),
            ("about.json", lambda about: [1], "KeyError.*format"),
            ("schema.json", lambda schema: {**schema, "scaler": 3}, "TypeError"),
            ("schema.json", lambda schema: {"columns": ["a"]}, "KeyError"),
            ("config.json", lambda config: {**config, "new": 1}, "unknown key 'new'"),
            ("config.json", lambda config: {**config, "attn": "new"}, "unknown attention 'new'"),
            ("config.json", lambda config: [config], "mapping|dictionary|keys and values"),
        ],
    )
    def test_contents_of_another_version(self, name, change, words, folder):
        edit(folder, name, change)
        with pytest.raises(BundleError, match=words):
            load(folder)

    @pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\ufeff{}", '"' + "\ud800", "NaN"])
    def test_what_is_not_json(self, text, folder):
        (folder / "metrics.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        (folder / "about.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        sign(folder)
        with pytest.raises(BundleError, match="not a bundle of this version"):
            load(folder)


def test_loading_opens_its_ten_files_and_unpickles_nothing(folder):
    """Observed from inside: files that are opened, names that unpickling would look up."""
    for name in ("model.pkl", "model.ckpt", "python_model.pkl", "weights.pt"):
        (folder / name).write_bytes(b"cbuiltins\nexit\n(I3\ntR.")
    program = """
        import sys
        from pathlib import Path
        from forecaster.forecast.bundle import load
        import safetensors.torch
        folder, seen = Path(sys.argv[1]), []
        sys.addaudithook(lambda event, arguments: seen.append((event, str(arguments[:1]))))
        bundle = load(folder)
        bundle.build()
        opened = [what for event, what in seen if event == "open" and str(folder) in what]
        print(len(opened), len({*opened}))
        print([event for event, _ in seen if event.startswith(("pickle", "marshal.loads"))])
        print([what for event, what in seen if event in ("exec", "compile") and "bundle" in what])
        print({"mlflow", "lightning", "sklearn"} & set(sys.modules))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(folder)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["10 10", "[]", "[]", "set()"]


class TestWriting:
    def test_a_file_in_the_way(self, tmp_path):
        (tmp_path / "bundle").write_text("")
        with pytest.raises(StorageError, match=r"could not be written to .*bundle") as caught:
            unsaved().save(tmp_path / "bundle")
        assert caught.value.exit_code == 74

    @pytest.mark.parametrize("number", range(len(FILES) + 2))
    def test_a_full_disk_leaves_nothing_that_looks_whole(self, number, tmp_path, monkeypatch):
        sync, synced = os.fsync, []

        def fill(place):
            synced.append(place)
            if len(synced) > 2 * number:  # of a file, and of the folder that has its name
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(place)

        before = unsaved().save(tmp_path / "bundle")
        for folder in ("bundle", "new"):  # in place of another one, and alone
            synced.clear()
            with monkeypatch.context() as patch:
                patch.setattr(atomic.os, "fsync", fill)
                with pytest.raises(StorageError, match="No space left on device"):
                    unsaved().save(tmp_path / folder)
        assert load(tmp_path / "bundle").digest == before.digest, "it is the one from before"
        assert len(list((tmp_path / "bundle").iterdir())) == 1 + len(FILES)
        assert not (tmp_path / "new").exists()

    def test_a_file_that_cannot_be_replaced_leaves_the_bundle_from_before(
        self, tmp_path, monkeypatch
    ):
        before, new = unsaved().save(tmp_path), replace(unsaved(), record=Record(validation_mse=1))
        (tmp_path / "notes.txt").write_text("of another")
        names, rename, moves = {each.name for each in tmp_path.iterdir()}, Path.replace, []

        def move(source, target):
            if tmp_path in (source.parent, target.parent):
                moves.append(source)
                if len(moves) == failing:
                    raise PermissionError("another process uses it")
            return rename(source, target)

        monkeypatch.setattr(Path, "replace", move)
        for number in range(1, 2 * len(names) - 1):  # each is moved away, and one takes its place
            moves.clear()
            failing = number
            with pytest.raises(StorageError, match="another process uses it"):
                new.save(tmp_path)
            assert load(tmp_path).digest == before.digest
            assert {each.name for each in tmp_path.iterdir()} == names
        moves.clear()
        failing = 0
        new.save(tmp_path)
        assert len(moves) == 2 * len(names) - 2
        assert load(tmp_path).record == Record(validation_mse=1)
        assert {each.name for each in tmp_path.iterdir()} == names

    def test_a_figure_that_is_not_a_number_is_refused_before_anything_is_written(self, tmp_path):
        with pytest.raises(ValueError, match="finite number"):
            replace(unsaved(), record=Record(validation_mse=np.nan)).save(tmp_path / "bundle")
        assert not (tmp_path / "bundle").exists()


def test_what_looks_like_a_bundle(folder, tmp_path):
    assert is_bundle(folder)
    assert not is_bundle(tmp_path)
    assert not is_bundle(tmp_path / "nowhere")
    assert not is_bundle(folder / WEIGHTS)
