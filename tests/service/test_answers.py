import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.toy import NAME, start

PATHS = (
    "/", "/livez", "/readyz", "/healthz", "/ping", "/version", "/models", f"/models/{NAME}",
    f"/models/{NAME}/example", "/metrics", "/docs", "/openapi.json", "/page/page.js",
    "/models/none",
)  # fmt: skip


class TestHead:
    @pytest.mark.parametrize("path", PATHS)
    def test_it_is_get_without_the_body(self, client: TestClient, path: str) -> None:
        asked, got = client.head(path), client.get(path)
        assert (asked.status_code, asked.content) == (got.status_code, b"")
        assert got.content
        differ = {"x-request-id", "content-length"} if path == "/metrics" else {"x-request-id"}
        for name in set(got.headers) - differ:
            length = (
                name == "content-length" and path == "/models/none"
            )  # it contains the request's id
            assert length or asked.headers[name] == got.headers[name]
        assert set(asked.headers) == set(got.headers)

    def test_what_is_posted_has_none(self, client: TestClient) -> None:
        answer = client.head("/predict")
        assert (answer.status_code, answer.content) == (405, b"")

    def test_it_is_counted_by_its_route_and_logged_as_it_is(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with start(model=str(folder)) as client:
            client.head(f"/models/{NAME}")
            assert 'route="/models/{name:path}"' in client.get("/metrics").text
        assert '"method": "HEAD"' in capsys.readouterr().err


def test_while_the_service_ends_each_answer_is_the_last_of_its_connection(folder: Path) -> None:
    with start(model=str(folder)) as client:
        body = client.get(f"/models/{NAME}/example").json()
        asked = [("GET", "/livez"), ("GET", "/readyz"), ("POST", "/predict"), ("GET", "/nothing")]

        def closed() -> list[str | None]:
            answers = [client.request(method, path, json=body) for method, path in asked]
            return [answer.headers.get("connection") for answer in answers]

        assert closed() == [None] * 4
        client.app.state.store.draining = True  # type: ignore[attr-defined]
        assert closed() == ["close"] * 4


def test_generated_clients_have_good_names(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    names = {
        (method, path): told["operationId"]
        for path, methods in paths.items()
        for method, told in methods.items()
    }
    assert len(set(names.values())) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z0-9]+)?", name) for name in names.values())
    assert names["post", "/predict"] == "predict"
    assert names["get", "/models"] == "list_models"
    assert names["get", "/models/{name}"] == "get_model"
    assert names["get", "/models/{name}/example"] == "get_example"


@pytest.mark.parametrize("path", PATHS)
def test_no_answer_is_taken_for_another_type(client: TestClient, path: str) -> None:
    assert client.get(path).headers.get_list("x-content-type-options") == ["nosniff"]
    assert client.delete(path).headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/ping", "GET"), ("/predict", "POST"), ("/livez", "GET"), (f"/models/{NAME}", "GET")],
)
def test_a_wrong_method_is_told_all_right_ones(client: TestClient, path: str, methods: str) -> None:
    answer = client.delete(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
