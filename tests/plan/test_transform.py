import numpy as np
import torch

from forecaster.datasets.known import Effects, KnownInputs, Term
from forecaster.datasets.reading import Reading
from forecaster.datasets.scaling import Scaler
from forecaster.plan.schema import Schema
from forecaster.plan.transform import Transform, scaled_limits

EFFECTS = Effects((Term(0),), ((2.0,),), (-9.0,), (9.0,), (True,))
KNOWN = KnownInputs(("heat",), Scaler([0.0], [1.0]), low=(-9.0,), high=(9.0,), effects=EFFECTS)


def schema(**changes):
    reading = Reading(time="time", freq="h", seasons=(24,))
    return Schema(("a", "b"), ("b",), reading, Scaler([1.0, 10.0], [2.0, 5.0]), **changes)


def test_a_history_is_scaled_less_the_effects_which_the_forecast_gets_back():
    both = schema(known=KNOWN)
    transform = Transform(both, past=3, horizon=2)
    history = np.array([[[1.0, 10], [3, np.nan], [5, 20]]])
    known = np.zeros((1, 5, both.calendar_width + 1), dtype=np.float32)
    known[0, :, -1] = [0, 1, 0.5, 3, -1]
    past, observed, ahead = transform(torch.from_numpy(history), torch.from_numpy(known))
    assert past.dtype == torch.float32
    assert past.tolist() == [[[0, 0], [1, 0], [2, 1]]], "2 - 2 * 0.5"
    assert observed.tolist() == [[[True, True], [True, False], [True, True]]]
    assert ahead[:, 3:].tolist() == [[[6], [-2]]]
    scaled = torch.tensor([[[[1.0]], [[0.0]]]]).double()
    assert transform.units(scaled, None, None).flatten().tolist() == [15, 10]


def test_a_series_of_a_panel_brings_its_own_scale():
    transform = Transform(schema(items=("x", "y")), past=1, horizon=1)
    history, known = torch.tensor([[[4.0, 8.0]]]).double(), torch.zeros(1, 2, 4)
    mean, std = torch.tensor([[[2.0, 4.0]]]).double(), torch.tensor([[[1.0, 2.0]]]).double()
    past, _, ahead = transform(history, known, mean, std)
    assert (past.tolist(), ahead) == ([[[2, 2]]], None)
    assert transform.units(torch.ones(1, 1, 1, 1), mean, std).item() == 6


def test_limits_are_scaled_as_their_targets_are():
    assert scaled_limits(schema()) is None
    assert scaled_limits(schema(limits=((0.0, None),))).tolist() == [[-2, np.inf]]
