"""Clients that are slow, silent or many, on real sockets of a server in this process."""

import json
import math
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import uvicorn

from forecaster.forecast.predictor import Predictor
from forecaster_service import protocol
from forecaster_service.app import create_app
from forecaster_service.server import HOW
from forecaster_service.settings import Settings
from tests.service.processes import everything, free_port, get, head, until
from tests.service.toy import NAME

GET = head(start=("GET /livez HTTP/1.1", "Host: localhost"))
LAST = get("/livez")
POST = head()[:-2]
CHUNKED = head("Transfer-Encoding: chunked")
LARGE = b"GET /static-offline-docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATIENCE = 60


class Service:
    """A service on a port of this machine, and its parts that cannot be seen from outside."""

    def __init__(self, **settings):
        self.app, self.port = create_app(Settings(**settings)), free_port()
        config = uvicorn.Config(self.app, port=self.port, **{**HOW, "timeout_keep_alive": 3})
        self.server = uvicorn.Server(config)

    @contextmanager
    def running(self):
        thread = threading.Thread(target=self.server.run)
        thread.start()
        try:
            until(lambda: self.server.started and self.app.state.store.status != "loading")
            yield self
        finally:
            self.server.should_exit = True
            thread.join()

    def client(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def closed(self, reason):
        return self.app.state.metrics.closed.labels(reason)._value.get()

    @property
    def connections(self):
        return len(self.server.server_state.connections)


def whole(connection):
    """Receive an answer in JSON, which may come in two parts."""
    received = b""
    while not received.endswith(b"}"):
        chunk = connection.recv(2**16)
        assert chunk
        received += chunk
    return received


def drip(connection, piece):
    """Send a piece every now and then until the server closes; returns its answer."""
    with suppress(ConnectionError):
        end = time.monotonic() + PATIENCE / 2
        while time.monotonic() < end:
            connection.sendall(piece)
            time.sleep(0.05)
            with suppress(BlockingIOError):
                if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    break
    return everything(connection)


def is_problem(answer, status):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:80]
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    problem = json.loads(body)
    assert f"x-request-id: {problem['instance'].rpartition(':')[2]}".encode() in head
    return bool(problem["status"] == status)


@pytest.fixture(scope="module")
def service(folder):
    """A service with a model that waits for a second."""
    with Service(model=str(folder), receive_seconds=1).running() as service:
        yield service


def test_who_says_nothing_is_told_nothing(service):
    with service.client() as connection:
        assert everything(connection) == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "piece", "statuses"),
    [
        (GET[:-2], b"", [408]),
        (CHUNKED + b"9\r\n{", b"", [408]),
        (GET + b"G", b"", [200, 408]),
        (GET[:-2], b"X-A: b\r\n", [408]),
        (POST + b"Content-Length: 100000\r\n\r\n", b" ", [408]),
        (CHUNKED + b"0\r\n", b"X-A: b\r\n", [408]),
        # answered before it has been read
        (CHUNKED.replace(b"json", b"text"), b"1\r\n \r\n", [415]),
    ],
)
def test_half_a_request_or_a_little_at_a_time_is_408(service, sent, piece, statuses):
    before = service.closed("408")
    with service.client() as connection:
        connection.sendall(sent)
        received = drip(connection, piece) if piece else everything(connection)
    answers = received.split(b"HTTP/1.1 ")[1:]
    assert [int(each[:3]) for each in answers] == statuses
    assert service.closed("408") == before + 1
    assert 415 in statuses or is_problem(b"HTTP/1.1 " + answers[-1], 408)
    until(lambda: service.connections == 0)


@pytest.mark.slow
def test_an_answer_before_the_end_of_a_request_ends_nothing(service):
    """The next request has its own time limit, and the wait for it ends."""
    with service.client() as connection:
        for _ in range(6):
            connection.sendall(CHUNKED.replace(b"json", b"text"))
            assert whole(connection).startswith(b"HTTP/1.1 415")
            connection.sendall(b"0\r\n\r\n")
            time.sleep(0.25)
        assert everything(connection) == b""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "status"), [(GET[20:], b"200"), (b"", b"408")])
def test_a_busy_service_gives_the_time_anew(service, end, status):
    with service.client() as connection:
        connection.sendall(GET[:20])
        connections = service.server.server_state.connections
        until(lambda: [each for each in list(connections) if each.received])
        next(iter(connections)).loop.call_soon_threadsafe(time.sleep, 3)
        connection.sendall(end)
        assert connection.recv(2**16)[9:12] == status


@pytest.mark.slow
def test_who_sends_much_may_take_longer(service):
    with service.client() as connection:
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % (3 * 2**18))
        for _ in range(3):
            connection.sendall(b" " * 2**18)
            time.sleep(0.5)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 400")  # these are no JSON


@pytest.mark.slow
def test_who_does_not_read_is_closed(service):
    """The buffers of the system are not counted, so more is requested."""
    before = service.closed("unread")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(LARGE * 10)
        with service.client() as other:
            other.sendall(GET)
            assert other.recv(2**16).startswith(b"HTTP/1.1 200")
        until(lambda: service.closed("unread") == before + 1)
    until(lambda: service.connections == 0)


@pytest.mark.slow
def test_who_reads_slowly_gets_it_all():
    received = 0
    with Service(receive_seconds=5).running() as service, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(LARGE * 5)
        connections = service.server.server_state.connections
        until(lambda: [each for each in list(connections) if each.unread_until < math.inf])
        while received < 5_000_000:
            received += len(connection.recv(2**16))
            time.sleep(0.01)
        assert service.closed("unread") == 0


@pytest.mark.slow
def test_a_forecast_may_take_longer_than_its_request(folder, monkeypatch):
    answer = Predictor.answer
    slow = lambda *given: (time.sleep(1.5), answer(*given))[1]  # noqa: E731
    monkeypatch.setattr(Predictor, "answer", slow)
    served = Service(model=str(folder), receive_seconds=0.3)
    with served.running() as service, service.client() as connection:
        path = f"/models/{NAME}/example".encode()
        connection.sendall(GET.replace(b"/livez", path))
        body = whole(connection).partition(b"\r\n\r\n")[2]
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (GET[:-2], b"X-A: b\r\n" * 100),
        (GET[:-2] + b"X-A: ", b"a" * 1000),
        (CHUNKED + b"1;x=", b"a" * 1000),
        (CHUNKED + b"0\r\nX-A: ", b"a" * 1000),
    ],
)
def test_heads_that_are_long_or_without_an_end_are_431(service, start, piece):
    before = service.closed("431")
    with service.client() as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(start)
            for _ in range(1000):
                connection.sendall(piece)
                time.sleep(0.001)
        answer = everything(connection)
    assert answer == b"" or is_problem(answer, 431)  # a client that goes on sending may lose it
    until(lambda: service.closed("431") == before + 1)
    until(lambda: service.connections == 0)


UPGRADE = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==")


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (get("/livez", "X-A: " + "a" * 16_000), [b"200"]),
        (GET + GET.replace(b"/livez", b"/nothing") + LAST, [b"200", b"404", b"200"]),
        (get("/livez", *UPGRADE).replace(b"close", b"Upgrade"), [b"200"]),
        # what follows a body is no header
        (CHUNKED + b"2\r\n{}\r\n0\r\nX-Request-ID: mine\r\n\r\n", [b"400"]),
    ],
    ids=["a usual head", "requests without a wait", "an upgrade", "a trailer"],
)
def test_requests_are_answered_in_their_order(service, sent, statuses):
    with service.client() as connection:
        connection.sendall(sent)
        answer = everything(connection)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == statuses
    assert b"mine" not in answer


def test_the_leave_to_go_on_is_given_at_once(service):
    with service.client() as connection:
        connection.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(b"{}")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 422")


def test_the_oldest_idle_connection_makes_room():
    with Service(max_connections=3).running() as service:
        with service.client() as first, service.client() as second, service.client() as third:
            until(lambda: service.connections == 3)  # or the others may be taken after its request
            first.sendall(GET)
            assert whole(first).startswith(b"HTTP/1.1 200")  # and is the newest again
            time.sleep(protocol.NEW)  # until then its request may be on its way
            with service.client() as fourth:
                for connection in (fourth, first, third):
                    connection.sendall(GET)
                    assert whole(connection).startswith(b"HTTP/1.1 200")
            assert everything(second) == b""
        assert service.closed("too many") == 1
