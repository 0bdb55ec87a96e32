"""What can be set from outside: environment variables FORECASTER_*, read once at start."""

from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from forecaster.errors import ConfigError


class Settings(BaseSettings):
    """The service's settings; FORECASTER_MODEL sets `model`, and so on.

    Other variables with the same prefix belong to the command line and are ignored.
    """

    model_config = SettingsConfigDict(
        env_prefix="FORECASTER_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    model: str | None = None
    """The model to serve: a bundle's folder, an MLflow run id, or a registered name."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs; auto takes CUDA where there is one."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names, separated by commas, under which clients may call, besides this machine's own; *
    stands for any."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 16 * 2**20
    """The longest request body."""
    max_series: Annotated[int, Field(ge=1)] = 1000
    """The most series in a request."""
    max_rows: Annotated[int, Field(ge=1)] = 1_000_000
    """The most rows (lists of columns) in a request, those of all series together."""
    max_batch: Annotated[int, Field(ge=1)] = 64
    """The most series that the model sees at once; a larger request runs in several parts."""
    attentions: Annotated[tuple[str, ...], NoDecode] = ()
    """Names, separated by commas, of attentions that may be imported from other packages."""

    @field_validator("allowed_hosts", "attentions", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value


def from_environment() -> Settings:
    """Raises ConfigError naming the variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = f"FORECASTER_{problem['loc'][0]}".upper()
        raise ConfigError(f"${name}: {problem['msg'].lower()}, got {problem['input']!r}") from None
