"""Repeat the training of a bundle, and compare the results bit for bit."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from forecaster.base import installation, machine
from forecaster.base.progress import Say
from forecaster.evaluate.judge import judge, validate
from forecaster.evaluate.problem import reopen
from forecaster.forecast.bundle import Bundle, Share, versions
from forecaster.run.experiment import make_blend, settle, train_network


@dataclass(frozen=True)
class Comparison:
    """One file of a bundle: its number of tensors, the differing ones, the largest difference."""

    file: str
    tensors: int
    differing: tuple[str, ...]
    largest: float

    def __str__(self) -> str:
        if not self.differing:
            return f"{self.file}: {self.tensors} tensors, all equal"
        return (
            f"{self.file}: {len(self.differing)} of {self.tensors} tensors differ, by at most "
            f"{self.largest:.3g} ({', '.join(self.differing[:3])})"
        )


@dataclass(frozen=True)
class Reproduction:
    """The outcome; `others` are sentences about what may make it differ from the first."""

    files: tuple[Comparison, ...]
    others: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not any(file.differing for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "files": {
                each.file: {
                    "tensors": each.tensors,
                    "differing": list(each.differing),
                    "largest": each.largest,
                }
                for each in self.files
            },
            "others": list(self.others),
        }


def reproduce(bundle: Bundle, say: Say) -> Reproduction:
    """Train again, on the same number of threads.

    Raises DataError if the data have changed, UnavailableError if they are not available.
    """
    if bundle.about.get("threads"):
        torch.set_num_threads(bundle.about["threads"])
    problem = reopen(bundle, anew=True)
    device = machine.device(problem.config.device)
    others = tuple(_others(bundle, device))
    model, fitted = train_network(problem, device)
    _, served, _ = make_blend(problem, model, device, say)
    _, (intervals, _, done) = validate(problem, served, device)
    intervals = judge(problem, served, device, intervals, done=done).served or intervals
    _, served, intervals = settle(problem, served, intervals, fitted, device, say)
    network = served.network
    again = replace(
        bundle,
        weights={} if network is None else dict(network.state_dict()),
        parts=Share.of(served),
        intervals=intervals,
    )
    before, after = bundle.tensors(), again.tensors()
    return Reproduction(tuple(_compare(file, before[file], after[file]) for file in before), others)


def _compare(file: str, before: dict[str, Tensor], after: dict[str, Tensor]) -> Comparison:
    names = [*before, *(name for name in after if name not in before)]
    differing, largest = [], 0.0
    for name in names:
        one, other = before.get(name), after.get(name)
        if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
            differing.append(name)
            largest = float("inf")
        elif not torch.equal(one.cpu(), other.cpu()):
            differing.append(name)
            distance = (one.double().cpu() - other.double().cpu()).abs().max()
            largest = max(largest, float(distance))
    return Comparison(file, len(names), tuple(differing), largest)


def _others(bundle: Bundle, device: str) -> list[str]:
    """Sentences about what has changed since the bundle was made, and about a GPU."""
    now: dict[str, Any] = {**versions(), "commit": installation.commit()}
    now["hardware"] = machine.hardware(device)
    then = {**bundle.about["versions"], **bundle.about}
    others = ["the intervals were calibrated anew since"] * ("calibration" in bundle.about)
    if device == "cuda":
        others.append("on CUDA differences are expected, its gradients are not deterministic")
    return others + [
        f"{name} was {then[name]} and is {now[name]}"
        for name in now
        if name in then and then[name] != now[name]
    ]
