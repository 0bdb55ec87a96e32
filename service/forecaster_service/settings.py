"""The settings of the service: environment variables FORECASTER_*, read once at start."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from forecaster.base.errors import ConfigError


class Settings(BaseSettings):
    """The service's settings; FORECASTER_MODEL sets `model`, and so on.

    Other variables with the same prefix belong to the command line and are ignored.
    """

    model_config = SettingsConfigDict(
        env_prefix="FORECASTER_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    model: str | None = None
    """The models to serve, separated by commas, the default one first: each a bundle's folder, an
    MLflow run id, or a registered name."""
    poll_seconds: Annotated[float, Field(ge=0, le=86_400)] = 10
    """Seconds between two checks whether a name or a folder has another model, which is then
    served; 0 for never."""
    digests: Annotated[
        tuple[Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")], ...], NoDecode
    ] = ()
    """Digests, separated by commas, of the only models that may be served; any if empty."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the models run; auto takes CUDA where there is one."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Host names, separated by commas, that clients may use besides this machine's own; * stands
    for any."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses or networks, separated by commas, of proxies that pass on the client's address in
    X-Forwarded-For; * stands for any."""
    api_keys: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}:[0-9a-f]{64}$")], ...], NoDecode
    ] = ()
    """NAME:SHA256 of each key that clients may use, separated by commas, as `forecaster serve
    --new-key NAME` prints them; if empty, no key is needed."""
    max_connections: Annotated[int, Field(ge=1)] = 2**14
    """The most connections, as far as the system's limit of open files allows; beyond it, the
    connection that has been without a complete request for longest is closed."""
    receive_seconds: Annotated[float, Field(gt=0, le=3600)] = 10
    """How long a client may take to send a request or to read its answer, plus one second for each
    64 KiB of it."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 16 * 2**20
    """The longest request body."""
    max_bodies_bytes: Annotated[int, Field(ge=1)] = 256 * 2**20
    """The most bytes of bodies that are received, wait and are parsed at the same time; beyond it
    large requests wait, and get 503 at their deadline."""
    max_series: Annotated[int, Field(ge=1)] = 1000
    """The most series in a request."""
    max_rows: Annotated[int, Field(ge=1)] = 1_000_000
    """The most rows (lists of columns, and covariates) in a request, over all series."""
    max_batch: Annotated[int, Field(ge=1)] | None = None
    """The most series in a batch, which may come from several requests that wait at the same time;
    a larger request runs in several batches. By default 64 on CUDA, 16 on a CPU."""
    max_queue: Annotated[int, Field(ge=1)] = 512
    """The most series that wait for the device; more are refused with 503. A single larger request
    is accepted when nothing waits."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 30
    """The time limit for an answer: 503 at once if the forecast would take longer, 504 if it
    did."""
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = 1
    """On SIGTERM, how long /readyz answers 503 before the service stops listening."""
    ledger: Path | None = None
    """A folder in which every forecast is kept, for `forecaster score`; none by default."""
    ledger_days: Annotated[float, Field(gt=0)] = 400
    """Days after which the files of the ledger are deleted."""
    ledger_bytes: Annotated[int, Field(ge=1)] = 2**30
    """The most bytes of the ledger; beyond it, the oldest files are deleted."""
    actuals_keys: Annotated[tuple[str, ...], NoDecode] = ()
    """Names of API keys, separated by commas, whose histories are kept as actual values."""
    attentions: Annotated[tuple[str, ...], NoDecode] = ()
    """Names, separated by commas, of attentions that may be imported from other packages."""
    parts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names, separated by commas, of kinds of parts that may be imported from other packages."""

    @field_validator(
        "allowed_hosts", "trusted_proxies", "api_keys", "actuals_keys", "attentions", "parts",
        "digests",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _split(cls, value: object) -> object:
        return _names(value) if isinstance(value, str) else value

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models."""
        return _names(self.model or "")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def from_environment() -> Settings:
    """The settings of the environment. Raises ConfigError naming the variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = f"FORECASTER_{problem['loc'][0]}".upper()
        if name == "FORECASTER_API_KEYS":  # may contain a key by mistake, which must not be shown
            form = "expected NAME:SHA256 as forecaster serve --new-key NAME prints it"
            raise ConfigError(f"${name}: {form}") from None
        raise ConfigError(f"${name}: {problem['msg'].lower()}, got {problem['input']!r}") from None
