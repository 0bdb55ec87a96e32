"""Trials behind configs/*.yaml, evaluated on validation alone.

    FORECASTER_DATA=... python benchmarks/recipe.py --data ETTh1 --horizon 336
    FORECASTER_DATA=... python benchmarks/recipe.py --data ETTm1 --set train.stride=8

Without --set, the script tries one change after the other to the data set's configuration; with it,
one trial with these values instead of those in configs/default.yaml. The test split is not read.
Training stops on the first half of validation, as in a run; every validation window is scored. Each
trial writes one JSON file.
"""

import argparse
import json
import re
import shlex
import sys

from training import RESULTS, digest

from forecaster.base.installation import commit
from forecaster.base.machine import hardware
from forecaster.config.run_config import load
from forecaster.evaluate.figures import measure
from forecaster.evaluate.judge import errors_of
from forecaster.evaluate.metrics import forecast_with, score
from forecaster.model.base import parameters
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.train.fit import fit

VARIANTS: dict[str, list[str]] = {
    "default": [],
    "attention full": ["attn=full"],
    "attention none": ["attn=none"],
    "attention mean": ["attn=mean"],
    "a token is a day": ["model.parts=1"],
    "a token is half a day": ["model.parts=2"],
    "a token is a step": ["model.tokens=point"],
    "a token is a series": ["model.tokens=series", "model.output=written"],
    "columns mixed": ["model.channels=mixed"],
    "a decoder layer": ["model.decoder_layers=1"],
    "written, not averaged": ["model.decoder_layers=1", "model.output=written"],
    "written and averaged": ["model.decoder_layers=1", "model.output=both"],
    "calendar known": ["model.calendar=true"],
    "prior cycle": ["model.prior=true"],
    "no linear path": ["model.linear=false", "train.lr_of={}"],
    "no level shrink": ["model.shrink=false"],
    "centred on the last value": ["model.centre=last"],
    "centred on the window mean": ["model.centre=window"],
    "not normalised": ["model.normalise=none"],
    "14 cycles": ["window.past=14 cycles"],
    "28 cycles": ["window.past=28 cycles"],
    "width 32, 4 heads": ["model.width=32", "model.heads=4", "model.feed_forward=64"],
    "two encoder layers": ["model.encoder_layers=2"],
    "linear path at 1e-4": ["train.lr_of={linear: 0.0001}"],
    "no tolerance": ["train.tolerance=0"],
    "a tolerance of 2 %": ["train.tolerance=0.02"],
    "mean absolute error as loss": ["train.loss=mae"],
    "Huber loss": ["train.loss=huber"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ETTh1")
    parser.add_argument("--horizon", type=int, default=336)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    where = (arguments.data, arguments.horizon, arguments.seed)
    if arguments.set:
        label = ", ".join(arguments.set)
        trial(label, "default", arguments.set, shlex.join(["--set", *arguments.set]), *where)
        return
    for variant in arguments.only:
        trial(variant, None, VARIANTS[variant], f"--only {shlex.quote(variant)}", *where)


def trial(
    label: str, start: str | None, sets: list[str], flags: str, data: str, horizon: int, seed: int
) -> None:
    """Train one variant of the file `start` and keep its validation error."""
    slug = re.sub(r"[^A-Za-z0-9.=]+", "-", label.replace("%", "percent")).strip("-")
    file = RESULTS / f"recipe-{data}-{horizon}-{slug}-s{seed}.json"
    if file.exists():
        return
    loaded = load(start, sets, {"data": data, "horizon": horizon, "seed": seed})
    splits = make_splits(make_plan(*find_data(loaded, lambda text: None)))
    model, config = splits.build_model(), splits.plan.config
    train, stopping = splits.training("cpu"), splits.stopping("cpu")
    fitted = fit(model, train, stopping, config.train, device="cpu", seed=seed)
    result = score(forecast_with(model), splits.validation("cpu"))
    measured = measure(errors_of(splits, train, result), "all", "tables")
    row = {
        "kind": "recipe",
        "command": f"python benchmarks/recipe.py --data {data} --horizon {horizon} --seed {seed} "
        + flags,
        "variant": label,
        "changes": sets,
        "data": data,
        "horizon": horizon,
        "past": config.window.past,
        "seed": seed,
        "validation_windows": result.windows,
        **{f"validation_{name}": value for name, value in measured.items()},
        "best_epoch": fitted.best_epoch,
        "parameters": parameters(model),
        "config_digest": digest(config.to_dict()),
        "data_digest": splits.plan.dataset.digest,
        "commit": commit(),
        "hardware": hardware(),
    }
    file.write_text(json.dumps(row, indent=1) + "\n")
    print(f"{label}: {result.mse:.4f} / {result.mae:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
