"""Compare rules for the weights of a blend, on validation alone (docs/recipe.md).

    FORECASTER_DATA=... python benchmarks/blending.py --data ETTh1 ETTh2 epf-FR --horizon 96 336

For each task the closed forms and the network of the data set's configuration are fitted once. A
rule sees the half of validation that stops training, and is evaluated on the half that calibrates
intervals. The error of a blend follows from its weights and the errors of the parts, so no rule
needs new forecasts. The test split is not read. epf-* has one horizon, 24.
"""

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from forecaster.config.run_config import load
from forecaster.datasets.windows import Windows
from forecaster.evaluate.problem import find_data, make_problem
from forecaster.parts import NETWORK, Network, Part, fit_and_weigh
from forecaster.parts.blend import nearest
from forecaster.parts.errors import products
from forecaster.train.run import fit

BLOCKS = 4


def even(kept: Tensor, families: list[str]) -> Tensor:
    """The same share for every family with a kept part, split evenly among its kept parts."""
    count = torch.tensor([float(sum(k and g == f for k, g in zip(kept, families, strict=True)))
                          for f in families])  # fmt: skip
    shares = kept / count.clamp(min=1)
    return (shares / shares.sum()).double()


def near(limit: float, errors: Tensor) -> Tensor:
    """Which parts have at most `limit` times the least error."""
    return errors <= limit * errors.min()


def pulled(whole: Tensor, shares: Tensor, pull: float) -> Tensor:
    """The weights that fit best, pulled towards `shares`; see forecaster.parts.weigh."""
    return nearest(whole / whole.diagonal().min(), shares, pull)


def earned(whole: Tensor, shares: Tensor, better: float) -> Tensor:
    """Weights pulled towards `shares`, then moved to the best part as far as that helps, if its
    error is at most `better` times that of the blend."""
    blend = pulled(whole, shares, 1.0)
    best = int(whole.diagonal().argmin())
    mine, theirs, both = blend @ whole @ blend, whole[best, best], whole[best] @ blend
    if theirs > better * mine:
        return blend
    share = ((mine - both) / (mine - 2 * both + theirs)).clamp(0, 1)
    return blend * (1 - share) + share * torch.eye(len(blend), dtype=blend.dtype)[best]


def alike(kept: Tensor) -> Tensor:
    return kept.double() / kept.sum()


Rule = Callable[[Tensor, list[str]], Tensor]
RULES: dict[str, Rule] = {
    "the part that is best on the stopping half":
        lambda e, f: alike(e.diagonal() == e.diagonal().min()),
    "the network alone": lambda e, f: alike(torch.tensor([g == NETWORK for g in f])),
    "ridges and network evenly":
        lambda e, f: alike(torch.tensor([g == NETWORK or "ridge" in g for g in f])),
    "parts within 1.2 x of the best evenly": lambda e, f: alike(near(1.2, e.diagonal())),
    "pull 0.3 to all parts evenly": lambda e, f: pulled(e, alike(torch.ones(len(f))), 0.3),
    **{f"pull {pull:g} to families evenly":
        lambda e, f, pull=pull: pulled(e, even(torch.ones(len(f)), f), pull)
       for pull in (0.1, 0.3, 1.0)},
    **{f"the same, moved to a part that is {1 - better:.0%} better":
        lambda e, f, better=better: earned(e, even(torch.ones(len(f)), f), better)
       for better in (0.95, 0.98)},
    "the same, of parts within 1.2 x of the best":
        lambda e, f: pulled(e, even(near(1.2, e.diagonal()), f), 1.0) * near(1.2, e.diagonal()),
}  # fmt: skip
"""The rules: functions of mean products of errors (n, n) and the parts' families, giving weights
(n,)."""


def task(data: str, horizon: int, sets: list[str]) -> dict[str, float]:
    """The MSE of each rule on the calibrating half, divided by that of the best part there."""
    name = "epf" if data.startswith("epf-") else None
    loaded = load(name, sets, {"data": data, "horizon": horizon})
    problem = make_problem(*find_data(loaded, lambda text: None))
    model, stopping = problem.build_model(), problem.stopping("cpu")
    config = problem.config
    fit(model, problem.training("cpu"), stopping, config.train, device="cpu", seed=config.seed)
    tried, served, _ = fit_and_weigh(problem.fold("cpu"), Network(model))
    weighed = [place for place, part in enumerate(tried) if part.weighed]
    parts = [tried[place] for place in weighed]
    families = [part.family for part in parts]
    seen, judged = (_products(parts, each) for each in (stopping, problem.calibrating("cpu")))
    best = float(judged.sum(dim=0).diagonal().min())

    def error(weights: Tensor) -> float:
        """The error of weights (T, n) or (n,)."""
        weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.double().expand(len(judged), -1)
        return float(torch.einsum("ti,tij,tj", weights, judged, weights)) / best

    found = {rule: error(of(seen.sum(dim=0), families)) for rule, of in RULES.items()}
    shares = even(torch.ones(len(parts)), families)
    blocks = [
        pulled(block.sum(dim=0), shares, 1.0).expand(len(block), -1)
        for block in seen.tensor_split(BLOCKS)
    ]
    found[f"pull 1 to families evenly, in {BLOCKS} blocks of the horizon"] = error(
        torch.cat(blocks)
    )
    found["the rule (pull 1 to families evenly, none below 3 %)"] = error(served[weighed].T)
    return found


def _products(parts: list[Part], windows: Windows) -> Tensor:
    """Mean products of errors (T, n, n), each step weighted by its share of the values."""
    found, counts = products(parts, windows)
    return found * (counts / counts.sum())[:, None, None]


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
