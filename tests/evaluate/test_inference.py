from dataclasses import replace

import pytest
import torch

from forecaster.datasets.known import Effects, KnownInputs, Term
from forecaster.datasets.scaling import Scaler
from forecaster.evaluate.inference import inference
from forecaster.forecast.bundle import Share
from forecaster.parts import Blend
from forecaster.parts.boosted import Boosted
from forecaster.parts.smoothing import Smoothing
from tests.bundles import unsaved

EFFECTS = Effects((Term(0),), ((2.0, 2.0, 2.0),), (-9.0,), (9.0,), (True,))
KNOWN = KnownInputs(("heat",), Scaler((0.0,), (1.0,)), low=(-9.0,), high=(9.0,), effects=EFFECTS)


def test_a_longer_look_back_takes_more_memory_and_covariates_are_given():
    small, large = inference(unsaved("informer")), inference(unsaved("informer", past=1024))
    assert small["inference_ms"] > 0
    assert small["peak_mib"] + 1 < large["peak_mib"] < 1000
    bundle = unsaved()
    schema = replace(bundle.schema, known=KnownInputs(("warmth",), Scaler((0.0,), (1.0,))))
    model = bundle.config.build_model(schema.task(*bundle.config.window.lengths()))
    assert model.task.covariates == 1
    assert inference(replace(bundle, schema=schema, weights=model.state_dict()))["inference_ms"] > 0


@pytest.mark.parametrize("known", [KnownInputs(), KNOWN])
def test_parts_get_what_is_beside_a_window(known):
    """A base for logarithms, what covariates add for trees on whole values."""
    bundle = unsaved()
    schema = replace(bundle.schema, known=known)
    task = schema.task(*bundle.config.window.lengths())
    part = Smoothing(task, "smoothing", 12, season=6, logs=True)
    if known.shifting:
        part = Boosted(task, "boosted, whole", 12, season=6, moving=1, whole=True)
    shares = Share.of(Blend.alone(part))
    assert inference(replace(bundle, schema=schema, parts=shares))["inference_ms"] > 0


def test_it_leaves_the_threads_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    inference(unsaved())
    assert torch.get_num_threads() == before + 1
    torch.set_num_threads(before)
