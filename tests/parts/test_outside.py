"""A part from a small package by another author, installed beside ours."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forecaster import bundle, experiment, parts
from forecaster.attention.plugins import allowing
from forecaster.config import load
from forecaster.errors import BundleError
from forecaster.judge import rejudge
from forecaster.predict import Predictor
from tests import small
from tests.parts import folds

MODULE = '''
import torch
from forecaster.parts import Part


class Shifted(Part):
    """The last `cycle` values, moved by what they were wrong by in training."""

    kind = "shifted"

    def __init__(self, task, name, past, chosen="", *, cycle):
        super().__init__(task, name, past, chosen)
        self.cycle = cycle
        self.register_buffer("bias", torch.zeros(task.horizon, len(task.targets)))

    @property
    def settings(self):
        return {**super().settings, "cycle": self.cycle}

    @classmethod
    def fit(cls, fold):
        part = cls(fold.task, "shifted", fold.seasons[0], "the only one", cycle=fold.seasons[0])
        return [part.refit(fold)]

    def refit(self, fold):
        part = type(self)(fold.task, **self.settings)
        batch = fold.train.batch(torch.arange(len(fold.train)))
        part.bias.copy_((batch.target - part(*batch.inputs)).mean(dim=0))
        return part

    def forward(self, past, past_known, future_known, observed=None):
        values, _ = self.own(past, observed)
        repeats = -(-self.task.horizon // self.cycle)
        ahead = values.repeat(1, 1, repeats)[..., : self.task.horizon]
        return ahead.transpose(1, 2) + self.bias
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "site"
    about = place / "theirs-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "their_parts.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    entries = "[forecaster.parts]\nshifted = their_parts:Shifted\nridge = their_parts:Shifted\n"
    (about / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(place)
    yield place
    monkeypatch.undo()
    sys.modules.pop("their_parts", None)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    own = tmp_path / "home"
    own.mkdir()
    with small.at_home(own) as folder:
        yield folder


@pytest.mark.usefixtures("package")
def test_it_is_fitted_beside_ours_and_replaces_none() -> None:
    fold = folds.fold(folds.series())
    found = parts.fit_parts(fold)
    names = [part.name for part in found]
    assert names.count("shifted") == 1
    assert parts.kind_of("ridge") is parts.Ridge
    weights, errors = parts.weigh(found, fold.choose)
    place = names.index("shifted")
    assert weights[place].min() > 0, "a family of its own"
    assert float(errors[place]) == pytest.approx(folds.error(found[place], fold.choose), rel=1e-4)


@pytest.mark.usefixtures("package")
def test_a_service_imports_only_what_its_settings_name() -> None:
    with allowing(["other"], parts.GROUP):
        with pytest.raises(BundleError, match="allow it with FORECASTER_PARTS=shifted"):
            parts.kind_of("shifted")
        with pytest.raises(BundleError, match=r"here are training-mean, .*, shifted; install"):
            parts.kind_of("oracle")
        assert "their_parts" not in sys.modules, "what is kept out is not imported"
        assert parts.kind_of("ridge") is parts.Ridge
        with allowing(["shifted"]), pytest.raises(BundleError, match="allow it"):
            parts.kind_of("shifted")  # an attention may have that name
        with allowing(["shifted"], parts.GROUP):
            assert parts.kind_of("shifted").kind == "shifted"
    assert parts.kind_of("shifted").kind == "shifted"


def test_it_is_weighed_judged_saved_and_served(
    home: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load("small.yaml", ["track.register_model=false"], {"refit": False}, {})
    result = experiment.run(loaded, lambda said: None, lambda metrics: None)
    own: dict[str, Any] = result.record.to_dict()["parts"]["shifted"]
    assert own["weight"] > 0
    assert own["chosen"] == "the only one"
    assert result.record.to_dict()["test"]["floors"]["shifted"]["weight"] == own["weight"]

    found = bundle.load(home / result.folder)
    assert rejudge(found, "cpu").to_dict() == result.record.to_dict()["test"]
    forecaster = Predictor(found, "cpu")
    before = forecaster.predict(forecaster.example)
    assert found.golden is not None
    assert "shifted" in found.build().names
    assert before.equals(Predictor(result.bundle, "cpu").predict(forecaster.example))

    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(package)])
    with pytest.raises(BundleError, match=r"kind 'shifted', but the kinds .*install the package"):
        bundle.load(home / result.folder)
