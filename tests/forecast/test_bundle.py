import errno
import json
import os
import struct
import subprocess
import sys
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
    WEIGHTS,
    load,
)
from forecaster.forecast.golden import Golden, forecasts
from forecaster.forecast.intervals import Conditions
from forecaster.forecast.predictor import Predictor, keep
from forecaster.record import Record
from tests.bundles import blended, rejudged, sign, unsaved, warning


@pytest.fixture
def folder(tmp_path):
    unsaved().save(tmp_path / "bundle")
    return tmp_path / "bundle"


def refused(folder, words, read=load):
    """The error of a bundle that somebody has changed on purpose, manifest and all."""
    sign(folder)
    with pytest.raises(BundleError, match=words):
        read(folder)


def edit(folder, name, change):
    """Change one JSON file by a function, or by other values of some keys."""
    content = json.loads((folder / name).read_text())
    changed = change(content) if callable(change) else content.update(change)
    (folder / name).write_text(json.dumps(content if changed is None else changed))


def conditioned():
    """A bundle whose intervals depend on the history and the calendar."""
    bundle, random = unsaved(calibrated=True), np.random.default_rng(0)
    told = Conditions(4, (23.0, 0.5), np.arange(1.0, 4), random.random((2, 3)))
    return replace(bundle, intervals=replace(bundle.intervals, conditions=told))


BUNDLES = {
    "cycle": unsaved,
    "conditions": conditioned,
    "blend": lambda: blended(unsaved("informer"), network=0.5, cycle=0.3, last=0.2),
    "without the network": lambda: blended(unsaved(), cycle=0.5, last=0.5),
}


class TestRoundTrip:
    @pytest.mark.parametrize("kind", BUNDLES)
    def test_everything_comes_back_and_forecasts_are_bit_equal(self, kind, tmp_path):
        bundle = BUNDLES[kind]()
        saved, found = bundle.save(tmp_path / "deep" / "er"), load(tmp_path / "deep" / "er")
        assert (found.config, found.schema) == (bundle.config, bundle.schema)
        assert (found.record, found.digest) == (bundle.record, saved.digest)
        assert found.about.items() >= bundle.about.items()
        assert set(found.about["versions"]) == {"forecaster", "torch", "numpy", "pandas"}
        before, after = bundle.tensors(), found.tensors()
        for file, tensors in before.items():
            assert tensors.keys() == after[file].keys()
            for name, tensor in tensors.items():
                assert after[file][name].dtype == tensor.dtype
                assert torch.equal(after[file][name], tensor)
        assert not found.build().training
        mine, theirs = Predictor(bundle, "cpu"), Predictor(found, "cpu")
        levels = (0.1, 0.3, 0.9) if bundle.intervals else ()
        ahead = mine.predict(mine.example, levels=levels)
        assert theirs.predict(mine.example, levels=levels).equals(ahead)

    def test_so_do_its_golden_forecasts(self, tmp_path):
        bundle = unsaved(calibrated=True, targets=("wind", "load"))
        assert bundle.save(tmp_path / "without").golden is None
        golden = keep(bundle, tmp_path / "with").golden
        assert golden.forecast.shape == (16, 6, 2, 4)
        forecaster = Predictor(load(tmp_path / "with"), "cpu")
        again = forecaster.bundle.golden
        np.testing.assert_array_equal(again.which, golden.which)
        np.testing.assert_array_equal(again.forecast, golden.forecast)
        np.testing.assert_array_equal(forecasts(forecaster, golden.which.tolist()), golden.forecast)

    def test_the_digest_follows_the_contents_alone(self, tmp_path):
        bundle = unsaved()
        one, two = bundle.save(tmp_path / "one"), bundle.save(tmp_path / "two")
        other = rejudged(bundle, mse=0.5).save(tmp_path / "one")
        assert one.digest == two.digest != other.digest == load(tmp_path / "one").digest
        assert one.digest.startswith("sha256:")


class TestDamage:
    @pytest.mark.parametrize("name", [*FILES, MANIFEST])
    def test_a_damaged_file_is_refused_by_name(self, name, folder):
        good = (folder / name).read_bytes()
        step = 7 if name == MANIFEST else (len(good) - 1) // 2
        flipped = [bytearray(good) for _ in range(0, len(good), step)]
        for number, data in enumerate(flipped):
            data[number * step] ^= 1
        for bad in (*flipped, b"", good[: len(good) // 2]):
            (folder / name).write_bytes(bad)
            with pytest.raises(BundleError, match=f"(?s)(?=.*{name}).*is damaged"):
                load(folder)
        (folder / name).unlink()
        with pytest.raises(BundleError, match=f"{name} is missing"):
            load(folder)
        (folder / name).mkdir()
        with pytest.raises(StorageError, match=name):
            load(folder)

    @pytest.mark.parametrize("name", ["model.pkl", "../elsewhere.json", "/etc/passwd", ""])
    def test_a_foreign_line_in_the_manifest_is_refused(self, name, folder):
        with (folder / MANIFEST).open("a") as file:
            file.write(f"{'0' * 64}  {name}\n")
        with pytest.raises(BundleError, match=r"MANIFEST\.sha256 is damaged"):
            load(folder)


@pytest.mark.parametrize(
    ("found", "words"), [(FORMAT - 1, ".*train the model again"), (FORMAT + 1, "")]
)
def test_another_format_is_refused_whatever_files_it_has(found, words, folder):
    edit(folder, "about.json", {"format": found})
    sign(folder)
    (folder / "parts.json").unlink()
    lines = (folder / MANIFEST).read_text().splitlines(keepends=True)
    (folder / MANIFEST).write_text("".join(line for line in lines if "parts.json" not in line))
    with pytest.raises(BundleError, match=f"format {found}.*reads format {FORMAT}{words}"):
        load(folder)


class TestForeign:
    """Bundles with a correct manifest and wrong contents."""

    def test_tensors_that_are_none(self, folder):
        wrong = [struct.pack("<Q", size) + b"{}" for size in (2**63, 2**64 - 1, 2**40, 10**8)]
        for shape in ([2**40, 2**40], [2**62, 4], [-1], [1000]):
            header = {"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}
            text = json.dumps(header).encode()
            wrong.append(struct.pack("<Q", len(text)) + text + b"0000")
        for data in (*wrong, b"PK\x03\x04 as torch.save writes it"):
            (folder / WEIGHTS).write_bytes(data)
            refused(folder, "not a bundle of this version")

    def test_what_is_not_json(self, folder):
        for text in ("", "{", "[" * 100_000, "\ufeff{}", '"' + "\ud800", "NaN"):
            for name in ("metrics.json", "about.json"):
                (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
            refused(folder, "not a bundle of this version")

    @pytest.mark.parametrize(
        ("name", "change", "word"),
        [
            ("about.json", lambda about: {"format": FORMAT}, "name"),
            ("metrics.json", {"train": 1}, "train"),
            ("schema.json", {"scaler": 3}, "TypeError"),
            ("schema.json", lambda schema: {"columns": ["a"]}, "KeyError"),
            ("schema.json", lambda schema: schema["scaler"]["mean"].pop() and schema, "mean"),
            ("schema.json", {"targets": ["rain"]}, "rain"),
            ("schema.json", lambda schema: schema["known"].update(low=[0.0]), "covariates"),
            ("schema.json", lambda schema: schema["reading"].update(seasons=[4, 0]), "seasons"),
            ("config.json", {"new": 1}, "unknown key 'new'"),
            ("config.json", lambda config: config["window"].update(past="auto"), "window.past"),
        ],
    )
    def test_documents_of_another_version(self, name, change, word, folder):
        edit(folder, name, change)
        refused(folder, word)

    def test_weights_of_another_architecture(self, folder):
        for change in ({"width": 8}, {"encoder_layers": 2}, {"encoder_layers": 0}, {"parts": 3}):
            unsaved().save(folder)
            model = unsaved().config.to_dict()["model"]
            edit(folder, "config.json", {"model": model | change})
            refused(folder, r"config\.json", lambda folder: load(folder).build())
        with pytest.raises(BundleError, match="size mismatch"):
            replace(unsaved(horizon=9), weights=unsaved().weights).save(folder).build()
        golden = Golden(np.arange(2), np.zeros((2, 6, 3, 4), np.float32))
        with pytest.raises(BundleError, match=r"golden\.safetensors"):
            replace(unsaved(), golden=golden).save(folder)

    @pytest.mark.parametrize(
        ("name", "others"),
        {
            "levels": [[0.75, 0.5, 0.25], torch.ones(2)],
            "offsets": [torch.ones(3), torch.ones(9, 3, 3), None],
            "scale": [torch.ones(6, 2)],
            "windows": [[1, 2]],
            "season": [0, [4, 4]],
            "weights": [torch.ones(50), 1.0],
            "usual": [torch.ones(2)],
            "phases": [*(torch.ones(size) for size in ((0, 3), (1, 2), 3, (2, 3, 1))), None],
        }.items(),
    )
    def test_intervals_of_other_sizes(self, name, others, tmp_path):
        conditioned().save(tmp_path)
        tensors = safetensors.torch.load((tmp_path / INTERVALS).read_bytes())
        kind = tensors.pop(name).dtype
        for other in others:
            changed = {} if other is None else {name: torch.as_tensor(other, dtype=kind)}
            (tmp_path / INTERVALS).write_bytes(safetensors.torch.save(tensors | changed))
            refused(tmp_path, f"{INTERVALS} does not fit|not a bundle of this v")

    def test_ranges_of_other_sizes(self, folder):
        told = warning(unsaved()).about["ranges"]
        changes = {
            "low": [[[0.0] * 3], 5],
            "high": [[[0.0], [0.0, 1.0]]],
            "change": ["far", None, [0.0] * 2, [10**400] * 3],
        }
        wrong = [told | {name: each} for name, values in changes.items() for each in values]
        for ranges in (*wrong, {}, [1]):
            edit(folder, "about.json", {"ranges": ranges})
            refused(folder, "ranges of the training", lambda folder: Predictor(load(folder), "cpu"))


def test_loading_opens_its_ten_files_and_unpickles_nothing(folder):
    """Observed from inside: files that are opened, names that unpickling would look up."""
    for name in ("model.pkl", "model.ckpt", "python_model.pkl", "weights.pt"):
        (folder / name).write_bytes(b"cbuiltins\nexit\n(I3\ntR.")
    program = """
import sys
from pathlib import Path
from forecaster.forecast.bundle import load
folder, seen = Path(sys.argv[1]), []
load(folder).build()  # imports what it needs
sys.addaudithook(lambda event, arguments: seen.append((event, str(arguments[:1]))))
load(folder).build()
opened = [what for event, what in seen if event == "open" and str(folder) in what]
print(len(opened), len({*opened}))
print([event for event, _ in seen if event.startswith(("pickle", "marshal.loads"))])
print({"mlflow", "lightning", "sklearn"} & set(sys.modules))
"""
    done = subprocess.check_output([sys.executable, "-c", program, str(folder)], text=True)
    assert done.splitlines() == ["10 10", "[]", "set()"]


class TestWriting:
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
        names, rename, moves = {each.name for each in tmp_path.iterdir()}, Path.replace, []

        def move(source, target):
            if tmp_path in (source.parent, target.parent):
                moves.append(source)
                if len(moves) == failing:
                    raise PermissionError("another process uses it")
            return rename(source, target)

        monkeypatch.setattr(Path, "replace", move)
        for number in range(1, 2 * len(names) + 1):  # each is moved away, and one takes its place
            moves.clear()
            failing = number
            with pytest.raises(StorageError, match="another process uses it"):
                new.save(tmp_path)
            assert load(tmp_path).digest == before.digest
            assert {each.name for each in tmp_path.iterdir()} == names
        failing = 0
        new.save(tmp_path)
        assert load(tmp_path).record == Record(validation_mse=1)
        assert {each.name for each in tmp_path.iterdir()} == names

    def test_what_is_refused_writes_nothing(self, tmp_path):
        with pytest.raises(ValueError, match="finite number"):
            replace(unsaved(), record=Record(validation_mse=np.nan)).save(tmp_path / "bundle")
        (tmp_path / "bundle").write_text("a file in the way")
        with pytest.raises(StorageError, match="bundle"):
            unsaved().save(tmp_path / "bundle")


def test_what_looks_like_a_bundle(folder, tmp_path):
    assert is_bundle(folder)
    assert not any(map(is_bundle, (tmp_path, tmp_path / "nowhere", folder / WEIGHTS)))
