"""How messages spell options."""

from forecaster.base.spelling import option, spelled
from forecaster.estimator import _as_parameter


def test_a_flag_is_typed_with_hyphens():
    assert option("past_covariates") == "--past-covariates"


def test_messages_spell_an_option_as_the_face_does():
    said = ("freq", None), ("horizon", 12), ("id", ["region", "state"]), ("train.batch", 8)
    said += (("train.checkpointing", True), ("stamps", "day-first"), ("decimal", None))
    assert [spelled(*each) for each in said] == [
        "--freq", "--horizon 12", "--id region,state", "--set train.batch=8",
        "--set train.checkpointing=true", "--stamps day-first", "--decimal",
    ]  # fmt: skip
    assert [_as_parameter(*each) for each in said] == [
        "freq", "horizon=12", "id=['region', 'state']", "options={'train.batch': 8}",
        "options={'train.checkpointing': True}", "options={'data.stamps': 'day-first'}",
        "options['data.decimal']",
    ]  # fmt: skip
    assert _as_parameter("attn", "prob") == "attention='prob'"
