"""Processor time of the evaluation of a run: windows, intervals, verdicts, and further parts.

    python -m benchmarks.evaluation                        the default recipe on ETTh1, T = 336
    python -m benchmarks.evaluation --model FOLDER --json  the network of a bundle

- alone: the network is the whole forecast, and its one floor is the training mean: its error on
  every window of validation, calibrated intervals, its errors, intervals and verdicts on every test
  window;
- all: the same with every closed form, fitted, weighed with the network and evaluated beside it;
- a part: the additional time of all over alone, divided by the number of further closed forms.

Without --model the network is untrained, which makes no difference to the time. The two take turns
in one process, on one thread; the results are medians. They are kept in benchmarks/results/, from
which benchmarks/render.py makes the table.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from forecaster.base import installation, machine
from forecaster.config.run_config import load
from forecaster.evaluate.judge import judge, reopen, validate
from forecaster.forecast import bundle as bundles
from forecaster.parts import Blend, Network, Part, TrainingMean, fit_forms, weigh_forms
from forecaster.plan.data import find_data
from forecaster.plan.plan import make_plan
from forecaster.plan.splits import Splits, make_splits

RESULTS = Path(__file__).parent / "results"


def opened(model: Path | None) -> tuple[Splits, Network]:
    """The splits, and its network."""
    if model is None:
        loaded = load(None, [], {"data": "ETTh1", "horizon": 336})
        splits = make_splits(make_plan(*find_data(loaded, lambda said: None), lambda said: None))
        network = splits.build_model()
        network.prepare(splits.training("cpu").rows())
        return splits, Network(network.eval())
    bundle = bundles.load(model)
    found = bundle.build().network
    if found is None:
        raise SystemExit(f"{model}: validation gave the network no weight; name another bundle")
    return reopen(bundle), Network(found.eval())


def evaluated(splits: Splits, served: Blend, parts: Sequence[Part]) -> dict[str, float]:
    """Seconds of each stage."""
    begun = time.process_time()
    _, intervals, _, done = validate(splits, served, "cpu")
    validated = time.process_time()
    _ = judge(splits, served, "cpu", intervals, parts, done).backtest
    return {"validation_s": validated - begun, "test_s": time.process_time() - validated}


def alone(splits: Splits, network: Network) -> dict[str, float]:
    floor = TrainingMean.fit(splits.fold("cpu"))
    return evaluated(splits, Blend.alone(network).eval(), [*floor, network])


def together(splits: Splits, network: Network) -> dict[str, float]:
    begun = time.process_time()
    tried, found = weigh_forms(fold := splits.fold("cpu"), fit_forms(fold), network)
    fitted = time.process_time() - begun
    served = Blend.weighed(tried, found).eval()
    return {
        "fit_and_weigh_s": fitted, **evaluated(splits, served, tried), "parts": len(tried) - 1
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="the folder of a bundle, to use instead of an untrained network"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the document and keep nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    splits, network = opened(arguments.model)
    turns = [
        {"alone": alone(splits, network), "all": together(splits, network)}
        for _ in range(arguments.rounds)
    ]

    def middle(way: str) -> dict[str, float]:
        return {key: round(median(turn[way][key] for turn in turns), 3) for key in turns[0][way]}

    def whole(way: str) -> float:
        return median(sum(x for k, x in turn[way].items() if k != "parts") for turn in turns)

    further = int(turns[0]["all"]["parts"]) - 1
    document = {
        "kind": "evaluation",
        "command": shlex.join(["python", "-m", "benchmarks.evaluation", *sys.argv[1:]]),
        "hardware": machine.hardware(threads=1),
        "commit": installation.commit(),
        "rounds": arguments.rounds,
        "windows": len(splits.validation("cpu")) + len(splits.test("cpu")),
        "further_parts": further,
        "alone": middle("alone"),
        "all": middle("all"),
        "alone_s": round(whole("alone"), 3),
        "all_s": round(whole("all"), 3),
        "part_s": round((whole("all") - whole("alone")) / further, 3),
        "must": {"alone_s": 5.0, "part_s": 0.4},
        "aim": {"alone_s": 3.0, "part_s": 0.2},
    }
    if arguments.json:
        print(json.dumps(document, indent=1))
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "evaluation.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"alone {document['alone_s']:.2f} CPU-s (must 5, aim 3), each of {further} further parts "
          f"{document['part_s']:.2f} (must 0.4, aim 0.2), all {document['all_s']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
