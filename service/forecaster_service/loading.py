"""From the name of a model to a model that may be served, and the state of both."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from forecaster.attention.plugins import allowing
from forecaster.base.errors import BundleError, ConfigError, UnavailableError, UsageError
from forecaster.base.names import model_names
from forecaster.forecast import golden
from forecaster.forecast.bundle import digest_of
from forecaster.forecast.predictor import Predictor, load_bundle
from forecaster.parts import GROUP as PARTS
from forecaster_service.card import SAME, describe
from forecaster_service.registry import Found, State
from forecaster_service.response import ModelCard, ModelIdentity
from forecaster_service.settings import Settings

AGAIN = 60.0
"""Seconds until a model that could not be loaded is tried again."""


class UnfitError(BundleError):
    """A bundle that is complete but must not be served; clients may see the message."""


@dataclass(frozen=True)
class Served:
    """A model that may be served, its identity and card, and whether it came from a folder."""

    forecaster: Predictor
    identity: ModelIdentity
    card: ModelCard
    local: bool

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
        """What `current` finds as long as the name resolves to this model."""
        bundle = self.forecaster.bundle
        return {"digest": bundle.digest} if self.local else bundle.origin


@dataclass
class Slot:
    """The place of one model; `source` is its name in the settings.

    `served` is None while there is no model, and `reason` then states why. `failed` is the state
    that could not be loaded, and `again` when to try it next, in terms of monotonic(). For the
    metrics: `loaded` and `looked` are when the model was last loaded and looked up, by time().
    """

    source: str
    served: Served | None = None
    loading: bool = True
    reason: str = "the model is being loaded"
    failed: State | None = None
    again: float = 0.0
    loaded: float = 0.0
    looked: float = 0.0

    @property
    def label(self) -> str:
        """Its name in metrics, without the path of a folder."""
        local = self.local or self.source.startswith(("/", "."))
        return Path(self.source).name if local else self.source

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


def current(slot: Slot, registry: Found) -> State:
    """What the name of a slot resolves to now. Reads no weights. Raises ForecasterError."""
    return {"digest": digest_of(Path(slot.source))} if slot.local else registry.state(slot.source)


def load(source: str, settings: Settings, registry: Found) -> Served:
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
        golden.check(forecaster)
    except BundleError as error:
        raise UnfitError(str(error)) from None
    return Served(forecaster, *describe(forecaster), local)


def differences(old: Predictor, new: Predictor) -> list[str]:
    """Why requests to `old` or readers of its answers would not suit `new`; empty if all do."""
    before, after = _facts(old), _facts(new)
    changes = [(name, had, after[name], had != after[name]) for name, had in before.items()]
    horizon, ahead = old.bundle.horizon, new.bundle.horizon
    shorter = ahead < horizon or (old.schema.known.columns and ahead != horizon)
    narrower = old.levels and not (
        new.levels and new.levels[0] <= old.levels[0] and old.levels[-1] <= new.levels[-1]
    )
    changes += [
        ("rows of history that are needed", old.needs, new.needs, new.needs > old.needs),
        ("horizon", horizon, ahead, shorter),
        ("quantile levels", old.levels, new.levels, narrower),
    ]
    known = _names(new)
    lost = {name: had - known.get(name, set()) for name, had in _names(old).items()}
    return [f"{name}: {had!r} became {has!r}" for name, had, has, worse in changes if worse] + [
        f"{name}: {len(names)} are unknown now" for name, names in lost.items() if names
    ]


def _facts(forecaster: Predictor) -> dict[str, Any]:
    """What clients of a model rely on."""
    schema = forecaster.schema
    attributes = schema.known.attributes
    return {
        **{name: getattr(schema, name) for name in (*SAME, "id")},
        "future covariates": schema.known.columns,
        "static attributes": {a.name: "a word" if a.words else "a number" for a in attributes},
    }


def _names(forecaster: Predictor) -> dict[str, set[str]]:
    """The names and words that requests may contain."""
    schema = forecaster.schema
    words = {
        f"words of {attribute.name}": set(attribute.words) for attribute in schema.known.attributes
    }
    return {"series": set(schema.items), **words}


def for_clients(error: Exception) -> str:
    """Why there is no model, without the folders and addresses that the log contains."""
    if isinstance(error, ConfigError | UnfitError):
        return str(error)
    reason = "could not be loaded"
    if isinstance(error, BundleError):
        reason = "is damaged or incomplete"
    elif isinstance(error, UsageError | UnavailableError):
        reason = "could not be found"
    return f"the model {reason}; see the log of the service"
