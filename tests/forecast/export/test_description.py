import json

import pytest

from forecaster.base.errors import BundleError, StorageError, UnavailableError
from forecaster.forecast.export import graph
from forecaster.forecast.export.description import DESCRIPTION, FILE, read
from forecaster.forecast.predictor import Predictor
from tests.bundles import COLUMNS
from tests.forecast.export import eager
from tests.service.toy import KINDS, make_bundle


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "to_onnx", eager.write)
    bundle = make_bundle(tmp_path / "bundle", **KINDS["all"])
    graph.export(Predictor(bundle, "cpu"), tmp_path / "out")
    return tmp_path / "out"


def test_a_reader_without_the_library_finds_all_it_needs(saved):
    told = json.loads((saved / DESCRIPTION).read_text())
    assert (told["file"], told["past"], told["horizon"]) == (FILE, 24, 6)
    assert told["bundle"].startswith("sha256:")
    assert told["inputs"]["history"].endswith(f"{', '.join(COLUMNS)}, in units, NaN where missing")
    assert "): hour, weekday, day, yearday, holiday, " in told["inputs"]["known"]


def test_damage_is_named(saved):
    with pytest.raises(StorageError, match="could not be written"):
        read(saved)[0].save(saved / FILE, b"a model")
    other = '{"version": 9, "format": "onnx"}', '{"version": 1, "format": "torch-export"}'
    for name, texts in {FILE: ("other bytes",), DESCRIPTION: ("{", *other)}.items():
        good = (saved / name).read_text()
        for text in texts:
            (saved / name).write_text(text)
            with pytest.raises(BundleError, match=name):
                read(saved)
        (saved / name).unlink()
        with pytest.raises(UnavailableError, match=name):
            read(saved)
        (saved / name).write_text(good)
