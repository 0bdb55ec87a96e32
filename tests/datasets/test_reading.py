from dataclasses import fields

from forecaster.datasets.reading import Reading


def test_nothing_said_leaves_all_to_be_found():
    assert not any(getattr(Reading(), each.name) for each in fields(Reading) if each.name != "policy")
    assert Reading().policy == "error"
