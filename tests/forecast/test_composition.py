from forecaster.forecast import composition
from tests.bundles import blended, unsaved


def test_the_network_alone_is_the_whole() -> None:
    (part,) = composition.made_of(unsaved("informer"))
    assert part.to_dict() == {
        "name": "network", "kind": "network", "weight": 1.0, "validation_mse": None,
        "test_mse": 0.1 + 0.2, "chosen": "attention prob",
    }  # fmt: skip
    assert composition.attention_weight(unsaved()) == 1


def test_parts_stand_by_their_weight() -> None:
    found = blended(unsaved("informer"), network=0.25, cycle=0.75)
    cycle, network = composition.made_of(found)
    assert (cycle.name, cycle.kind, cycle.weight) == ("cycle mean", "cycle-mean", 0.75)
    assert (cycle.test_mse, cycle.validation_mse) == (0.75, 0.125)
    assert cycle.chosen == "k = 2 cycles of 4 steps"
    assert (network.kind, network.weight, network.test_mse) == ("network", 0.25, 0.5)
    assert composition.attention_weight(found) == 0.25
    parts = [part.to_dict() for part in composition.made_of(found)]
    assert composition.in_words(parts) == "75 % cycle mean + 25 % network (attention prob)"
    many = [{"name": f"ridge, {i}", "weight": 0.125, "chosen": ""} for i in range(8)]
    assert composition.in_words(many).endswith("+ 12 % ridge, 4 + 38 % 3 others")


def test_a_network_without_a_share_makes_nothing() -> None:
    found = blended(unsaved("informer"), cycle=0.5, last=0.5)
    assert composition.attention_weight(found) == 0
    assert "network" not in [part.name for part in composition.made_of(found)]
