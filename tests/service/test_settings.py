import pytest
from pydantic import ValidationError

from forecaster.base.errors import ConfigError
from forecaster_service.app import create_app
from forecaster_service.settings import Settings

DIGESTS = tuple(f"sha256:{digit * 64}" for digit in "0f")
KEYS = (f"anna:{'0a' * 32}", f"bob:{'1b' * 32}")


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("MODEL", "a@champion, runs/b,", "models", ("a@champion", "runs/b")),
        ("MODEL__WIDTH", "3", "model", None),  # of the command line
        ("MAX_SERIES", "7", "max_series", 7),
        ("DIGESTS", ", ".join(DIGESTS), "digests", DIGESTS),
        ("API_KEYS", ",".join(KEYS), "api_keys", KEYS),
    ],
)
def test_from_the_environment(monkeypatch, variable, text, name, value):
    monkeypatch.setenv(f"FORECASTER_{variable}", text)
    assert getattr(Settings(), name) == value
    create_app()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEVICE", "tpu"),
        ("MAX_SERIES", "0"),
        ("DEADLINE_SECONDS", "0"),
        ("DRAIN_SECONDS", "inf"),
        ("RECEIVE_SECONDS", "nan"),
        ("DIGESTS", "0" * 64),
        ("API_KEYS", "anna:swordfish"),
        ("API_KEYS", "a b:" + "0a" * 32),
    ],
)
def test_a_wrong_variable_is_named_and_no_key_is_told(monkeypatch, name, value):
    monkeypatch.setenv(f"FORECASTER_{name}", value)
    with pytest.raises(ConfigError, match=rf"\$FORECASTER_{name}") as error:
        create_app()
    assert name != "API_KEYS" or value not in str(error.value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()
