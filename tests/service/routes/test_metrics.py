import pytest
from fastapi.testclient import TestClient


def test_the_format_is_that_of_prometheus(
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE forecaster_requests_total counter" in answer.text
    assert "/metrics" not in capsys.readouterr().err
