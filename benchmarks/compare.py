"""Keep the finished cells of a grid as results: one small JSON each, and one with the verdicts.

    forecaster compare --grid small
    python benchmarks/compare.py runs/grids/small

The tables of docs/comparison.md are rendered from these files alone (benchmarks/render.py).
"""

import argparse
import json
from pathlib import Path
from typing import Any

from forecaster.evaluate.figures import Cost, shown, whole
from forecaster.study import compare

RESULTS = Path(__file__).parent / "results"
FACTS = (
    "attn", "data", "horizon", "regime", "linear", "seed", "config_digest", "data_digest", "tokens",
    "parameters", "budget_parameters", "within_budget", "effective", "is_full", "steps",
    "best_step",
    "validation_mse", "windows", "floors", "command", "hardware", "commit",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("grid", type=Path, help="the folder of the grid")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the results")
    arguments = parser.parse_args()
    cells = compare.finished(arguments.grid)
    name = arguments.grid.resolve().name
    for cell in cells:
        facts = cell.facts.to_dict()
        kept = {"kind": "compare", "grid": name, **{key: facts[key] for key in FACTS}}
        kept |= {each.name: facts.get(each.name) for each in [*whole(), *shown(Cost)]}
        kept["together"] = facts["together"]
        _write(arguments.output / f"compare-{name}-{cell.folder.name}.json", kept)
    said = {key: getattr(cells[0].facts, key) for key in ("command", "hardware", "commit")}
    rows = [row.to_dict() for row in compare.table.rows(cells)]
    verdicts = {"kind": "comparison", "grid": name, **said, "rows": rows}
    _write(arguments.output / f"comparison-{name}.json", verdicts)
    print(f"{len(cells)} cells and their verdicts are kept in {arguments.output}")


def _write(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
