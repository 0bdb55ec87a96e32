"""A part from a small package by another author, installed beside ours."""

import shutil
import sys
from pathlib import Path

import pytest

from forecaster import parts
from forecaster.attention.plugins import allowing
from forecaster.base.errors import BundleError
from forecaster.config.run_config import load
from forecaster.evaluate.judge import rejudge
from forecaster.forecast import bundle
from forecaster.forecast.predictor import Predictor
from forecaster.run import train
from tests import small
from tests.parts import folds

MODULE = Path(__file__).parents[1] / "equality" / "theirs" / "repeated_part.py"


@pytest.fixture
def package(tmp_path, monkeypatch):
    place = tmp_path / "site"
    about = place / "theirs-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(MODULE, place / "repeated_part.py")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    entries = [f"{name} = repeated_part:Repeated" for name in ("repeated", "ridge")]
    (about / "entry_points.txt").write_text("\n".join(["[forecaster.parts]", *entries]))
    monkeypatch.syspath_prepend(place)
    yield place
    monkeypatch.undo()
    sys.modules.pop("repeated_part", None)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    with small.at_home(tmp_path / "home") as folder:
        yield folder


@pytest.mark.usefixtures("package")
def test_it_is_fitted_beside_ours_and_replaces_none():
    fold = folds.fold(folds.series())
    found = parts.fit_forms(fold)[0]
    (own,) = (part for part in found if part.name == "repeated")
    assert own.family == "repeated", "a family of its own"
    assert parts.kind_of("ridge") is parts.Ridge
    error = float(parts.weigh(found, fold.choose).mse[found.index(own)])
    assert error == pytest.approx(folds.error(own, fold.choose), rel=1e-4)


@pytest.mark.usefixtures("package")
def test_a_service_imports_only_what_its_settings_name():
    with allowing(["other"], parts.GROUP):
        with pytest.raises(BundleError, match="allow it with FORECASTER_PARTS=repeated"):
            parts.kind_of("repeated")
        with pytest.raises(BundleError, match=r"here are training-mean, .*, repeated; install"):
            parts.kind_of("oracle")
        assert "repeated_part" not in sys.modules, "what is kept out is not imported"
        assert parts.kind_of("ridge") is parts.Ridge
        with allowing(["repeated"]), pytest.raises(BundleError, match="allow it"):
            parts.kind_of("repeated")  # an attention may have that name
        with allowing(["repeated"], parts.GROUP):
            assert parts.kind_of("repeated").kind == "repeated"
    assert parts.kind_of("repeated").kind == "repeated"


@pytest.mark.usefixtures("untracked")
def test_it_is_weighed_judged_saved_and_served(home, package, monkeypatch):
    loaded = load("small.yaml", ["track.register_model=false"], {"refit": False}, {})
    result = train.run(loaded, lambda said: None, lambda metrics: None)
    own = result.record.parts["repeated"]
    assert own.weight > 0
    assert own.chosen == "the only one"
    assert result.record.judged.floors["repeated"].weight == own.weight

    found = bundle.load(home / result.folder)
    assert rejudge(found, "cpu").backtest == result.record.test
    assert found.golden is not None
    assert "repeated" in found.build().names
    before, after = (Predictor(each, "cpu") for each in (result.bundle, found))
    assert before.predict(before.example).equals(after.predict(before.example))

    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(package)])
    with pytest.raises(BundleError, match=r"kind 'repeated', but the kinds .*install the package"):
        bundle.load(home / result.folder)
