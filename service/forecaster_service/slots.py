"""From the name of a model to a model that may be served, and the state of both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from forecaster import shares
from forecaster.attention.plugins import allowing
from forecaster.bundle import digest_of
from forecaster.datasets.items import MARK
from forecaster.errors import (
    BundleError,
    ConfigError,
    ForecasterError,
    UnavailableError,
    UsageError,
)
from forecaster.lookup import model_names
from forecaster.parts import GROUP as PARTS
from forecaster.predict import Predictor, load_bundle
from forecaster.schema import Schema
from forecaster_service.registry import Registry, State
from forecaster_service.schemas import (
    MOST_ITEMS,
    Band,
    ModelCard,
    ModelIdentity,
    PartOfModel,
    StaticAttribute,
)
from forecaster_service.settings import Settings

FIGURES = ("mse", "mae", "windows", "network", "floors", "best_floor", "verdict")
"""The entries of the test split's metrics that GET /models shows."""
RARELY = 3600.0
"""The most seconds between two attempts to load a model that could not be loaded."""


class UnfitError(BundleError):
    """A bundle that is complete but must not be served; clients may see the message."""


@dataclass(frozen=True)
class Served:
    """A model that may be served, its identity and card, and whether it came from a folder."""

    forecaster: Predictor
    identity: ModelIdentity
    facts: ModelCard
    local: bool

    @property
    def card(self) -> ModelCard:
        """The entry of GET /models: the facts, and whether the model still runs as CUDA graphs."""
        return self.facts.model_copy(update={"graphs": self.forecaster.runner.graphs})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names by which a request may ask for it."""
        return model_names(self.identity.name, self.identity.alias, self.identity.version)

    @cached_property
    def header(self) -> str:
        """The value of X-Forecaster-Model: its name, with its version, and its digest."""
        version = f"/{self.identity.version}" if self.identity.version else ""
        return f"{quote(self.identity.name)}{version}; digest={self.identity.digest}"

    @property
    def state(self) -> State:
        """What `look` finds as long as the name resolves to this model."""
        bundle = self.forecaster.bundle
        return {"digest": bundle.digest} if self.local else bundle.origin


@dataclass
class Slot:
    """The place of one model; `source` is its name in the settings.

    `served` is None while there is no model, and `reason` then states why. `failed` is the state
    that could not be loaded, `failures` how many times in a row, and `again` when to try next, in
    terms of monotonic(). For the metrics: `loaded` and `looked` are when the model was last loaded
    and looked up, in terms of time().
    """

    source: str
    served: Served | None = None
    loading: bool = True
    reason: str = "the model is being loaded"
    failed: State | None = None
    failures: int = 0
    again: float = 0.0
    loaded: float = 0.0
    looked: float = 0.0

    @property
    def label(self) -> str:
        """Its name in metrics, without the path of a folder."""
        folder = self.local or self.source.startswith(("/", "."))
        return Path(self.source).name if folder else self.source

    @property
    def local(self) -> bool:
        """Whether the model comes from a folder; a slot that had such a model stays local."""
        return self.served.local if self.served else Path(self.source).is_dir()

    @property
    def fixed(self) -> bool:
        """Whether the name always means the model that is loaded: a version or a run."""
        if self.served is None or self.local:
            return False
        return not self.served.state or self.source.endswith(f"/{self.served.state['version']}")


def look(slots: Sequence[Slot], registry: Registry) -> list[State | ForecasterError]:
    """What the name of each slot resolves to now, or an error. Reads no weights."""
    asked = [slot.source for slot in slots if not slot.local]
    answers: list[State | ForecasterError]
    try:
        answers = [*registry.resolve(asked)] if asked else []
    except ForecasterError as error:
        answers = [error] * len(asked)
    resolved = iter(answers)
    return [_digest(slot) if slot.local else next(resolved) for slot in slots]


def _digest(slot: Slot) -> State | ForecasterError:
    try:
        return {"digest": digest_of(Path(slot.source))}
    except ForecasterError as error:
        return error


def load(source: str, settings: Settings, registry: Registry) -> Served:
    """The model behind a name, on its device. Unless the name is a folder, the registry fetches it.

    Raises UnfitError for a model whose digest is not in the settings and for one that does not
    reproduce its saved forecasts, and whatever `load_bundle` raises.
    """
    local = Path(source).is_dir()
    with allowing(settings.attentions), allowing(settings.parts, PARTS):
        bundle = load_bundle(source, registry.fetch)
        if settings.digests and bundle.digest not in settings.digests:
            raise UnfitError(
                f"FORECASTER_DIGESTS does not contain the model's digest, {bundle.digest}"
            )
        forecaster = Predictor(bundle, settings.device)
    if bundle.golden is None:
        raise UnfitError("the model was saved without forecasts to check it with: train it again")
    try:
        forecaster.check()
    except BundleError as error:
        raise UnfitError(str(error)) from None
    return Served(forecaster, *_describe(forecaster), local)


def differences(old: Predictor, new: Predictor) -> list[str]:
    """Why requests to `old` or readers of its answers would not suit `new`; empty if all do."""
    before, after = old.schema, new.schema
    facts = ("time", "id", "wide", "columns", "targets", "freq", "timezone")
    pairs: list[tuple[str, Any, Any]]
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in facts]
    pairs += [
        ("future covariates", before.known.columns, after.known.columns),
        ("static attributes", _kinds(before), _kinds(after)),
        ("what is forecast", old.kind, new.kind),
    ]
    found = [f"{name}: {had!r} became {has!r}" for name, had, has in pairs if had != has]
    words = {each.name: set(each.words) for each in after.known.attributes}
    found += [
        f"static attribute {each.name}: some words are unknown now"
        for each in before.known.attributes
        if not words.get(each.name, set()).issuperset(each.words)
    ]
    if lost := set(before.items) - set(after.items):
        found.append(f"{len(lost)} of {len(before.items)} series are unknown")
    if new.needs > old.needs:
        found.append(f"rows of history that are needed: {old.needs} became {new.needs}")
    shorter = new.bundle.horizon < old.bundle.horizon
    if shorter or (before.known.columns and new.bundle.horizon != old.bundle.horizon):
        found.append(f"horizon: {old.bundle.horizon} became {new.bundle.horizon}")
    if old.levels and not (
        new.levels and new.levels[0] <= old.levels[0] and old.levels[-1] <= new.levels[-1]
    ):
        found.append(f"quantile levels: {old.levels} became {new.levels}")
    return found


def for_clients(error: Exception) -> str:
    """Why there is no model, without the folders and addresses that the log contains."""
    match error:
        case ConfigError() | UnfitError():
            return str(error)
        case BundleError():
            reason = "the model's bundle is damaged or incomplete"
        case UsageError() | UnavailableError():
            reason = "the model could not be found"
        case _:
            reason = "the model could not be loaded"
    return f"{reason}; see the log of the service"


def _kinds(schema: Schema) -> dict[str, str]:
    return {each.name: "a word" if each.words else "a number" for each in schema.known.attributes}


def _bands(intervals: Mapping[str, Any]) -> Iterator[Band]:
    """The coverage of the intervals of a test split, whose keys are their shares in percent."""
    shares = [key for key, found in intervals.items() if key[:1].isdigit() and found]
    for key in sorted(shares, key=float):
        found = intervals[key]
        columns = {name: own["coverage"] for name, own in found.get("columns", {}).items()}
        yield Band(share=float(key) / 100, coverage=found["coverage"], columns=columns)


def _describe(forecaster: Predictor) -> tuple[ModelIdentity, ModelCard]:
    bundle, schema = forecaster.bundle, forecaster.schema
    identity: dict[str, Any] = {
        "name": bundle.origin.get("name", bundle.name),
        "version": bundle.origin.get("version"),
        "alias": bundle.origin.get("alias"),
        "run_id": bundle.about.get("run_id"),
        "attn": bundle.config.attn.name,
        "attn_weight": shares.attention_weight(bundle),
        "digest": bundle.digest,
    }
    test = bundle.metrics.get("test", {})
    card = ModelCard(
        **identity,
        made_of=[PartOfModel(**part.to_dict()) for part in shares.made_of(bundle)],
        refit=bool(bundle.about.get("refit")),
        effective=bundle.about.get("attn_effective", ""),
        device=forecaster.device,
        graphs=forecaster.runner.graphs,
        columns=list(schema.columns),
        time=schema.time,
        id=MARK.join(schema.id) or None,
        id_columns=list(schema.id),
        wide=schema.wide,
        targets=list(schema.targets),
        past_covariates=list(schema.reading.read_from(schema.past_only)),
        future_covariates=list(schema.reading.read_from(schema.known.columns)),
        static_covariates=[
            StaticAttribute(name=each.name, words=list(each.words) or None)
            for each in schema.known.attributes
        ],
        items=len(schema.items),
        item_names=list(schema.items[:MOST_ITEMS]),
        freq=schema.freq,
        timezone=schema.timezone,
        policy=schema.reading.policy,
        reading={k: v for k, v in schema.reading.to_dict().items() if k != "targets"},
        look_back=bundle.past,
        needs=forecaster.needs,
        least=forecaster.least,
        horizon=bundle.horizon,
        forecast=forecaster.kind,
        quantile_levels=list(forecaster.levels),
        intervals=str(bundle.about["intervals"]),
        bands=list(_bands(test.get("intervals") or {})),
        test={key: test[key] for key in FIGURES if key in test},
    )
    return ModelIdentity(**identity), card
