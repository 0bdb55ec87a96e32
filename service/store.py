"""The model that is served, and how far its loading has come."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Thread
from time import perf_counter
from typing import Any, Literal

from pandas import DatetimeIndex

from forecaster.attention import CATALOGUE
from forecaster.errors import (
    BundleError,
    ConfigError,
    ForecasterError,
    UnavailableError,
    UsageError,
)
from forecaster.predict import Forecaster
from service.logs import logger
from service.problems import Problem
from service.schemas import ModelCard, ModelIdentity
from service.settings import Settings


@dataclass(frozen=True)
class Served:
    """A model that has answered once, and how it presents itself."""

    forecaster: Forecaster
    identity: ModelIdentity
    card: ModelCard

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may call it."""
        name, alias, version = self.identity.name, self.identity.alias, self.identity.version
        aliases = (alias, f"{name}@{alias}") if alias else ()
        versions = (version, f"{name}/{version}") if version else ()
        return (name, *aliases, *versions)


class Store:
    """Holds the model; `device` is the one thread in which it runs.

    `status` is "loading", then "ready", or "failed" with a `reason` for people.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.status: Literal["loading", "ready", "failed"] = "loading"
        self.reason = "the model is being loaded"
        self.served: Served | None = None
        self.device = ThreadPoolExecutor(1, thread_name_prefix="forecast")

    def open(self) -> None:
        """Load in the background: a daemon, so that a hanging registry cannot delay the exit."""
        Thread(target=self.load, name="load", daemon=True).start()

    def close(self) -> None:
        """Let the forecast in progress end, drop those that wait."""
        self.device.shutdown(cancel_futures=True)

    def load(self) -> None:
        """Load the model of the settings and let it forecast its example once. Never raises."""
        began = perf_counter()
        try:
            served = self._load()
        except ForecasterError as error:
            self._fail(_for_clients(error))
            logger().error("model failed", reason=str(error))
        except Exception:
            self._fail(_for_clients())
            logger().exception("model failed")
        else:
            self.served, self.reason, self.status = served, "", "ready"
            logger().info(
                "model ready",
                model=served.identity.name,
                digest=served.identity.digest,
                device=served.forecaster.device,
                seconds=round(perf_counter() - began, 2),
            )

    def ready(self) -> Served:
        """The model. Raises Problem 503 while there is none."""
        if self.served is None:
            seconds = "2" if self.status == "loading" else "60"
            raise Problem(503, self.reason, headers={"Retry-After": seconds})
        return self.served

    def get(self, name: str | None) -> Served:
        """The model called `name`. Raises Problem 404 naming those there are, 503 while none is."""
        served = self.ready()
        if name is not None and name not in served.names:
            raise Problem(404, f"no such model here; there is {' = '.join(served.names)}")
        return served

    def _fail(self, reason: str) -> None:
        self.reason, self.status = reason, "failed"

    def _load(self) -> Served:
        if self.settings.model is None:
            raise ConfigError(
                "no model was named: set FORECASTER_MODEL to a bundle's folder, an MLflow run id "
                "or a registered name, or use forecaster serve --model"
            )
        CATALOGUE.allowed = self.settings.attentions
        forecaster = Forecaster.load(self.settings.model, self.settings.device)
        example, schema = forecaster.example, forecaster.schema
        history = example[list(schema.columns)].to_numpy()[None]
        starts = DatetimeIndex(example[schema.time].iloc[:1])
        self.device.submit(forecaster.forecast, history, starts).result()
        identity, card = _describe(forecaster)
        return Served(forecaster, identity, card)


def _for_clients(error: ForecasterError | None = None) -> str:
    """Why there is no model, without the folders and addresses that the log tells."""
    match error:
        case ConfigError():
            return str(error)
        case BundleError():
            reason = "the model's bundle is damaged or incomplete"
        case UsageError() | UnavailableError():
            reason = "the model could not be found"
        case _:
            reason = "the model could not be loaded"
    return f"{reason}; the log of the service says more"


def _describe(forecaster: Forecaster) -> tuple[ModelIdentity, ModelCard]:
    bundle, schema = forecaster.bundle, forecaster.schema
    identity: dict[str, Any] = {
        "name": bundle.name,
        "version": bundle.origin.get("version"),
        "alias": bundle.origin.get("alias"),
        "run_id": bundle.about.get("run_id"),
        "attn": bundle.config.attn.name,
        "digest": bundle.digest,
    }
    test = bundle.metrics.get("test", {})
    card = ModelCard(
        **identity,
        refit=bool(bundle.about.get("refit")),
        effective=bundle.about.get("attn_effective", ""),
        device=forecaster.device,
        columns=list(schema.columns),
        targets=list(schema.targets),
        freq=schema.freq,
        timezone=schema.timezone,
        look_back=bundle.past,
        horizon=bundle.horizon,
        forecast=forecaster.kind,
        quantile_levels=list(forecaster.levels),
        intervals=str(bundle.about["intervals"]),
        test={key: test[key] for key in ("mse", "mae", "windows") if key in test},
    )
    return ModelIdentity(**identity), card
