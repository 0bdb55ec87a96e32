from dataclasses import fields

from forecaster.datasets.reading import Reading


def test_nothing_said_leaves_all_to_be_found():
    nothing = Reading()
    said = [each.name for each in fields(Reading) if getattr(nothing, each.name)]
    assert (said, nothing.policy) == (["policy"], "error")
