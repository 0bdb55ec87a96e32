"""Nothing that a stranger sends costs more than in proportion to its length.

Each shape is tried at two lengths, by processor time: what is steeper than linear fails.
"""

import gc
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import thread_time
from types import ModuleType
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

import forecaster.datasets
import forecaster_service
from forecaster.base.errors import ForecasterError
from forecaster.datasets.reader import clock, dialect
from forecaster_service import answers
from forecaster_service.access import _foreign
from forecaster_service.app import _tune_interpreter
from forecaster_service.body import parse
from forecaster_service.foreign import ScoringRequest, TimeSeriesRequest
from forecaster_service.http_errors import HttpError
from forecaster_service.routes import invocations
from forecaster_service.schemas import ARRAYS, ForecastRequest
from forecaster_service.settings import Settings

SMALL, LARGE = 2**15, 2**18
STEEP, NOISE = 4.0, 0.03
"""How many times steeper than linear fails, and seconds that are no measurement."""
PIECES = [
    b'\\"', b'"', b"\\", b"\\\\", b'"\\', b"[", b"]", b"{", b"}", b"[]", b"{}", b"[[]],", b"{},",
    b'"":', b'{"a":', b'"a":1,', b"1", b"-", b"0", b"1.", b".5", b"1e", b"9,", b"1.5,", b"null,",
    b"true,", b"NaN,", b" ", b"\t\n", b",", b":", b'" :', b'"a" ', b"\\ud800", b'"\\ud83d\\ude00",',
    b"\xff", b"\xc3\xa9", b"\x00", b"2018-06-26T00:00:00", b"00:00:00", b"a", b"a.", b"/", b"@",
    b"; q=0.", b"q=0.5,", b"*/*,", b"T", b"+00:00", b"12/31/", b"1,234.", b"%", b"=", b"t=", b"W",
]  # fmt: skip
WRAPS = [(b"", b""), (b'"', b'"'), (b"[", b"]"), (b'{"target": [', b"1]}"), (b'{"a": "', b'"}')]
BODIES: dict[str, Callable[[int], bytes]] = {
    "rows": lambda n: b'{"target": [' + b",".join([b"[1.5]"] * (n // 6)) + b"]}",
    "a bad row at the end": lambda n: b'{"target": [' + b"[1.5]," * (n // 6) + b'["x"]]}',
    "missing values": lambda n: b'{"target": [' + b",".join([b"[1,null]"] * (n // 9)) + b"]}",
    "keys": lambda n: b"{" + b",".join(b'"%d":1' % i for i in range(n // 10)) + b"}",
    "one key again and again": lambda n: b"{" + b",".join([b'"a":1'] * (n // 6)) + b"}",
    "names": lambda n: b'{"target": [1], "columns": [' + b",".join([b'"abc"'] * (n // 6)) + b"]}",
    "series": lambda n: b'{"inputs": [' + b",".join([b'{"target":[1]}'] * (n // 15)) + b"]}",
    "records": lambda n: b'{"instances": [' + b",".join([b'{"a":1}'] * (n // 8)) + b"]}",
    "digits": lambda n: b'{"target": [' + b"1" * n + b"]}",
    "numbers of 4000 digits": lambda n: b'{"target": [' + b",".join([b"1" * 4000] * (n // 4001))
    + b"]}",
    "a fraction": lambda n: b'{"target": [0.' + b"1" * n + b"]}",
    "a long word": lambda n: b'{"item_id": "' + b"a" * n + b'", "target": [1]}',
}  # fmt: skip
KINDS: list[TypeAdapter[Any]] = [
    TypeAdapter(kind) for kind in (ForecastRequest, ScoringRequest, TimeSeriesRequest)
]


@pytest.fixture(autouse=True)
def tuned() -> Iterator[None]:
    """The garbage collector as in a service, which leaves alone what is older."""
    gc.freeze()
    _tune_interpreter()
    yield
    gc.unfreeze()


def seconds(call: Callable[[Any], object], given: Any) -> float:
    """The processor time of a call, the least of two."""
    took = []
    for _ in range(2):
        began = thread_time()
        with suppress(HttpError, ValidationError, ValueError, ForecasterError):
            call(given)
        took.append(thread_time() - began)
    return min(took)


def is_linear(call: Callable[[Any], object], make: Callable[[int], Any]) -> None:
    small, large = seconds(call, make(SMALL)), seconds(call, make(LARGE))
    assert large < STEEP * (LARGE / SMALL) * small + NOISE, (small, large)


def read(body: bytes) -> None:
    """What happens to a body until it is refused or fits no model."""
    for kind, rows in zip(KINDS, (False, True, False), strict=True):
        try:
            kind.validate_python(parse(body, Settings(), rows_are_objects=rows), context=ARRAYS)
        except ValidationError as error:
            error.errors(include_url=False)
        except HttpError:
            pass


@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_bodies_of_one_piece(piece: bytes) -> None:
    for before, after in WRAPS:
        is_linear(read, lambda n, a=before, b=after: a + piece * (n // len(piece)) + b)


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str) -> None:
    is_linear(read, BODIES[name])


def test_no_body_costs_more_than_twice_its_parse() -> None:
    from jiter import from_json

    for name in ("rows", "missing values", "numbers of 4000 digits"):
        body = BODIES[name](2**23)
        whole = seconds(lambda body: parse(body, Settings()), body)
        assert whole < 2 * seconds(from_json, body) + NOISE, name


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(found.name)


def patterns() -> dict[str, re.Pattern[Any]]:
    """All compiled patterns of the service and of what reads data."""
    return {
        f"{module.__name__}.{name}": value
        for package in (forecaster_service, forecaster.datasets)
        for module in modules(package)
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern) and value is not dialect._NUMBER  # `shape` limits it
    }


USES: dict[str, Callable[[Any], object]] = {
    **{f"{name}.{how}": getattr(each, how) for name, each in patterns().items()
       for how in ("match", "fullmatch")},
    "shape": dialect.shape,
    "complaint": clock._complaint,
}  # fmt: skip
"""What is done with texts from strangers; nowhere is a compiled pattern searched for."""


@pytest.mark.parametrize("name", USES)
def test_texts(name: str) -> None:
    is_bytes = isinstance(getattr(getattr(USES[name], "__self__", None), "pattern", ""), bytes)
    for piece in PIECES:
        for end in (b"", b"!"):

            def make(n: int, piece: bytes = piece, end: bytes = end) -> Any:
                text = piece * (n // len(piece)) + end
                return text if is_bytes else text.decode("latin-1")

            is_linear(USES[name], make)


def test_no_pattern_is_searched_for() -> None:
    """Searching is quadratic for most patterns: they begin again at each place."""
    for module in modules(forecaster_service):
        assert not re.search(r"\.(search|sub|findall|finditer)\(", inspect.getsource(module))


@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_stamps_and_cells_of_a_table(client: TestClient, piece: bytes) -> None:
    store: Any = client.app.state.store  # type: ignore[attr-defined]
    forecaster = store.slots[0].served.forecaster
    word = (piece * 60).decode("latin-1")[:60]

    def make(n: int) -> Any:
        times = [word] * (n // 400)
        table = {"time": times, **dict.fromkeys(forecaster.schema.columns, times)}
        return KINDS[1].validate_python({"inputs": table})

    is_linear(lambda body: invocations._ask(body, Settings(), forecaster), make)


@pytest.mark.parametrize("piece", [b"a", b",", b";", b"*/*,", b"q=0.", b"a;q=1,", b"/", b"[", b":"])
def test_headers(piece: bytes) -> None:
    """They have 32 KiB at most; here they have more."""
    is_linear(lambda said: answers._age(said, 0.0), lambda n: b"t=" + piece * (n // len(piece)))
    is_linear(
        lambda origin: _foreign({b"origin": origin, b"host": b"localhost"}),
        lambda n: piece * (n // len(piece)),
    )
