"""The bundle as MLflow keeps it; test_pyfunc_model.py loads it."""

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forecaster.tracking import logged_model
from tests.tracking.toy import command, contents


def test_model_is_logged_without_pickle(logged, client, home):
    model = client.get_logged_model(logged[1])
    folder = home / "mlartifacts" / "forecaster" / "models" / model.model_id / "artifacts"
    endings = {path.suffix for path in folder.rglob("*") if path.is_file()}
    code = {".py", ".css", ".j2", ".typed"}
    assert endings == {"", ".json", ".yaml", ".txt", ".safetensors", ".sha256"} | code
    assert contents(folder / "artifacts" / "bundle") == contents(home / "some bundle")
    description = yaml.safe_load((folder / "MLmodel").read_text())
    assert set(description["flavors"]) == {"python_function"}
    assert "python_model" not in description["flavors"]["python_function"]
    inputs = json.loads(description["signature"]["inputs"])
    types = dict.fromkeys(("time", "load", "wind", "Zürich °C"), "any")  # our reader checks them
    assert {field["name"]: field["type"] for field in inputs} == types


def test_model_belongs_to_its_run(logged, client):
    run, model = logged
    found, tracked = client.get_logged_model(model), client.get_run(run)
    assert (str(found.status), found.name, found.source_run_id) == ("READY", "toy-run-1", run)
    assert found.params == {"seed": "0"}
    assert {"attn": "prob", "data": "toy", "horizon": "6"}.items() <= found.tags.items()
    expected = {"test_mse": 0.25, "column/Zürich _C/mae": 2.0}
    assert {metric.key: metric.value for metric in found.metrics} == expected
    assert tracked.data.metrics.items() >= expected.items()
    assert [output.model_id for output in tracked.outputs.model_outputs] == [model]


@pytest.mark.slow
def test_requirements_cover_what_a_bundle_imports(home, forecaster):
    """Everything that a forecast imports is in the requirements of the logged model."""
    script = f"""
import sys
from importlib.metadata import packages_distributions
from forecaster.forecast.predictor import Predictor
ready = Predictor.load({str(home / "some bundle")!r}, "cpu")
ready.predict(ready.example)
known = packages_distributions()
for name in {{module.partition(".")[0] for module in sys.modules}}:
    for distribution in known.get(name, []):
        print(distribution)
"""
    imported = command("-c", script).stdout.split()
    assert "torch" in imported
    given, waiting, plain = set(), [*logged_model.REQUIREMENTS], {"extra": ""}
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in given:
            given.add(name)
            with suppress(PackageNotFoundError):
                needed = map(Requirement, requires(name) or [])
                own = [each for each in needed if not each.marker or each.marker.evaluate(plain)]
                waiting += [each.name for each in own]
    extra = {"forecaster", "tqdm"}  # torch uses tqdm if it is installed
    assert {*map(canonicalize_name, imported)} - given <= extra
