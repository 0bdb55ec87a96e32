"""The parts of a model with their weights and own errors, for every page and command."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forecaster.record import NETWORK, Scores

if TYPE_CHECKING:
    from forecaster.forecast.bundle import Bundle


def made_of(bundle: "Bundle") -> list[dict[str, Any]]:
    """The parts that make the forecast, the heaviest first.

    Each has its `name`, its `kind`, its `weight`, the mean over the steps of the horizon, and its
    own errors, `test_mse` on the test split and `validation_mse` on the windows that weighed the
    part: mean squared errors of scaled values, None if not measured. `chosen` describes the chosen
    options of the part; for the network, it is the attention.
    """
    shares = [(part.name, part.kind, float(part.weights.mean())) for part in bundle.parts]
    test = bundle.record.test
    served = []
    for name, kind, weight in shares or [(NETWORK, NETWORK, 1.0)]:
        weighed = bundle.record.parts.get(name)
        floor = test.floors.get(name) if test else None
        alone: Scores | None = floor
        if name == NETWORK and test:  # which may be the whole model
            alone = test.network if shares else test
        chosen = next((each.chosen for each in (weighed, floor) if each and each.chosen), "")
        served.append(
            {
                "name": name,
                "kind": kind,
                "weight": weight,
                "validation_mse": weighed.validation_mse if weighed else None,
                "test_mse": alone["mse"] if alone else None,
                "chosen": f"attention {bundle.config.attn.name}" if name == NETWORK else chosen,
            }
        )
    return sorted(served, key=lambda part: -part["weight"])


def attention_weight(bundle: "Bundle") -> float:
    """The weight of the network, and thus of its attention; 0 if it has no share."""
    return next((part["weight"] for part in made_of(bundle) if part["name"] == NETWORK), 0.0)


def in_words(shares: Mapping[str, float]) -> str:
    """A text such as "41 % ridge, 504 + 33 % network" about the weights of parts, the heaviest
    first."""
    parts = sorted(shares.items(), key=lambda part: -part[1])
    return " + ".join(f"{100 * weight:.0f} % {name}" for name, weight in parts)
