"""What /openapi.json promises, tried out by a generator of requests."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.service.processes import Server

load_all_checks()

WITH_INPUT = ("POST /predict", "POST /v1/predict", "GET /readyz")
OTHERS = ("GET /models", "GET /models/{name}/example", "GET /livez", "GET /healthz", "GET /version")
CASES = [
    *[(operation, GenerationMode.POSITIVE) for operation in (*WITH_INPUT, *OTHERS)],
    *[(operation, GenerationMode.NEGATIVE) for operation in WITH_INPUT],
]


@pytest.fixture(scope="module")
def operations(server: Server) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    return {result.ok().label: result.ok() for result in schema.get_all_operations()}


@pytest.mark.slow
def test_every_operation_is_tried(operations: dict[str, Any]) -> None:
    assert set(operations) == {*WITH_INPUT, *OTHERS}


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_answers_are_those_described(
    operations: dict[str, Any], operation: str, mode: GenerationMode
) -> None:
    """No 5xx, and status, content type and body as described, for good and bad requests alike.

    A request that fits the description may still not fit the model, so acceptance is not asked.
    """

    @given(case=operations[operation].as_strategy(generation_mode=mode))
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    def try_it(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    try_it()
