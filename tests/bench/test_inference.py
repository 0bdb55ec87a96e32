import pytest

from forecaster.bench.inference import inference
from forecaster.errors import ForecasterError
from tests.bundles import unsaved


def test_a_larger_model_takes_more_of_both() -> None:
    small, large = inference(unsaved("informer")), inference(unsaved("informer", past=1024))
    assert small.mib is not None
    assert large.mib is not None
    assert 0 < small.milliseconds < large.milliseconds
    assert small.mib + 1 < large.mib < 1000


def test_a_process_that_fails_says_why() -> None:
    bundle = unsaved()
    bundle.weights.popitem()
    with pytest.raises(ForecasterError, match=r"measures a forecast failed: BundleError: model\."):
        inference(bundle)
