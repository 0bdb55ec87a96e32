from tests.service.toy import NAME, start


def test_head_is_get_without_the_body(client):
    for path in (
        "/", "/livez", "/readyz", "/healthz", "/version", "/models", f"/models/{NAME}",
        f"/models/{NAME}/example", "/docs", "/openapi.json", "/page/page.js", "/models/none",
    ):  # fmt: skip
        asked, got = client.head(path), client.get(path)
        assert (asked.status_code, asked.content) == (got.status_code, b"")
        assert got.content
        assert asked.headers["x-content-type-options"] == "nosniff"
        kept, expected = ({**each.headers, "x-request-id": ""} for each in (asked, got))
        if path == "/models/none":  # its body contains the request's id
            kept["content-length"] = expected["content-length"]
        assert kept == expected


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
