"""Made-up tables."""

from typing import Any

from forecaster.compare.evidence import Table

FIGURES = {"inference_ms": 1.5, "peak_mib": 30.0}


def row(mse: float, seconds: float, none: str = "", static: str = "", full: str = "", **also: Any):
    """The row of a type, with its verdicts."""
    said = {"none": none, "static": static, "full": full}
    verdicts = {name: verdict for name, verdict in said.items() if verdict}
    figures = {"mse": mse, "train_seconds": seconds, **FIGURES}
    return {**figures, "full": False, "budget": True, "verdicts": verdicts} | also


CONTROLS = {"none": row(0.5, 10.0), "static": row(0.45, 9.0)}


def table(rows: dict[str, Any], /, **changes: Any) -> Table:
    """A table with both controls, of the grid `known` unless another is given."""
    values = {
        "grid": "known", "data": "epf-NP", "horizon": 24, "regime": "encoder", "linear": True,
        "tokens": 168, "seeds": 3, "floor": "ridge", "floor_mse": 0.4, "together": None,
        "smallest": {"none": 0.02}, "rows": {**rows, **CONTROLS},
    }  # fmt: skip
    return Table(**(values | changes))
