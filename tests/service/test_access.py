from hashlib import sha256
from unittest.mock import Mock

import pytest

from forecaster_service import middleware
from tests.service.toy import NAME, start

KEY, OTHER = "s3cret-of-anna", "s3cret-of-bob"
KEYS = tuple(
    f"{name}:{sha256(key.encode()).hexdigest()}" for name, key in (("anna", KEY), ("bob", OTHER))
)
PROBLEM = "application/problem+json"


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keyed(folder):
    with start(model=str(folder), api_keys=KEYS) as client:
        yield client


class TestKeys:
    def test_everything_but_probes_page_and_docs_wants_one(self, keyed):
        for path in (
            "/livez", "/readyz", "/healthz", "/version", "/", "/page/page.js", "/docs",
            "/openapi.json", "/static-offline-docs/swagger-ui.css",
        ):  # fmt: skip
            assert keyed.get(path).status_code == 200
        for path in (
            "/predict", "/v1/predict", "/models", f"/models/{NAME}/example", "/metrics",
            "/nothing", "/page", "/livez/", "//livez", "/LIVEZ", "/docs/../models",
        ):  # fmt: skip
            for method in ("GET", "POST"):
                answer = keyed.request(method, "http://localhost" + path)
                assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
                assert answer.headers["www-authenticate"] == 'Bearer realm="forecaster"'

    def test_each_opens_all_and_a_wrong_one_is_none(self, keyed):
        for key in (KEY, OTHER):
            example = keyed.get(f"/models/{NAME}/example", headers=bearer(key)).json()
            assert keyed.post("/predict", json=example, headers=bearer(key)).status_code == 200
        odd = {"authorization": f"bearer  {KEY}"}
        assert keyed.get("/metrics", headers=odd).status_code == 200
        other_schemes = ("", KEY, f"Basic {KEY}", "Bearer\t" + KEY)
        wrong = ("", KEY[:-1], KEY.upper(), KEYS[0], "x" * 10_000, "é")
        for header in (*other_schemes, "Bearer", *(f"Bearer {key}" for key in wrong)):
            answer = keyed.get("/models", headers={"Authorization": header.encode()})
            assert answer.status_code == 401
            told = 'error="invalid_token"' in answer.headers["www-authenticate"]
            assert told == (header not in other_schemes)

    def test_all_hashes_are_compared_in_constant_time(self, keyed, monkeypatch):
        compared = Mock(wraps=middleware.compare_digest)
        monkeypatch.setattr(middleware, "compare_digest", compared)
        for key in (KEY, OTHER, "wrong"):
            keyed.get("/models", headers=bearer(key))
        assert compared.call_count == 6

    def test_no_key_is_ever_told(self, capsys):
        with start(api_keys=KEYS) as client:
            asked = [("/models", key) for key in (KEY, OTHER, "wrong-s3cret")]
            asked += [(f"/x?key={KEY}", "x"), ("/metrics", KEY), ("/nothing", KEY)]
            texts = [client.get(path, headers=bearer(key)).text for path, key in asked]
        log = capsys.readouterr().err
        for text in (*texts, log):
            assert "s3cret" not in text
            assert not any(key.partition(":")[2] in text for key in KEYS)
        assert '"key": "anna"' in log

    def test_openapi_tells_of_them(self, keyed, client):
        schema = keyed.get("/openapi.json").json()
        assert schema["components"]["securitySchemes"] == {
            "key": {"type": "http", "scheme": "bearer"}
        }
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                wanted = path not in middleware.OPEN
                assert ("security" in operation) == wanted
                assert ("401" in operation["responses"]) == wanted
        assert "/predict" in schema["paths"]
        assert "security" not in client.get("/openapi.json").text


def test_pages_of_others_cannot_send(client, flat):
    site, own = "Sec-Fetch-Site", {"Origin": "http://localhost"}
    ours = [{}, own, {"Origin": "http://LOCALHOST:8000"}, {site: "none"}]
    ours += [{site: "same-origin", **own}]
    theirs = [{site: "cross-site", **own}, {site: "same-site", "Origin": "http://localhost:9"}]
    for odd in ("localhost.evil.example", "evil.example/localhost", "127.0.0.1", "["):
        theirs += [{"Origin": f"http://{odd}"}]
    for headers in (*ours, *theirs, {"Origin": "null"}, {"Origin": ""}):
        answer = client.post("/predict", json=flat, headers=headers)
        assert answer.status_code == (200 if headers in ours else 403)
        assert "access-control" not in str(answer.headers)
        assert client.get("/models", headers=headers).status_code == 200
