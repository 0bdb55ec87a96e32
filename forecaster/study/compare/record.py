"""What a grid found, in typed documents: a cell, a row of cells, and two types compared.

Metrics stand beside the fields of a document by their names in `evaluate.figures.METRICS`.
"""

from pydantic import JsonValue

from forecaster.evaluate.metrics import Verdict
from forecaster.record import Document, Scores, Steps


class CellFacts(Scores):
    """What a cell and its row have in common."""

    data: str
    horizon: int
    regime: str
    linear: bool
    attn: str
    tokens: int
    parameters: int
    budget_parameters: int
    within_budget: bool
    effective: str
    is_full: bool
    steps: int
    windows: int


class CellRecord(CellFacts):
    """One model of a grid: `cell.json` in its folder.

    `floors` are the metrics of each floor on the test windows, `by_step` those of the model by step
    ahead. `together` is how strongly the columns of a series are correlated in the training rows.
    """

    seed: int
    config: dict[str, JsonValue]
    config_digest: str
    data_digest: str
    best_step: int
    validation_mse: float
    by_step: dict[str, Steps]
    floors: dict[str, Scores]
    hardware: str
    commit: str
    command: str
    seconds: float
    together: float | None = None
    mlflow_run_id: str | None = None

    @property
    def best_floor(self) -> tuple[str, float]:
        """The floor with the least test MSE, and that error."""
        return min(
            ((name, floor["mse"] or 0.0) for name, floor in self.floors.items()),
            key=lambda item: item[1],
        )


class Against(Document):
    """The paired MSE difference from a reference over test windows, the mean over `seeds`.

    The module `verdicts` defines the figures; all but the first three are None with too few
    windows.
    """

    difference: float
    seeds: tuple[int, ...]
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    error: float | None = None
    freedom: float | None = None
    p: float | None = None
    holm: float | None = None
    smallest: float | None = None


class Row(CellFacts):
    """The cells of one attention in a group: means over seeds.

    NAME_sd is the standard deviation of an error metric over seeds, None for one. `against` has
    references by name; none for the reference itself, and for a type that amounts to full
    attention.
    """

    seeds: tuple[int, ...]
    best_floor: str
    floor_mse: float
    skill: float | None
    against: dict[str, Against]
