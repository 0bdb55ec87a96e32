"""How messages spell options and numbers."""

from forecaster.base.spelling import rounded, spelled
from forecaster.estimator import _as_parameter


def test_messages_spell_an_option_as_the_face_does():
    said = {
        ("freq", None): ("--freq", "freq"),
        ("horizon", 12): ("--horizon 12", "horizon=12"),
        ("id", ("region", "state")): ("--id region,state", "id=['region', 'state']"),
        ("train.refit", True): ("--set train.refit=true", "options={'train.refit': True}"),
        ("stamps", "day-first"): ("--stamps day-first", "options={'data.stamps': 'day-first'}"),
        ("decimal", None): ("--decimal", "options['data.decimal']"),
        ("target", "Last MW"): ("--target 'Last MW'", "target='Last MW'"),
        ("attn", "prob"): ("--attn prob", "attention='prob'"),
    }
    for (name, value), expected in said.items():
        value = list(value) if isinstance(value, tuple) else value
        assert (spelled(name, value), _as_parameter(name, value)) == expected


def test_numbers_are_rounded_as_people_write_them():
    said = {3534.2: "3,534", 1000.0: "1,000", 0.035342: "0.0353", 2.5: "2.5", -12.345: "-12.3",
            0.0: "0", 999.96: "1,000", 7: "7", 1.234e-7: "1.23e-07", 1.5e16: "1.5e+16"}  # fmt: skip
    assert {value: rounded(value) for value in said} == said
    assert rounded(12.345, 4, "+") == "+12.35"
