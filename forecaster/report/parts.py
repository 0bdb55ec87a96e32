"""Charts and captions that the report of runs and the report of a grid share."""

from collections.abc import Mapping
from typing import NamedTuple

from forecaster.evaluate.display import cost_figure
from forecaster.report.page import Chart

EFFECTS = (
    "By how much the served forecast moves with one more of an input, or with a word at every "
    "step: asked from the newest rows when it was trained, on average over the horizon."
)
EXAMPLES = (
    "The windows with the smallest, the median and the largest error of each model, chosen among "
    "all test windows; the best one flatters the model, the worst one does not."
)


class Costs(NamedTuple):
    """A model's cost of a forecast and its error; the memory is 0 if unknown."""

    milliseconds: float
    mse: float
    mib: float


def frontier(models: Mapping[str, Costs]) -> list[str]:
    """The names of the models that no other beats in speed, memory and error at once."""
    return [
        name
        for name, own in models.items()
        if not any(
            its != own and all(b <= a for a, b in zip(own, its, strict=True))
            for its in models.values()
        )
    ]


def frontier_chart(title: str, models: Mapping[str, Costs]) -> Chart:
    """A chart of error against time; a dot's area is memory, and the frontier has a colour."""
    best = frontier(models)
    most = max(own.mib for own in models.values())
    area = f" The area of a dot is memory, the largest {most:.3g} MiB." if most else ""
    what = "speed, memory and error" if most else "speed and error"
    return Chart(
        cost_figure(models, best),
        f"{title}.{area} In colour, those that no other beats in {what} at once: "
        f"{', '.join(best)}. This ignores uncertainty: an error that is not measurably smaller "
        "does not justify a higher cost.",
    )
