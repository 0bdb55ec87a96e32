"""Nothing that a stranger sends costs more than in proportion to its length.

Each shape is tried at two lengths, by processor time: what is steeper than linear fails.
"""

import gc
import importlib
import inspect
import pkgutil
import re
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

import forecaster.datasets
import forecaster.forecast.question
import forecaster_service
from forecaster.base.errors import ForecasterError
from forecaster.datasets.reader import dialect
from forecaster_service.body import parse
from forecaster_service.http_errors import HttpError
from forecaster_service.middleware import _foreign
from forecaster_service.request import ARRAYS, ForecastRequest
from forecaster_service.routes.read import _read
from forecaster_service.settings import Settings

SMALL, LARGE = 2**14, 2**17
STEEP, NOISE = 4.0, 0.03
"""How many times steeper than linear fails, and seconds that are no measurement."""
PIECES = [
    b'\\"', b'"', b"\\", b'"\\', b"[", b"]", b"{", b"[]", b"{}", b"[[]],", b"{},", b'{"a":',
    b'"a":1,', b"1", b"-", b"0", b"1.", b".5", b"1e", b"1.5,", b"null,", b"NaN,", b" ", b",", b":",
    b"\\ud800", b"\xff", b"\xc3\xa9", b"\x00", b"2018-06-26T00:00:00", b"00:00:00", b"a.", b"/",
    b"@", b"; q=0.", b"*/*,", b"T", b"+00:00", b"12/31/", b"1,234.", b"%", b"t=", b"W",
]  # fmt: skip
WRAPS = [(b"", b""), (b'"', b'"'), (b"[", b"]"), (b'{"target": [', b"1]}"), (b'{"a": "', b'"}')]
REQUEST: TypeAdapter[Any] = TypeAdapter(ForecastRequest)


@pytest.fixture(autouse=True)
def tuned(client):
    """The garbage collector as in a service, which leaves alone what is older."""
    gc.freeze()
    yield
    gc.unfreeze()


def seconds(call, given):
    """The processor time of a call."""
    began = thread_time()
    with suppress(HttpError, ValidationError, ValueError, ForecasterError):
        call(given)
    return thread_time() - began


def is_linear(call, make):
    small, large = make(SMALL), make(LARGE)
    most = STEEP * (LARGE / SMALL) * min(seconds(call, small) for _ in range(2)) + NOISE
    assert any(seconds(call, large) < most for _ in range(2))


def read(body):
    """What happens to a body until it is refused or fits no model."""
    try:
        REQUEST.validate_python(parse(body, Settings()), context=ARRAYS)
    except ValidationError as error:
        error.errors(include_url=False)
    except HttpError:
        pass


@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_bodies_and_origins_of_one_piece(piece):
    for before, after in WRAPS:
        is_linear(read, lambda n, a=before, b=after: a + piece * (n // len(piece)) + b)
    # heads have 32 KiB at most; here they have more
    is_linear(_foreign, lambda n: {b"origin": piece * (n // len(piece)), b"host": b"localhost"})


@pytest.mark.parametrize(
    ("body", "item"),
    [
        *((b'{"target": [%s]}', item) for item in (b"[1.5]", b"[1,null]", b"1" * 4000)),
        (b'{"target": [%s,["x"]]}', b"[1.5]"),
        (b'{"target": [1], "columns": [%s]}', b'"abc"'),
        (b'{"inputs": [%s]}', b'{"target":[1]}'),
    ],
)
def test_bodies_of_long_lists(body, item):
    is_linear(read, lambda n: body % b",".join([item] * (n // len(item))))


def test_bodies_of_many_keys():
    is_linear(read, lambda n: b"{%s}" % b",".join(b'"%d":1' % i for i in range(n // 10)))


MODULES = [
    importlib.import_module(found.name)
    for package in (forecaster_service, forecaster.datasets)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
] + [forecaster.forecast.question]
PATTERNS = {
    value: f"{module.__name__}.{name}"
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern) and value is not dialect._NUMBER  # `shape` limits it
}
"""All compiled patterns of the service and of what reads data."""


@pytest.mark.parametrize("pattern", PATTERNS, ids=[*PATTERNS.values()])
def test_patterns(pattern):
    for piece in PIECES:
        for end in (b"", b"!"):

            def make(n, piece=piece, end=end):
                text = piece * (n // len(piece)) + end
                return text if isinstance(pattern.pattern, bytes) else text.decode("latin-1")

            is_linear(pattern.match, make)
            is_linear(pattern.fullmatch, make)


def test_no_pattern_is_searched_for():
    """Searching is quadratic for most patterns: they begin again at each place."""
    for module in MODULES:
        if module.__name__.startswith("forecaster_service"):
            assert not re.search(r"\.(search|sub|findall|finditer)\(", inspect.getsource(module))


@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_texts_of_tables(client, piece):
    served = client.app.state.store.slots[0].served
    head = "time,load,wind,Zürich °C\n".encode()
    read = partial(_read, served=served, settings=Settings(), item=None, short="refuse")
    for row in (piece, piece + b"\n", b"2026-01-01," + piece + b",1,1\n"):
        for apart in (False, True):
            is_linear(partial(read, apart=apart), lambda n, row=row: head + row * (n // len(row)))
