import pytest

from tests.service.toy import NAME, start

PATHS = (
    "/", "/livez", "/readyz", "/healthz", "/ping", "/version", "/models", f"/models/{NAME}",
    f"/models/{NAME}/example", "/metrics", "/docs", "/openapi.json", "/page/page.js",
    "/models/none",
)  # fmt: skip


class TestHead:
    @pytest.mark.parametrize("path", PATHS)
    def test_it_is_get_without_the_body(self, client, path):
        asked, got = client.head(path), client.get(path)
        assert (asked.status_code, asked.content) == (got.status_code, b"")
        assert got.content
        for answer in (asked, got, client.delete(path)):
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert set(asked.headers) == set(got.headers)
        changing = {"x-request-id"}
        if path in ("/metrics", "/models/none"):  # the latter contains the request's id
            changing.add("content-length")
        for name in set(got.headers) - changing:
            assert asked.headers[name] == got.headers[name]

    def test_it_is_counted_by_its_route_and_logged_as_it_is(self, client, capsys):
        assert client.head("/predict").status_code == 405
        client.head(f"/models/{NAME}")
        assert 'route="/models/{name:path}"' in client.get("/metrics").text
        assert '"method": "HEAD"' in capsys.readouterr().err


def test_while_the_service_ends_each_answer_is_the_last_of_its_connection(folder):
    with start(model=str(folder)) as client:
        body = client.get(f"/models/{NAME}/example").json()
        asked = [("GET", "/livez"), ("GET", "/readyz"), ("POST", "/predict"), ("GET", "/nothing")]

        def closed():
            answers = [client.request(method, path, json=body) for method, path in asked]
            return [answer.headers.get("connection") for answer in answers]

        assert closed() == [None] * 4
        client.app.state.store.draining = True
        assert closed() == ["close"] * 4
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["detail"]) == (503, "the service is ending")
        assert client.get("/livez").status_code == 200
        assert client.post("/predict", json=body).status_code == 200
