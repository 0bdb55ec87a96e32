import importlib.metadata
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forecaster.base import extras
from forecaster.base.errors import UnavailableError
from forecaster.forecast.predictor import Predictor
from tests.lacking import lacking
from tests.service.toy import make_bundle

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


OF_OTHERS = {"httptools": "uvicorn", "torchmetrics": "lightning"}
OF_OTHERS |= dict.fromkeys(("sqlalchemy", "alembic"), "mlflow")
"""Packages that are installed with one of ours."""
owners = cache(importlib.metadata.packages_distributions)


@pytest.mark.parametrize("module", extras.BRINGS)
def test_the_extra_brings_it_and_the_base_does_not(module):
    names = {canonicalize_name(OF_OTHERS.get(name.lower(), name)) for name in owners()[module]}
    extra = DECLARED["optional-dependencies"][extras.BRINGS[module]]
    for declared, there in ((extra, True), (DECLARED["dependencies"], False)):
        packages = {canonicalize_name(Requirement(each).name) for each in declared}
        assert bool(names & packages) is there


def test_what_is_missing_is_told_with_its_extra():
    lacks = ModuleNotFoundError("No module named 'optuna.samplers'", name="optuna.samplers")
    words = r"^a tea needs optuna: .* 'attention-forecaster\[tune\]'$"
    with pytest.raises(UnavailableError, match=words), extras.needed("a tea"):
        raise lacks
    with pytest.raises(ModuleNotFoundError, match="nobody"), extras.needed("a tea"):
        import nobody_has_this  # noqa: F401
    assert extras.told(ImportError("cannot import name 'x' from 'optuna'", name="optuna")) is None


def test_what_is_missing_is_found_without_an_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for module in ("nobody_has_this", "ray"):
        with pytest.raises(UnavailableError, match=f"^a tea needs {module}"):
            extras.check(module, "a tea")
    extras.check("antigravity", "a tea")
    assert "antigravity" not in sys.modules


def test_a_client_needs_no_torch():
    program = "import forecaster, forecaster.client; print(forecaster.client.Client.__name__)"
    done = lacking(program, without={"torch", *extras.BRINGS})
    assert (done.returncode, done.stdout) == (0, "Client\n"), done.stderr


COMMAND = "import sys; sys.argv[:1] = ['forecaster']; from forecaster.cli import main; main()"


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "serve"), ("predict", "registry"), ("train", "train")]
)
def test_the_base_says_what_it_lacks(command, extra, tmp_path):
    options = ["--attn", "prob"] if command == "train" else ["--model", "x"]
    done = lacking(COMMAND, command, *options, without=extras.BRINGS, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    words = rf"error: .* needs \w+: pip install 'attention-forecaster\[{extra}\]'"
    assert re.fullmatch(words, done.stderr.splitlines()[-1]), done.stderr


def test_the_base_forecasts(tmp_path):
    forecaster = Predictor(make_bundle(tmp_path / "bundle"), "cpu")
    forecaster.example.to_csv(tmp_path / "x.csv", index=False)
    arguments = ("predict", "--model", "bundle", "--input", "x.csv", "--output", "ahead.parquet")
    done = lacking(COMMAND, *arguments, without=extras.BRINGS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ahead = pd.read_parquet(tmp_path / "ahead.parquet")
    assert ahead.shape == forecaster.predict(forecaster.example).shape
