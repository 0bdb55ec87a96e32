from dataclasses import replace

import torch

from forecaster.datasets.known import KnownInputs
from forecaster.datasets.scaling import Scaler
from forecaster.evaluate.inference import inference
from tests.bundles import unsaved


def test_a_longer_look_back_takes_more_memory_and_covariates_are_given():
    small, large = inference(unsaved("informer")), inference(unsaved("informer", past=1024))
    assert small["inference_ms"] > 0
    assert small["peak_mib"] + 1 < large["peak_mib"] < 1000
    bundle = unsaved()
    schema = replace(bundle.schema, known=KnownInputs(("warmth",), Scaler((0.0,), (1.0,))))
    model = bundle.config.build_model(schema.task(*bundle.config.window.lengths()))
    assert model.task.covariates == 1
    assert inference(replace(bundle, schema=schema, weights=model.state_dict()))["inference_ms"] > 0


def test_it_leaves_the_threads_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    inference(unsaved())
    assert torch.get_num_threads() == before + 1
    torch.set_num_threads(before)
