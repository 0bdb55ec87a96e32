"""A pretrained model in a local folder as a part."""

import json
import warnings
from collections.abc import Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from forecaster.base import extras
from forecaster.base.errors import BundleError, UsageError
from forecaster.base.spelling import spelled
from forecaster.model import Task
from forecaster.parts.base import Fold, Part

PIPELINES = ("ChronosBoltPipeline", "Chronos2Pipeline")
"""Those that give quantiles; the first Chronos draws them, so no two answers are the same."""
ROWS = 256
"""The windows and columns that are forecast at once, the default of the library for Chronos-2."""


class Pretrained(Part):
    """Chronos-Bolt or Chronos-2 (Ansari et al., arXiv 2403.07815 and 2510.15821), not trained here.

    Each column of a window is forecast on its own, and its forecast is the median. The weights stay
    in their folder: a bundle holds its path and the digest of its files, and refuses another.
    """

    kind = "chronos"
    exports = False

    def __init__(
        self, task: Task, name: str, past: int, chosen: str = "", *, folder: str, digest: str
    ) -> None:
        super().__init__(task, name, past, chosen)
        self.folder, self.digest = folder, digest
        self._pipelines: dict[torch.device, Any] = {}

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "folder": self.folder, "digest": self.digest}

    @classmethod
    def build(cls, task: Task, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """As `Part.build`; also raises BundleError if the folder is not what it was."""
        part = super().build(task, settings, tensors)
        extras.check("chronos", f"the part '{part.name}'")
        try:
            digest = check(Path(part.folder))
        except ValueError as error:
            raise BundleError(
                f"the part '{part.name}' reads a pretrained model in {part.folder}: {error}; put "
                "the folder back, or train again"
            ) from None
        if digest != part.digest:
            raise BundleError(
                f"the part '{part.name}' reads a pretrained model with the digest "
                f"{part.digest[:12]}, but {part.folder} now holds one with {digest[:12]}; put that "
                "one back, or train again"
            )
        return part

    @classmethod
    def fit(cls, fold: Fold) -> Sequence[Self]:
        """The model that the fold names. Raises UsageError for an unsuitable folder."""
        assert fold.pretrained
        folder = Path(fold.pretrained).resolve()
        extras.check("chronos", spelled("part", f"chronos:{folder}"))
        try:
            digest = check(folder)
            part = cls(fold.task, cls.kind, fold.task.past, folder=str(folder), digest=digest)
            pipeline = part._on(torch.device("cpu"))
            if missing := _without_value(pipeline.inner_model, folder):
                raise ValueError(f"expected a value of every weight, got none of {missing}")
        except (ValueError, OSError, RuntimeError, SafetensorError) as error:
            raise UsageError(f"{spelled('part', f'chronos:{folder}')}: {error}") from None
        part.past = min(part.past, pipeline.model_context_length)
        part.chosen = f"P = {part.past}, {folder.name}, digest {digest[:12]}"
        return [part]

    def forward(
        self, past: Tensor, past_known: Tensor, future_known: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        values, seen = self.own(past, observed)
        rows = values if seen is None else values.masked_fill(~seen, torch.nan)
        pipeline = self._on(past.device)
        medians = [self._median(pipeline, some) for some in rows.flatten(0, 1).split(ROWS)]
        ahead: Tensor = torch.cat(medians).unflatten(0, values.shape[:2])
        return ahead.transpose(1, 2).to(past)

    def _median(self, pipeline: Any, rows: Tensor) -> Tensor:
        """The median (N, T) of rows (N, P), NaN where missing."""
        rows = rows.cpu()  # from there the library reads, and there it answers
        given = rows if type(pipeline).__name__ == PIPELINES[0] else rows[:, None]
        medians, _ = pipeline.predict_quantiles(
            given, prediction_length=self.task.horizon, quantile_levels=[0.5]
        )
        ahead: Tensor = torch.cat(medians) if isinstance(medians, list) else medians
        return ahead[..., 0]

    def _on(self, device: torch.device) -> Any:
        """The pipeline on a device, loaded when it is first needed: no file but those of the
        folder, no code from it, and no pickle."""
        if device not in self._pipelines:
            from chronos import BaseChronosPipeline  # type: ignore[import-untyped]
            from transformers.utils import logging

            logging.disable_progress_bar()  # type: ignore[no-untyped-call]
            warnings.filterwarnings("ignore", "We recommend keeping prediction length")
            self._pipelines[device] = BaseChronosPipeline.from_pretrained(
                self.folder, device_map=str(device), dtype="float32", local_files_only=True,
                use_safetensors=True, trust_remote_code=False,
            )  # fmt: skip
        return self._pipelines[device]


def _without_value(model: nn.Module, folder: Path) -> list[str]:
    """The weights that the files do not hold, which the library would draw at random."""
    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            names |= set(opened.keys())
    places: dict[int, list[str]] = {}  # of tied weights one is enough
    for name, weight in model.named_parameters(remove_duplicate=False):
        places.setdefault(weight.data_ptr(), []).append(name)
    return [tied[0] for tied in places.values() if names.isdisjoint(tied)]


def check(folder: Path) -> str:
    """The digest of the files of a model. Raises ValueError stating what is wrong with them."""
    config, files = folder / "config.json", sorted(folder.glob("*.safetensors*"))
    if not config.is_file() or not files:
        state = "has not both" if folder.is_dir() else "is no folder"
        raise ValueError(f"expected a folder with config.json and *.safetensors, but it {state}")
    try:
        facts = json.loads(config.read_bytes())
    except ValueError:
        facts = None
    pipeline = facts.get("chronos_pipeline_class") if isinstance(facts, dict) else None
    if pipeline not in PIPELINES:
        raise ValueError(f"expected the config.json of one of {PIPELINES}, got {pipeline}")
    if "auto_map" in facts or (folder / "adapter_config.json").exists():
        raise ValueError(
            "expected a model that needs no code and no other model, got one that does"
        )
    digests = []
    for file in (config, *files):
        with file.open("rb") as opened:
            digests.append(f"{file.name} {file_digest(opened, 'sha256').hexdigest()}")
    return sha256("\n".join(digests).encode()).hexdigest()
