"""The gradients are tested by logsparse, lsh, strided and fixed, with either kind of operators."""

from forecaster.attention.common import tiles


def test_this_torch_has_the_private_operator() -> None:
    assert tiles._FORWARD is not None
