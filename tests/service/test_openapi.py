"""The promises of /openapi.json, tested with about 2,000 generated requests."""

from collections import Counter
from itertools import count
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.service.processes import Server
from tests.service.toy import NAME

load_all_checks()

INPUTS = {
    "POST /predict": 120,
    "POST /v1/predict": 20,
    "POST /invocations": 120,
    "POST /v1/timeseries/forecast": 150,
    "GET /readyz": 350,
}
"""How many requests are made, and equally many that break the description."""
NAMES = {"GET /models/{name}": 200, "GET /models/{name}/example": 500}
OTHERS = (
    "GET /models", "GET /livez", "GET /healthz", "GET /version", "GET /metrics", "GET /ping",
)  # fmt: skip
CASES = [
    *[(*case, GenerationMode.POSITIVE) for case in {**INPUTS, **NAMES}.items()],
    *[(*case, GenerationMode.NEGATIVE) for case in INPUTS.items()],
    *[(operation, 1, GenerationMode.POSITIVE) for operation in OTHERS],
]
OPTIONS = {"parameters", "params", "options"}


@pytest.fixture(scope="module")
def operations(server: Server) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    return {result.ok().label: result.ok() for result in schema.get_all_operations()}


@pytest.fixture(scope="module")
def fitting(server: Server) -> dict[str, Any]:
    """Series that fit the model, by path."""
    (series,) = server.get(f"/models/{NAME}/example")["inputs"]
    days = [f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00" for hour in range(24)]
    rows = [[day, *row] for day, row in zip(days, series["target"], strict=True)]
    theirs = {
        "type": "multivariate_time_series", "name": "x", "series": series["target"],
        "frequency": "H", "start_timestamp": series["start"],
    }  # fmt: skip
    return {
        "/predict": {"inputs": [series]},
        "/v1/predict": {"inputs": [series]},
        "/invocations": {
            "dataframe_split": {"columns": ["time", *series["columns"]], "data": rows}
        },
        "/v1/timeseries/forecast": {"model": NAME, "inputs": [theirs]},
    }


@pytest.mark.slow
def test_every_operation_is_tried(operations: dict[str, Any]) -> None:
    assert set(operations) == {*INPUTS, *NAMES, *OTHERS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize(("operation", "examples", "mode"), CASES)
def test_answers_are_those_described(
    operations: dict[str, Any],
    fitting: dict[str, Any],
    operation: str,
    examples: int,
    mode: GenerationMode,
) -> None:
    """No 5xx, and status, content type and body as described, for good and bad requests alike.

    A request that fits the description may still not fit the model, so acceptance is not required;
    but every other good one gets series that do fit. Hypothesis warns if the state of
    `random` changes while a request is drawn; any other thread of the process may do that.
    """
    number, statuses = count(), Counter[int]()

    @given(case=operations[operation].as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def try_it(case: Any) -> None:
        series = fitting.get(case.path) if mode is GenerationMode.POSITIVE else None
        if series and next(number) % 2:
            options = {key: value for key, value in case.body.items() if key in OPTIONS}
            case.body = {**options, **series}
        answer = case.call()
        statuses[answer.status_code] += 1
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    try_it()
    if mode is GenerationMode.POSITIVE:
        assert statuses[200] or operation in NAMES, statuses
    else:
        assert statuses[422], statuses
