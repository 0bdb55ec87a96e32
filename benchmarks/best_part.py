"""The served blend against its best part, on the half of validation that has chosen nothing.

    FORECASTER_DATA=... python benchmarks/best_part.py --data all
    FORECASTER_DATA=... python benchmarks/best_part.py --data ETTh1 epf-NP --seeds 0 1

Each cell of docs/results.md, and every other shipped card, is trained and blended as
`forecaster train` does, and compared with its parts on the calibrating half of validation. Which
part is best there is known only afterwards: no other part is harder to beat. The test split is not
read. A cell whose file exists is not run again; one that fails is named, and the others go on.
"""

import argparse
import json
import sys
import time
from typing import Any

from training import RESULTS, Cell, everything

from forecaster.base import machine
from forecaster.base.errors import ForecasterError, UsageError
from forecaster.base.installation import commit, configs
from forecaster.config.run_config import load
from forecaster.datasets.card import card_names
from forecaster.evaluate import scores
from forecaster.evaluate.figures import plain
from forecaster.evaluate.judge import SharedForecasts
from forecaster.evaluate.problem import find_data, make_problem
from forecaster.run.experiment import train_anew


def shipped() -> list[Cell]:
    """The cells of docs/results.md, and for every other card one with its own configuration."""
    cells = everything()
    own = {path.stem for path in configs().glob("*.yaml")}
    others = sorted(set(card_names()) - {cell.data for cell in cells})
    return cells + [Cell(card if card in own else "default", card, 336) for card in others]


def measure(cell: Cell, seed: int) -> dict[str, Any]:
    """The row of a cell. Raises UsageError if validation is too short to have two halves."""
    flags = {"data": cell.data, "horizon": cell.horizon, "attn": cell.attn, "seed": seed}
    problem = make_problem(*find_data(load(cell.config, cell.sets, flags), say), say)
    if problem.uncalibrated:
        raise UsageError(f"no calibrating half: {problem.uncalibrated}")
    config = problem.config
    device, begun = machine.device(config.device), time.monotonic()
    tried, served = train_anew(problem, device, say)
    windows = problem.calibrating(device)
    shared = SharedForecasts(served, tried)
    model, *each = scores([shared.path, *map(shared.of, tried)], windows)
    found = {part.name: score for part, score in zip(tried, each, strict=True)}
    best = min(found, key=lambda name: found[name].mse)
    low, high = model.against(found[best])
    return {
        "kind": "best-part",
        "command": f"python benchmarks/best_part.py --data {cell.data} --seeds {seed}",
        "config": cell.label,
        "data": config.data.name,
        "features": config.data.features,
        "past": config.window.past,
        "horizon": config.window.horizon,
        "attn": config.attn.name,
        "seed": seed,
        "data_digest": problem.digest,
        "commit": commit(),
        "hardware": machine.hardware(device),
        "seconds": round(time.monotonic() - begun, 1),
        "windows": model.windows,
        "every": windows.every,
        "mse": model.mse,
        "best": best,
        "paired_low": plain(low),
        "paired_high": plain(high),
        "parts": {
            name: {"mse": score.mse, "weight": served.shares.get(name, 0.0)}
            for name, score in found.items()
        },
    }


def say(sentence: str) -> None:
    print(f"  {sentence}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["ETTh1"], help="cards, or all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    cells = [cell for cell in shipped() if {cell.data, "all"} & set(arguments.data)]
    unknown = set(arguments.data) - {cell.data for cell in cells} - {"all"}
    if unknown or not cells:
        parser.error(f"no card {', '.join(sorted(unknown))}; there are {', '.join(card_names())}")
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for cell, seed in ((cell, seed) for seed in arguments.seeds for cell in cells):
        file = RESULTS / cell.file(seed).name.replace("served", "best-part", 1)
        if file.exists():
            continue
        named = f"{cell.label}, {cell.data}, T = {cell.horizon}, seed {seed}"
        print(named, file=sys.stderr)
        try:
            file.write_text(json.dumps(measure(cell, seed), indent=1) + "\n")
        except ForecasterError as error:
            failed.append(f"{named}: {error}")
    if failed:
        sys.exit("\n".join([f"{len(failed)} cells failed:", *failed]))


if __name__ == "__main__":
    main()
