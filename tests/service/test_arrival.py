"""When a request arrived, by a proxy that is trusted."""

from time import monotonic, time

import anyio
import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from forecaster_service.middleware import LONGEST, arrived
from tests.service.toy import start


def age(said, trusted=("10.0.0.0/8",), client=None):
    """How many seconds before its head was read a request counts as arrived."""
    found = []

    async def app(scope, receive, send):
        found.append(monotonic() - arrived(scope))

    headers = [(b"x-forwarded-for", b"192.0.2.1")]
    headers += [] if said is None else [(b"x-request-start", said.encode())]
    scope = {"type": "http", "headers": headers, "client": client or ("10.1.2.3", 1), "state": {}}
    anyio.run(ProxyHeadersMiddleware(app, list(trusted)), scope, None, None)
    return found[0]


NONSENSE = (None, "", "t=", "nonsense", "t=nan", "t=inf", "-5", "1_000", "1e9", "t=9999999999.999")


def test_a_trusted_proxy_says_when_but_nonsense_counts_for_nothing():
    for form in ("t={:.3f}", "{:.3f}"):
        assert age(form.format(time() - 7)) == pytest.approx(7, abs=1)
    for said in (*NONSENSE, "t=1", "0"):
        assert age(said) == pytest.approx(0 if said in NONSENSE else LONGEST, abs=1)


def test_only_a_trusted_proxy():
    host = ("1.2.3.4", 1)
    believed = [("1.2.0.0/16", host), ("name", ("name", 1))]
    for trusted, client in (*believed, ("0.0.0.0", host), ("0.0.0.0", None)):
        found = age(f"t={time() - 9:.3f}", (trusted,), client) > 5
        assert found == ((trusted, client) in believed)


def test_a_deadline_counts_from_there(folder, flat):
    cases = [("testclient", 40, 503), ("testclient", 20, 200), ("", 40, 200)]
    for trusted, seconds, status in cases:
        late = {"X-Forwarded-For": "192.0.2.1", "X-Request-Start": f"t={time() - seconds:.3f}"}
        with start(model=str(folder), trusted_proxies=trusted) as client:
            assert client.post("/predict", json=flat, headers=late).status_code == status
