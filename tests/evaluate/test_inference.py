from dataclasses import replace

import pytest

from forecaster.base.errors import ForecasterError
from forecaster.datasets.known import KnownInputs
from forecaster.datasets.scaling import Scaler
from forecaster.evaluate.inference import inference
from tests.bundles import unsaved


def test_a_longer_look_back_takes_more_memory_and_covariates_are_given():
    small, large = inference(unsaved("informer")), inference(unsaved("informer", past=1024))
    assert small.milliseconds > 0
    assert small.mib + 1 < large.mib < 1000
    bundle = unsaved()
    schema = replace(bundle.schema, known=KnownInputs(("warmth",), Scaler((0.0,), (1.0,))))
    model = bundle.config.build_model(schema.task(*bundle.config.window.lengths()))
    assert model.task.covariates == 1
    assert inference(replace(bundle, schema=schema, weights=model.state_dict())).milliseconds > 0


def test_a_process_that_fails_says_why():
    bundle = unsaved()
    bundle.weights.popitem()
    with pytest.raises(ForecasterError, match=r"measures a forecast raised BundleError: model\."):
        inference(bundle)
