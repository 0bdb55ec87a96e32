from forecaster.forecast import composition
from tests.bundles import blended, unsaved


def test_parts_stand_by_their_weight() -> None:
    found = blended(unsaved("informer"), network=0.25, cycle=0.75)
    parts = cycle, network = composition.made_of(found)
    assert cycle == {
        "name": "cycle mean", "kind": "cycle-mean", "weight": 0.75, "validation_mse": 0.125,
        "test_mse": 0.75, "chosen": "k = 2 cycles of 4 steps",
    }  # fmt: skip
    assert (network["kind"], network["weight"], network["test_mse"]) == ("network", 0.25, 0.5)
    shares = {part["name"]: part["weight"] for part in reversed(parts)}
    assert composition.in_words(shares) == "75 % cycle mean + 25 % network"
    without = blended(unsaved("informer"), cycle=0.5, last=0.5)
    for bundle, weight in ((unsaved(), 1), (found, 0.25), (without, 0)):
        assert composition.attention_weight(bundle) == weight
