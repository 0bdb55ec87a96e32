import pytest
from pydantic import ValidationError

from forecaster.base.errors import ConfigError
from forecaster_service.app import create_app
from forecaster_service.settings import Settings


def test_defaults() -> None:
    settings = Settings()
    assert (settings.model, settings.device) == (None, "auto")
    assert settings.max_body_bytes == 16 * 2**20
    assert settings.max_series == 1000
    assert (settings.max_batch, settings.max_queue) == (None, 512)
    assert (settings.deadline_seconds, settings.drain_seconds) == (30, 1)
    assert (settings.api_keys, settings.trusted_proxies) == ((), ())
    assert (settings.max_connections, settings.receive_seconds) == (2**14, 10)


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORECASTER_MODEL", "name@champion")
    monkeypatch.setenv("FORECASTER_ALLOWED_HOSTS", "a.example, b.example,")
    monkeypatch.setenv("FORECASTER_MAX_SERIES", "7")
    settings = Settings()
    assert settings.model == "name@champion"
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.max_series == 7


def test_several_models_and_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORECASTER_MODEL", "a@champion, runs/b,")
    digests = [f"sha256:{digit * 64}" for digit in "0f"]
    monkeypatch.setenv("FORECASTER_DIGESTS", ", ".join(digests))
    settings = Settings()
    assert settings.models == ("a@champion", "runs/b")
    assert settings.digests == tuple(digests)
    assert (Settings(model=None).models, settings.poll_seconds) == ((), 10)
    monkeypatch.setenv("FORECASTER_DIGESTS", "0" * 64)
    with pytest.raises(ConfigError, match=r"\$FORECASTER_DIGESTS: .*sha256:.*64"):
        create_app()


def test_variables_of_others_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORECASTER_DATA", "FORECASTER_TRAIN__EPOCHS", "FORECASTER_MODEL__WIDTH"):
        monkeypatch.setenv(name, "3")
    monkeypatch.setenv("FORECASTER_MODEL", "")
    assert Settings().model is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEVICE", "tpu"),
        ("MAX_SERIES", "0"),
        ("MAX_BODY_BYTES", "-1"),
        ("MAX_QUEUE", "0"),
        ("DEADLINE_SECONDS", "0"),
        ("DRAIN_SECONDS", "inf"),
        ("POLL_SECONDS", "-1"),
        ("RECEIVE_SECONDS", "nan"),
        ("MAX_CONNECTIONS", "0"),
        ("RECEIVE_SECONDS", "0"),
        ("API_KEYS", "anna"),
    ],
)
def test_wrong_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"FORECASTER_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_a_protection_that_is_gone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0"):
        monkeypatch.setenv("FORECASTER_RATE", value)
        create_app()
    monkeypatch.setenv("FORECASTER_RATE", "60")
    with pytest.raises(ConfigError, match=r"\$FORECASTER_RATE is gone: see limit_req"):
        create_app()


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORECASTER_MAX_BATCH", "x")
    with pytest.raises(ConfigError, match=r"\$FORECASTER_MAX_BATCH: .*got 'x'"):
        create_app()


def test_keys_are_hashes_with_names(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = f"anna:{'0a' * 32},bob:{'1b' * 32}"
    monkeypatch.setenv("FORECASTER_API_KEYS", keys)
    assert Settings().api_keys == tuple(keys.split(","))


@pytest.mark.parametrize("keys", ["swordfish", "anna:swordfish", "0a" * 32, "a b:" + "0a" * 32])
def test_what_is_no_hash_is_refused_and_not_told(
    keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORECASTER_API_KEYS", keys)
    with pytest.raises(ConfigError, match=r"\$FORECASTER_API_KEYS: .* --new-key NAME") as error:
        create_app()
    assert keys not in str(error.value)
