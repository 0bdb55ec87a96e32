"""Generated data sets are reproducible, with separate samples and the documented randomness."""

import numpy as np
import pytest
import torch

from forecaster.base.errors import DataError
from forecaster.config.run_config import load
from forecaster.datasets.card import is_generated
from forecaster.datasets.generated import generate, phase, recall
from forecaster.plan.data import open_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits


def split(series):
    """The samples (n, steps, columns)."""
    return series.values.reshape(len(series.items), -1, len(series.columns))


@pytest.mark.parametrize("hops", [1, 2])
def test_each_answer_is_the_value_that_stood_beside_the_motif_asked_for(hops):
    for sample in split(recall("x", 40, hops, pairs=4, samples=(20, 2, 2)).series):
        steps, answers = sample[:40], sample[40:, 0]
        value, event, question = steps[:, :3].T
        signs, following = steps[:, 3:9], steps[:, 9:]
        held = np.flatnonzero((event == 1) & (question == 0))
        asked = np.flatnonzero(question == 1)
        assert asked.tolist() == [36, 37, 38, 39]
        assert len(held) == 4 * hops
        for ask, answer in zip(asked, answers, strict=True):
            motif = signs[ask]
            for _ in range(hops - 1):
                (place,) = (at for at in held if (signs[at] == motif).all())
                motif = following[place]
            (place,) = (at for at in held if (signs[at] == motif).all())
            assert value[place] == answer
            assert value[ask] == 0


@pytest.mark.parametrize("drift", ["fixed", "chirp", "wander"])
def test_a_wave_is_a_function_of_the_phase_that_is_told(drift):
    for sample in split(phase("x", 64, drift, noise=0, samples=(300, 2, 2)).series)[:50]:
        value, question, cos, sin = sample.T
        assert np.flatnonzero(question).tolist() == list(range(48, 64))
        assert not value[48:64].any()
        assert not np.any(sample[64:, 1:])
        wave = np.exp(1j * np.outer(np.arctan2(sin, cos)[:64], [1, 2, 3]))
        seen = np.hstack([wave.real, wave.imag])
        fitted, *_ = np.linalg.lstsq(seen[:48].astype(float), value[:48].astype(float))
        np.testing.assert_allclose(seen[48:] @ fitted, value[64:], atol=1e-3)
    answers = split(phase("x", 64, drift, samples=(2000, 1, 1)).series)[:, 64:, 0]
    assert answers.mean() == pytest.approx(0, abs=0.05), "chance is an error of one"
    assert np.square(answers).mean() == pytest.approx(1, abs=0.06)


def test_every_sample_is_one_window_of_one_part_and_windows_share_nothing():
    dataset = recall("x", 40, pairs=4, samples=(30, 9, 200))
    asked = load("default", ["window.past=auto", "window.horizon=4"], {})
    splits = make_splits(make_plan(asked.config, dataset))
    assert splits.plan.config.window.past == 40
    parts = [getattr(splits, part)("cpu") for part in ("training", "validation", "test")]
    assert [len(windows) for windows in parts] == [30, 9, 200]
    assert len(splits.stopping("cpu")) >= 1, "half of validation has windows, too"
    batches = [windows.batch(torch.arange(len(windows))) for windows in parts]
    seen = torch.cat([torch.cat([b.past[..., :1], b.target], 1) for b in batches]).numpy()
    np.testing.assert_array_equal(seen, split(dataset.series)[..., :1])  # no scaling
    items = torch.cat([batch.item for batch in batches])
    assert items.tolist() == list(range(239))
    ends = [windows.locate(torch.arange(len(windows)))[2].diff().unique() for windows in parts]
    assert all(apart.tolist() == [1] for apart in ends), "each is a point in time of its own"


def test_names_tell_the_length_the_hops_and_the_pairs():
    assert generate("recall-64").past == 64
    assert len(generate("recall-64-2hops").series.columns) == 15
    assert generate("recall-128-64pairs").digest == recall("x", 128, pairs=64).digest
    assert generate("phase-64-wander").digest == phase("x", 64, "wander").digest
    assert is_generated("recall-4096")
    wrong = ("recall", "recall-0", "recall-64-3hops", "recall-64.csv", "phase-64", "phase-64-2hops")
    assert not any(map(is_generated, wrong))
    config = load("default", [], {"data": "recall-64"}).config
    assert open_data(config.data).digest == generate("recall-64").digest
    for short in ("recall-63", "phase-63-chirp"):
        with pytest.raises(DataError, match="at least 64 steps"):
            generate(short)
    with pytest.raises(DataError, match="at least 128 steps"):
        generate("recall-127-64pairs")
