"""Trials behind configs/default.yaml: one change at a time, judged on validation alone.

    FORECASTER_DATA=... python benchmarks/recipe.py --data ETTh1 --horizon 336

The test split is not read. Every validation window is scored; one JSON per trial.
"""

import argparse
import json
import sys

from training import RESULTS, digest

from forecaster.bench import hardware
from forecaster.config import load
from forecaster.evaluate import score
from forecaster.experiment import commit, find_data, forecast_with, pose
from forecaster.train import fit

VARIANTS: dict[str, list[str]] = {
    "default": [],
    "attention full": ["attn=full"],
    "attention none": ["attn=none"],
    "attention mean": ["attn=mean"],
    "a token is a day": ["model.parts=1"],
    "a token is half a day": ["model.parts=2"],
    "no linear path": ["model.linear=false", "train.lr_of={}"],
    "no level shrink": ["model.shrink=false"],
    "centred on the last value": ["model.centre=last"],
    "centred on the window mean": ["model.centre=window"],
    "14 cycles": ["window.past=14 cycles"],
    "28 cycles": ["window.past=28 cycles"],
    "width 32, 4 heads": ["model.width=32", "model.heads=4", "model.feed_forward=64"],
    "two encoder layers": ["model.encoder_layers=2"],
    "linear path at 1e-4": ["train.lr_of={linear: 0.0001}"],
    "mean absolute error as loss": ["train.loss=mae"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ETTh1")
    parser.add_argument("--horizon", type=int, default=336)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for variant in arguments.only:
        trial(variant, arguments.data, arguments.horizon, arguments.seed)


def trial(variant: str, data: str, horizon: int, seed: int) -> None:
    """Train one variant and keep its validation error."""
    slug = variant.replace(" ", "-").replace(",", "")
    file = RESULTS / f"recipe-{data}-{horizon}-{slug}-s{seed}.json"
    if file.exists():
        return
    sets = VARIANTS[variant]
    loaded = load("default", sets, {"data": data, "horizon": horizon, "seed": seed})
    problem = pose(*find_data(loaded, lambda text: None))
    model, validation = problem.build_model(), problem.validation("cpu")
    config = problem.config
    fitted = fit(model, problem.training("cpu"), validation, config.train, device="cpu", seed=seed)
    result = score(forecast_with(model.eval()), validation)
    row = {
        "kind": "recipe",
        "command": f"python benchmarks/recipe.py --data {data} --horizon {horizon} --seed {seed} "
        f"--only '{variant}'",
        "variant": variant,
        "changes": sets,
        "data": data,
        "horizon": horizon,
        "past": config.window.past,
        "seed": seed,
        "validation_windows": result.windows,
        "validation_mse": result.mse,
        "validation_mae": result.mae,
        "best_epoch": fitted.best_epoch,
        "parameters": sum(p.numel() for p in model.parameters()),
        "config_digest": digest(config.to_dict()),
        "data_digest": problem.digest,
        "commit": commit(),
        "hardware": hardware(),
    }
    file.write_text(json.dumps(row, indent=1) + "\n")
    print(f"{variant}: {result.mse:.4f} / {result.mae:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
