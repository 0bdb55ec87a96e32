"""When a request arrived, by a proxy that is trusted."""

from time import monotonic, time
from typing import Any

import anyio
import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from forecaster_service.answers import LONGEST, arrived


def age(said: str | None, trusted: tuple[str, ...] = ("10.0.0.0/8",), client: Any = None) -> float:
    """How many seconds before its head was read a request counts as arrived."""
    found: list[float] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(monotonic() - arrived(scope))

    headers = [(b"x-forwarded-for", b"192.0.2.1")]
    headers += [] if said is None else [(b"x-request-start", said.encode())]
    scope = {"type": "http", "headers": headers, "client": client or ("10.1.2.3", 1), "state": {}}
    anyio.run(ProxyHeadersMiddleware(app, list(trusted)), scope, None, None)  # type: ignore[arg-type]
    return found[0]


@pytest.mark.parametrize(
    ("form", "unit"), [("t={:.3f}", 1), ("{:.3f}", 1), ("t={:.0f}", 1e3), ("{:.0f}", 1e6)]
)
def test_a_trusted_proxy_says_when(form: str, unit: float) -> None:
    assert age(form.format((time() - 7) * unit)) == pytest.approx(7, abs=1)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, 0), ("", 0), ("t=", 0), ("nonsense", 0), ("t=nan", 0), ("t=inf", 0), ("-5", 0),
        ("1e9", 0), ("t=" + "9" * 30_000, 0), ("1_000", 0), ("t=1", LONGEST), ("0", LONGEST),
        ("t=9999999999.999", 0),
    ],
)  # fmt: skip
def test_nonsense_counts_for_nothing_and_all_is_within_bounds(
    said: str | None, seconds: float
) -> None:
    assert age(said) == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize(
    ("trusted", "client", "believed"),
    [
        (("*",), ("1.2.3.4", 1), True),
        (("1.2.3.4",), ("1.2.3.4", 1), True),
        (("1.2.0.0/16", "name"), ("1.2.3.4", 1), True),
        (("name",), ("name", 1), True),
        (("::1",), ("::1", 1), True),
        (("0.0.0.0",), ("1.2.3.4", 1), False),
        (("0.0.0.0",), None, False),
        (("1.2.3.5",), ("1.2.3.4", 1), False),
        (("10.0.0.0/8",), ("name", 1), False),
    ],
)
def test_only_a_trusted_proxy(trusted: tuple[str, ...], client: Any, believed: bool) -> None:
    assert (age(f"t={time() - 9:.3f}", trusted, client) > 5) is believed


def test_a_deadline_counts_from_there(folder: Any, flat: dict[str, Any]) -> None:
    from tests.service.toy import start

    by_proxy = {"X-Forwarded-For": "192.0.2.1"}
    late = {**by_proxy, "X-Request-Start": f"t={time() - 40:.3f}"}
    for trusted, status in ((("testclient",), 503), ((), 200)):
        with start(model=str(folder), trusted_proxies=trusted) as client:
            answer = client.post("/predict", json=flat, headers=late)
            assert answer.status_code == status
    with start(model=str(folder), trusted_proxies=("testclient",)) as client:
        late = {**by_proxy, "X-Request-Start": f"t={time() - 20:.3f}"}
        assert client.post("/predict", json=flat, headers=late).status_code == 200
