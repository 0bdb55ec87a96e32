"""How messages spell options."""

from forecaster.base.spelling import spelled
from forecaster.estimator import _as_parameter


def test_messages_spell_an_option_as_the_face_does():
    said = {
        ("freq", None): ("--freq", "freq"),
        ("horizon", 12): ("--horizon 12", "horizon=12"),
        ("id", ("region", "state")): ("--id region,state", "id=['region', 'state']"),
        ("train.refit", True): ("--set train.refit=true", "options={'train.refit': True}"),
        ("stamps", "day-first"): ("--stamps day-first", "options={'data.stamps': 'day-first'}"),
        ("decimal", None): ("--decimal", "options['data.decimal']"),
        ("attn", "prob"): ("--attn prob", "attention='prob'"),
    }
    for (name, value), expected in said.items():
        value = list(value) if isinstance(value, tuple) else value
        assert (spelled(name, value), _as_parameter(name, value)) == expected
