"""Compare rules for the weights of a blend, on validation alone (docs/recipe.md).

    FORECASTER_DATA=... python benchmarks/blending.py --data ETTh1 ETTh2 epf-FR --horizon 96 336

For each task the closed forms and the network of the data set's configuration are fitted once. A
rule sees the half of validation that stops training, and is evaluated on the half that calibrates
intervals. The test split is not read. epf-* has one horizon, 24.
"""

import argparse
import sys
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from forecaster.config.run_config import load
from forecaster.parts import NETWORK, Network, fit_forms, weigh_forms
from forecaster.parts.blend import mixed, nearest
from forecaster.parts.products import mse, products
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import make_splits
from forecaster.train.fit import fit

Rule = Callable[[Tensor, list[str]], Tensor]
"""From the mean products of relative errors (n, n) and the families to weights (n,)."""


def alike(kept: Tensor) -> Tensor:
    """The same weight for every part that is kept."""
    return kept.double() / kept.sum()


def pulled(relative: Tensor, families: list[str], pull: float, power: float) -> Tensor:
    """As `forecaster.parts.blend.shares`, with another pull and another power of the errors."""
    errors = relative.diagonal()
    even = torch.tensor([1 / families.count(each) for each in families], dtype=torch.float64)
    even = even * (errors.min() / errors) ** power
    return nearest(relative / errors.min(), even / even.sum(), pull)


RULES: dict[str, Rule] = {
    "the part that is best on the stopping half":
        lambda e, f: alike(e.diagonal() == e.diagonal().min()),
    "the network alone": lambda e, f: alike(torch.tensor([g == NETWORK for g in f])),
    "ridges and network evenly":
        lambda e, f: alike(torch.tensor([g == NETWORK or "ridge" in g for g in f])),
    "parts within 1.2 x of the best evenly":
        lambda e, f: alike(e.diagonal() <= 1.2 * e.diagonal().min()),
    **{f"pull {pull:g}, power {power:g}":
        lambda e, f, pull=pull, power=power: pulled(e, f, pull, power)
       for pull in (0.3, 1.0, 3.0) for power in (0, 2, 4, 8)},
}  # fmt: skip


def task(data: str, horizon: int, sets: list[str]) -> dict[str, float]:
    """The MSE of each rule on the calibrating half, divided by that of the best part there."""
    name = "epf" if data.startswith("epf-") else None
    loaded = load(name, sets, {"data": data, "horizon": horizon})
    splits = make_splits(make_plan(*find_data(loaded, lambda text: None)))
    model, stopping = splits.build_model(), splits.stopping("cpu")
    config = splits.plan.config
    fit(model, splits.training("cpu"), stopping, config.train, device="cpu", seed=config.seed)
    fold = splits.fold("cpu")
    tried, served = weigh_forms(fold, fit_forms(fold), Network(model))
    weighed = [place for place, part in enumerate(tried) if part.weighed]
    parts = [tried[place] for place in weighed]
    seen, families = products(parts, fold.choose).relative, [part.family for part in parts]
    rules = {name: rule(seen, families) for name, rule in RULES.items()}
    rules["the rule (pull 0.3, power 4, none below 3 %)"] = served.common[weighed, 0]

    @lru_cache(maxsize=1)  # tensors are equal to themselves alone
    def alone(*inputs: Tensor) -> list[Tensor]:
        return [part(*inputs) for part in parts]

    def blended(weights: Tensor) -> Callable[..., Tensor]:
        shares = weights.float()[:, None].expand(-1, horizon)
        return lambda *inputs: mixed(alone(*inputs), shares)

    forecasts = [blended(weights) for weights in (*rules.values(), *torch.eye(len(parts)))]
    judged = mse(forecasts, splits.calibrating("cpu")).tolist()
    best = min(judged[len(rules) :])
    return {name: own / best for name, own in zip(rules, judged, strict=False)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["ETTh1", "ETTh2"])
    parser.add_argument("--horizon", type=int, nargs="+", default=[96, 336])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    tasks = []
    for data in arguments.data:
        for horizon in [24] if data.startswith("epf-") else arguments.horizon:
            tasks.append(task(data, horizon, arguments.set))
            for rule, ratio in tasks[-1].items():
                print(f"{data}, T = {horizon}: {rule}: {ratio:.3f}", file=sys.stderr)
    table = torch.tensor([list(each.values()) for each in tasks], dtype=torch.float64)
    print("| rule | geometric mean | worst |\n| --- | --- | --- |")
    rows = zip(tasks[0], table.log().mean(dim=0).exp(), table.amax(dim=0), strict=True)
    for rule, mean, worst in rows:
        print(f"| {rule} | {mean:.3f} | {worst:.3f} |")


if __name__ == "__main__":
    main()
