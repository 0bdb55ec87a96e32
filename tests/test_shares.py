from dataclasses import replace

from forecaster import shares
from forecaster.record import Weighed
from tests.bundles import blended, unsaved


def test_the_network_alone_is_the_whole() -> None:
    (part,) = shares.made_of(unsaved("informer"))
    assert part.to_dict() == {
        "name": "network", "kind": "network", "weight": 1.0, "validation_mse": None,
        "test_mse": 0.1 + 0.2, "chosen": "attention prob",
    }  # fmt: skip
    assert shares.attention_weight(unsaved()) == 1


def test_parts_stand_by_their_weight() -> None:
    found = blended(unsaved("informer"), network=0.25, cycle=0.75)
    cycle, network = shares.made_of(found)
    assert (cycle.name, cycle.kind, cycle.weight) == ("cycle mean", "cycle-mean", 0.75)
    assert (cycle.test_mse, cycle.validation_mse) == (0.75, 0.125)
    assert cycle.chosen == "k = 2 cycles of 4 steps"
    assert (network.kind, network.weight, network.test_mse) == ("network", 0.25, 0.5)
    assert shares.attention_weight(found) == 0.25
    parts = [part.to_dict() for part in shares.made_of(found)]
    assert shares.in_words(parts) == "75 % cycle mean + 25 % network (attention prob)"
    many = [{"name": f"ridge, {i}", "weight": 0.125, "chosen": ""} for i in range(8)]
    assert shares.in_words(many).endswith("+ 12 % ridge, 4 + 38 % 3 others")
    assert [part.name for part in shares.tried(found)][2:] == ["last value"]


def test_a_network_without_a_share_was_tried() -> None:
    found = blended(unsaved("informer"), cycle=0.5, last=0.5)
    assert shares.attention_weight(found) == 0
    assert "network" not in [part.name for part in shares.made_of(found)]
    (network,) = shares.tried(found)[2:]
    assert (network.name, network.weight, network.test_mse) == ("network", 0, 0.5)


def test_the_description_is_markdown() -> None:
    found = blended(unsaved("informer"), network=0.25, cycle=0.75)
    other = Weighed(weight=0, validation_mse=2.0, chosen="")
    parts = {**found.record.parts, "a | b": other}
    found = replace(found, record=found.record.model_copy(update={"parts": parts}))
    text = shares.in_markdown(shares.HEADS, shares.rows(found), (1, 2, 3))
    assert text.replace("&emsp;", "").splitlines() == [
        "| part | weight | validation MSE | test MSE | chosen |",
        "| --- | ---: | ---: | ---: | --- |",
        "| cycle mean | 75.0% | 0.1250 | 0.7500 | k = 2 cycles of 4 steps |",
        "| network | 25.0% | 0.1250 | 0.5000 | attention prob |",
        "| last value | none | 0.1250 |  |  |",
        "| a \\| b | none | 2.0000 |  |  |",
    ]
