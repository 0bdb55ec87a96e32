import pytest
from pydantic import ValidationError

from forecaster.errors import ConfigError
from service.app import create_app
from service.settings import Settings


def test_defaults() -> None:
    settings = Settings()
    assert (settings.model, settings.device) == (None, "auto")
    assert settings.max_body_bytes == 16 * 2**20
    assert settings.max_series == 1000


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORECASTER_MODEL", "name@champion")
    monkeypatch.setenv("FORECASTER_ALLOWED_HOSTS", "a.example, b.example,")
    monkeypatch.setenv("FORECASTER_MAX_SERIES", "7")
    settings = Settings()
    assert settings.model == "name@champion"
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.max_series == 7


def test_variables_of_others_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORECASTER_DATA", "FORECASTER_TRAIN__EPOCHS", "FORECASTER_MODEL__WIDTH"):
        monkeypatch.setenv(name, "3")
    monkeypatch.setenv("FORECASTER_MODEL", "")
    assert Settings().model is None


@pytest.mark.parametrize(
    ("name", "value"), [("DEVICE", "tpu"), ("MAX_SERIES", "0"), ("MAX_BODY_BYTES", "-1")]
)
def test_wrong_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"FORECASTER_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORECASTER_MAX_BATCH", "x")
    with pytest.raises(ConfigError, match=r"\$FORECASTER_MAX_BATCH: .*got 'x'"):
        create_app()
