from hashlib import sha256
from unittest.mock import Mock

import pytest

from forecaster_service import access
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
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_everything_else_wants_one(self, keyed, method):
        for path in (
            "/predict", "/v1/predict", "/models", f"/models/{NAME}/example", "/metrics",
            "/nothing", "/page", "/livez/", "//livez", "/LIVEZ", "/docs/../models",
        ):  # fmt: skip
            answer = keyed.request(method, "http://localhost" + path)
            assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
            assert answer.headers["www-authenticate"] == 'Bearer realm="forecaster"'

    def test_probes_page_and_docs_are_open(self, keyed):
        for path in (
            "/livez", "/readyz", "/healthz", "/version", "/", "/page/page.js", "/docs",
            "/openapi.json", "/static-offline-docs/swagger-ui.css",
        ):  # fmt: skip
            assert keyed.get(path).status_code == 200

    @pytest.mark.parametrize("key", [KEY, OTHER])
    def test_each_opens_all(self, keyed, key):
        example = keyed.get(f"/models/{NAME}/example", headers=bearer(key)).json()
        assert keyed.post("/predict", json=example, headers=bearer(key)).status_code == 200
        assert keyed.get("/metrics", headers={"authorization": f"bearer  {key}"}).status_code == 200

    @pytest.mark.parametrize(
        "header",
        [
            *["", KEY, f"Basic {KEY}", "Bearer", "Bearer ", "Bearer\t" + KEY],  # another scheme
            *[f"Bearer {key}" for key in (KEY[:-1], KEY.upper(), KEYS[0], "x" * 10_000, "é")],
        ],
    )
    def test_a_wrong_one_is_none(self, keyed, header):
        answer = keyed.get("/models", headers={"Authorization": header.encode()})
        assert answer.status_code == 401
        wrong = 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert wrong == (header.partition(" ")[0] == "Bearer")

    def test_all_hashes_are_compared_in_constant_time(self, keyed, monkeypatch):
        compared = Mock(wraps=access.compare_digest)
        monkeypatch.setattr(access, "compare_digest", compared)
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
        for path, operations in keyed.get("/openapi.json").json()["paths"].items():
            for operation in operations.values():
                wanted = path not in access.OPEN
                assert ("security" in operation) == ("401" in operation["responses"]) == wanted
        assert "security" not in client.get("/openapi.json").text


SITE = "Sec-Fetch-Site"


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ({}, False),
        *(({"Origin": f"http://{host}"}, False) for host in ("localhost", "LOCALHOST:8000")),
        ({"Origin": "http://localhost.evil.example"}, True),
        ({"Origin": "http://evil.example/localhost"}, True),
        *(({"Origin": odd}, True) for odd in ("http://127.0.0.1", "null", "", "http://[")),
        ({SITE: "same-origin", "Origin": "http://localhost"}, False),
        ({SITE: "none"}, False),
        ({SITE: "cross-site", "Origin": "http://localhost"}, True),
        ({SITE: "same-site", "Origin": "http://localhost:9"}, True),
    ],
)
def test_pages_of_others_cannot_send(client, flat, headers, foreign):
    answer = client.post("/predict", json=flat, headers=headers)
    assert answer.status_code == (403 if foreign else 200)
    assert "access-control" not in str(answer.headers)
    assert client.get("/models", headers=headers).status_code == 200
