"""The proxy of docker-compose.yml, as Debian's nginx with the same configuration."""

import json
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from select import POLLERR, poll
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from forecaster_service.settings import Settings
from tests.service.containers import NGINX, ROOT, folder_of_nobody, nginx
from tests.service.processes import Server, free_port
from tests.service.toy import NAME

DEPLOY = ROOT / "docs" / "operate.md"
pytestmark = pytest.mark.slow

POST = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json")
BODY = b'{"target": [1]}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Upstream(ThreadingTCPServer):
    """Stands in for the service: keeps complete requests, and gives each the same `answer`."""

    daemon_threads = True

    def __init__(self) -> None:
        self.begun = 0
        self.seen: list[bytes] = []
        self.answer = OK
        super().__init__(("127.0.0.1", 0), Connection)

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port


class Connection(BaseRequestHandler):
    server: Upstream

    def handle(self) -> None:
        self.server.begun += 1
        with suppress(ConnectionError):
            while request := self.read():
                self.server.seen.append(request)
                self.request.sendall(self.server.answer)

    def read(self) -> bytes:
        """The next request of the connection; empty once the proxy has ended it."""
        received = b""
        while not complete(received):
            received += (more := self.request.recv(65536))
            if not more:
                return b""
        return received


def complete(request: bytes) -> bool:
    """Whether these bytes are a complete request, as nginx writes them."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"^content-length: (\d+)\r?$", head, re.MULTILINE | re.IGNORECASE)
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    return bool(end) and len(body) >= int(length[1] if length else 0)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def logs(upstream: Upstream, port: int) -> Iterator[Path]:
    with nginx(port, upstream.port, lingering_timeout="1s") as folder:
        yield folder


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def hasty(upstream: Upstream) -> Iterator[int]:
    """The port of another nginx, which waits only a second for clients and for the service."""
    times = ("client_header_timeout", "client_body_timeout", "send_timeout", "proxy_read_timeout")
    with nginx(port := free_port(), upstream.port, **dict.fromkeys(times, "1s")):
        yield port


@pytest.fixture
def seen(logs: Path, upstream: Upstream) -> list[bytes]:
    """What has passed through nginx since this test began."""
    upstream.answer = OK
    upstream.seen.clear()
    return upstream.seen


@pytest.fixture(scope="module")
def proxied(server: Server) -> Iterator[Server]:
    """The service with its model, through nginx."""
    port = free_port()
    with nginx(port, server.port):
        yield Server(port, None)


def head(*lines: str, start: tuple[str, ...] = POST) -> bytes:
    return "\r\n".join((*start, *lines, "", "")).encode()


def exchange(
    port: int, parts: Iterable[bytes], pause: float = 0, source: str = "127.0.0.1"
) -> bytes:
    """What comes back until the connection is closed, which must happen within a minute."""
    with socket.create_connection(("127.0.0.1", port), 60, (source, 0)) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server did not read the rest
        return rest(connection)


WHOLE = head("Content-Length: 0", "Connection: close")


@contextmanager
def full(upstream: Upstream, zone: str) -> Iterator[int]:
    """The port of an nginx that this limit allows two requests at a time, and that has two."""
    slow = {f"limit_conn {zone}": "2", "client_body_timeout": "120s"}
    upstream.begun = 0
    with nginx(port := free_port(), upstream.port, **slow), ExitStack() as stack:
        for _ in range(2):
            waiting = socket.create_connection(("127.0.0.1", port))
            stack.enter_context(waiting).sendall(head("Content-Length: 1000"))
        end = time.monotonic() + 60
        while upstream.begun < 2:  # else a request of the test may come before them
            assert time.monotonic() < end
            time.sleep(0.05)
        yield port


def rest(connection: socket.socket) -> bytes:
    """What is received until the other side closes or resets the connection."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def problem(port: int, path: str = "/predict", body: bytes | None = None, **headers: str) -> Any:
    """The status, headers and detail of an answer that is an error."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with caught.value as error:
        assert error.headers["Content-Type"] == "application/problem+json"
        found = json.load(error)
        assert found["status"] == error.code
        assert found["instance"] == f"urn:x-request-id:{error.headers['X-Request-ID']}"
        assert set(found) == {"type", "title", "status", "detail", "instance"}
        return error.code, error.headers, found["detail"]


class TestTheServiceBehindIt:
    def test_answers_as_without_it(self, server: Server, proxied: Server) -> None:
        example = server.get(f"/models/{NAME}/example")
        assert proxied.get(f"/models/{NAME}/example") == example
        direct, through = (one.post("/predict", example) for one in (server, proxied))
        assert through["predictions"] == direct["predictions"]
        many = {"inputs": example["inputs"] * 50}
        direct, through = (one.post("/predict", many) for one in (server, proxied))
        assert through["predictions"] == direct["predictions"]

    def test_keeps_its_own_errors(self, proxied: Server) -> None:
        status, _, detail = problem(proxied.port, "/models/nobody/example")
        assert (status, detail) == (404, f"there is no such model here; the models are: {NAME}")
        with pytest.raises(urllib.error.HTTPError) as caught:
            proxied.post("/predict", {"target": "x"})
        with caught.value as error:
            assert error.code == 422
            assert json.load(error)["errors"]

    def test_still_knows_its_hosts(self, proxied: Server) -> None:
        assert problem(proxied.port, "/livez", Host="evil.example")[0] == 400

    def test_loses_no_answer_that_comes_before_the_body_is_read(self, proxied: Server) -> None:
        for _ in range(20):
            kind = {"Content-Type": "text/plain"}
            assert problem(proxied.port, body=b" " * 2**23, **kind)[0] == 415

    def test_gets_bodies_up_to_its_limit(self, proxied: Server) -> None:
        most, kind = Settings().max_body_bytes, {"Content-Type": "application/json"}
        status, _, detail = problem(proxied.port, body=b" " * most, **kind)
        assert (status, "not JSON" in detail) == (400, True)
        status, _, detail = problem(proxied.port, body=b" " * (most + 1), **kind)
        assert (status, detail) == (413, "the body is longer than 16 MiB")


class TestRequests:
    def test_arrive_as_they_were_sent(self, port: int, seen: list[bytes]) -> None:
        exchange(port, [head("Content-Length: 15", "Connection: close") + BODY])
        pieces = [b"%x\r\n%c\r\n" % (1, byte) for byte in BODY]
        chunked = head("Transfer-Encoding: chunked", "Connection: close")
        exchange(port, [chunked, *pieces, b"0\r\n\r\n"])
        for request in seen:
            assert request.startswith(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n")
        whole, parts = (request.partition(b"\r\n\r\n")[2] for request in seen)
        assert whole == BODY
        assert b"".join(parts.split(b"\r\n")[1::2]) == BODY

    def test_share_connections_to_the_service(
        self, port: int, seen: list[bytes], upstream: Upstream
    ) -> None:
        before, last = upstream.begun, head("Content-Length: 15", "Connection: close") + BODY
        for _ in range(3):  # three clients, one after the other
            received = exchange(port, [(head("Content-Length: 15") + BODY) * 2, last])
            assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
        assert len(seen) == 9
        assert upstream.begun <= before + 2  # one for each of its processes, of which are two

    def test_tell_when_they_arrived(self, port: int, seen: list[bytes]) -> None:
        before = time.time()
        forged = head("X-Request-Start: t=1", "Content-Length: 0", "Connection: close")
        exchange(port, [forged])
        (found,) = re.findall(rb"^X-Request-Start: t=(\d+\.\d{3})\r$", seen[-1], re.MULTILINE)
        assert before - 1 <= float(found) <= time.time()

    def test_keep_the_id_of_the_client(self, port: int, logs: Path, seen: list[bytes]) -> None:
        for given, kept in (("my-id.1", True), ('x" y', False), ("a" * 65, False)):
            exchange(
                port, [head(f"X-Request-ID: {given}", "Content-Length: 0", "Connection: close")]
            )
            found = re.search(rb"^X-Request-ID: (.*)\r$", seen[-1], re.MULTILINE)
            assert found is not None
            assert (found[1] == given.encode()) is kept
            assert re.fullmatch(rb"[A-Za-z0-9._-]{1,64}", found[1])
            line = json.loads((logs / "access").read_text().splitlines()[-1])
            assert line["request_id"] == found[1].decode()
            assert (line["path"], line["status"]) == ("/predict", 200)

    def test_are_told_in_the_log_but_for_probes(
        self, port: int, logs: Path, seen: list[bytes]
    ) -> None:
        for path in ("/livez", "/models?x=1"):
            start = (f"GET {path} HTTP/1.1", "Host: localhost")
            exchange(port, [head("Connection: close", start=start)])
        assert len(seen) == 2
        paths = [json.loads(line)["path"] for line in (logs / "access").read_text().splitlines()]
        assert paths[-1] == "/models"
        assert json.loads((logs / "access").read_text().splitlines()[-1])["client"] == "127.0.0.1"
        assert "/livez" not in paths

    def test_say_who_sent_them_by_what_nginx_saw(self, port: int, seen: list[bytes]) -> None:
        forged = ("X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4", "X-Forwarded-Proto: https")
        exchange(port, [head(*forged, "Content-Length: 0", "Connection: close")])
        assert b"1.2.3.4" not in seen[-1]
        assert b"https" not in seen[-1]
        assert b"\r\nX-Forwarded-For: 127.0.0.1\r\n" in seen[-1]
        assert b"\r\nHost: localhost\r\n" in seen[-1]


class TestRefusals:
    """Refusals by nginx itself; the service never gets these requests."""

    @pytest.mark.parametrize("way", ["declared", "chunked"])
    def test_a_long_body(self, port: int, seen: list[bytes], way: str) -> None:
        piece = b"1" * 2**16
        if way == "chunked":
            parts = [head("Transfer-Encoding: chunked"), *([b"10000\r\n%b\r\n" % piece] * 800)]
        else:
            parts = [head(f"Content-Length: {len(piece) * 800}"), *([piece] * 800)]
        received = exchange(port, parts)
        # the client that goes on sending may lose the answer, but never sees another one
        assert received == b"" or received.startswith(b"HTTP/1.1 413")
        assert seen == []

    def test_a_long_body_of_a_client_that_waits(self, port: int, seen: list[bytes]) -> None:
        received = exchange(port, [head("Content-Length: 50000000", "Expect: 100-continue")])
        assert received.startswith(b"HTTP/1.1 413")
        assert b"application/problem+json" in received
        assert seen == []

    def test_long_headers_and_addresses(self, port: int, seen: list[bytes]) -> None:
        assert problem(port, "/livez", **{"X-Long": "a" * 9000})[0] == 431
        assert problem(port, "/" + "a" * 9000)[0] == 414
        assert seen == []

    def test_its_own_page_is_not_for_clients(self, port: int, seen: list[bytes]) -> None:
        assert problem(port, "/.problem")[0] == 404
        assert seen == []

    def test_a_service_that_does_not_answer(
        self, hasty: int, seen: list[bytes], upstream: Upstream
    ) -> None:
        upstream.answer = b""
        assert problem(hasty, "/predict", b"{}")[0] == 504
        assert len(seen) == 1

    def test_a_service_that_is_not_there(self, port: int) -> None:
        with nginx(other := free_port(), free_port()):
            status, headers, detail = problem(other, "/predict", b"{}")
        assert (status, headers["Retry-After"]) == (503, "2")
        assert "starting, ending or busy" in detail

    def test_more_requests_than_it_takes(self, upstream: Upstream, seen: list[bytes]) -> None:
        with full(upstream, "requests") as other:
            status, headers, _ = problem(other, "/predict", b"{}")
            assert (status, headers["Retry-After"]) == (503, "2")
            assert exchange(other, [WHOLE], source="127.0.0.2").startswith(b"HTTP/1.1 503 ")


class TestOneClient:
    """The limits of one address leave room for others."""

    def test_cannot_take_all_places(self, upstream: Upstream, seen: list[bytes]) -> None:
        with full(upstream, "of_client") as other:
            assert exchange(other, [WHOLE]).startswith(b"HTTP/1.1 503 ")
            assert exchange(other, [WHOLE], source="127.0.0.2").startswith(b"HTTP/1.1 200 ")

    def test_cannot_ask_without_end(self, upstream: Upstream, seen: list[bytes]) -> None:
        slow = {
            "limit_req_zone $binary_remote_addr": "zone=rate:1m rate=1r/m",
            "limit_req zone=rate": "burst=2 nodelay",
        }
        with nginx(other := free_port(), upstream.port, **slow):
            answers = [exchange(other, [WHOLE])[9:12] for _ in range(3)]
            status, headers, detail = problem(other, "/predict", b"{}")
            other_one = exchange(other, [WHOLE], source="127.0.0.2")
        assert answers == [b"200"] * 3
        assert (status, headers["Retry-After"]) == (429, "1")
        assert detail == "more than 200 requests per second from one address or key; send fewer"
        assert other_one.startswith(b"HTTP/1.1 200 ")

    def test_cannot_ask_without_end_by_moving(self, upstream: Upstream, seen: list[bytes]) -> None:
        slow = {
            "limit_req_zone $http_authorization": "zone=of_key:1m rate=1r/m",
            "limit_req zone=of_key": "burst=2 nodelay",
        }
        with nginx(other := free_port(), upstream.port, **slow):

            def ask(place: int, *key: str) -> bytes:
                asked = head("Content-Length: 0", "Connection: close", *key)
                return exchange(other, [asked], source=f"127.0.0.{place}")[9:12]

            anna = [ask(place, "Authorization: Bearer anna") for place in range(2, 6)]
            others = [ask(2, "Authorization: Bearer bob"), *(ask(2) for _ in range(4))]
        assert anna == [b"200"] * 3 + [b"429"]
        assert others == [b"200"] * 5


def test_an_outer_proxy_is_believed_when_it_is_known(upstream: Upstream, seen: list[bytes]) -> None:
    told = ("X-Forwarded-For: 6.6.6.6, 10.1.2.3", "X-Forwarded-Proto: https")
    asked = head(*told, "Content-Length: 0", "Connection: close")
    with nginx(other := free_port(), upstream.port, "set_real_ip_from 127.0.0.9;"):
        exchange(other, [asked], source="127.0.0.9")
        exchange(other, [asked], source="127.0.0.1")
        nonsense = asked.replace(b"Proto: https", b'Proto: x"y')
        exchange(other, [nonsense], source="127.0.0.9")
    found = [re.findall(rb"^X-Forwarded-\w+: (.*)\r$", request, re.M) for request in seen]
    assert found == [[b"10.1.2.3", b"https"], [b"127.0.0.1", b"http"], [b"10.1.2.3", b"http"]]


@pytest.fixture
def encrypted(server: Server, tmp_path: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The address of the service behind TLS, with the certificate that docs/operate.md makes."""
    (command,) = re.findall(r"^openssl req (?:.*\\\n)*.*", DEPLOY.read_text(), re.MULTILINE)
    with folder_of_nobody() as folder:
        (folder / "tls").mkdir()
        subprocess.run(["bash", "-euc", command], cwd=folder, check=True, capture_output=True)
        (folder / "tls/tls.key").chmod(0o644)
        folder.chmod(0o755)
        port = free_port()
        place = (NGINX.parent / "tls.conf").read_text()
        for old, new in {
            "listen 8443": f"listen 127.0.0.1:{port}",
            "/etc/nginx/tls/": f"{folder}/tls/",
        }.items():
            assert old in place
            place = place.replace(old, new)
        with nginx(free_port(), server.port, place):
            context = ssl.create_default_context(cafile=str(folder / "tls/tls.crt"))
            yield f"https://localhost:{port}", context


def test_pages_and_forecasts_go_through_tls(
    encrypted: tuple[str, ssl.SSLContext], server: Server
) -> None:
    address, context = encrypted
    with urllib.request.urlopen(address, timeout=60, context=context) as page:
        assert page.headers["Content-Type"].startswith("text/html")
    body = json.dumps(server.get(f"/models/{NAME}/example")).encode()
    headers = {"Content-Type": "application/json", "Origin": address}  # as sent by the page
    request = urllib.request.Request(f"{address}/predict", body, headers)
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        assert json.load(answer)["predictions"]
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(address, timeout=60)
    status, _, _ = problem(int(address.rpartition(":")[2]), "/livez")
    assert status == 400  # without TLS


class TestSlowClients:
    @pytest.mark.parametrize(
        ("parts", "pause"),
        [
            ([], 0),
            ([head("Content-Length: 15")[:-2]], 0),
            ([bytes([byte]) for byte in head("X-Long: " + "a" * 1000, "Content-Length: 15")], 0.1),
            ([head("Content-Length: 15")], 0),
            ([head("Content-Length: 15") + BODY[:7]], 0),
            ([head("Transfer-Encoding: chunked") + b"f\r\n"], 0),
        ],
        ids=["silence", "half a header", "a drip", "no body", "half a body", "half a chunk"],
    )
    def test_are_sent_away(
        self, hasty: int, seen: list[bytes], parts: list[bytes], pause: float
    ) -> None:
        received = exchange(hasty, parts, pause)
        assert b"200 OK" not in received
        assert seen == []

    def test_that_do_not_read_are_reset(
        self, hasty: int, seen: list[bytes], upstream: Upstream
    ) -> None:
        length = 30_000_000
        upstream.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"1" * length
        with socket.create_connection(("127.0.0.1", hasty)) as connection:
            connection.sendall(head("Content-Length: 0"))
            ended = poll()
            ended.register(connection, POLLERR)
            assert ended.poll(60_000)
        assert len(seen) == 1


class TestSmuggling:
    @pytest.mark.parametrize(
        "request_",
        [
            head("Content-Length: 15", "Transfer-Encoding: chunked") + BODY,
            head("Transfer-Encoding: chunked", "Content-Length: 15") + b"0\r\n\r\n" + BODY,
            head("Content-Length: 15", "Content-Length: 16") + BODY,
            head("Content-Length: 15", "Content-Length: 15") + BODY,
            head("Content-Length: +15") + BODY,
            head("Content-Length: 0xf") + BODY,
            head("Content-Length: 15, 15") + BODY,
            head("Content-Length: 99999999999999999999") + BODY,
            head("Content-Length : 15") + BODY,
            head("X-A: 1\r\n folded", "Content-Length: 15") + BODY,
            head("X-A: 1\0", "Content-Length: 15") + BODY,
            head("Transfer-Encoding: nonsense") + BODY,
            head("Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
            head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
            head("Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
            head("Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n" + BODY,
            head("Transfer-Encoding: chunked") + b"-1\r\n" + BODY,
            head("Transfer-Encoding: chunked") + b"zz\r\n" + BODY,
            head("Transfer-Encoding: chunked") + b"2\r\n{}X\r\n0\r\n\r\n",
            head("Content-Length: 15", "Host: evil.example") + BODY,
            b"NONSENSE\r\n\r\n",
            b"POST /predict HTTP/1.1\r\nContent-Length: 15\r\n\r\n" + BODY,
        ],
        ids=lambda value: str(value[75:120]),
    )
    def test_what_is_ambiguous_never_reaches_the_service(
        self, port: int, seen: list[bytes], request_: bytes
    ) -> None:
        received = exchange(port, [request_])
        assert re.match(rb"HTTP/1.1 (400|501) ", received)
        assert received.count(b"HTTP/1.1") == 1
        assert seen == []

    def test_a_request_that_goes_wrong_midway_is_none(self, port: int, seen: list[bytes]) -> None:
        parts = [head("Transfer-Encoding: chunked"), b"1\r\n{\r\n", b"+1\r\n}\r\n0\r\n\r\n"]
        assert exchange(port, parts, pause=0.2).startswith(b"HTTP/1.1 400")
        assert seen == []

    @pytest.mark.parametrize(
        "request_",
        [
            head("Content-Length: 15", "Connection: close").replace(b"\r\n", b"\n") + BODY,
            head("Transfer-Encoding: chunked", "Connection: close")
            + b"f;x=extension\r\n%b\r\n0\r\n\r\n" % BODY,
        ],
        ids=["lines without CR", "extensions"],
    )
    def test_what_is_forgiven_is_written_anew(
        self, port: int, seen: list[bytes], request_: bytes
    ) -> None:
        exchange(port, [request_])
        (request,) = seen
        assert BODY in request
        assert b"\n" not in request.replace(b"\r\n", b"")
        assert b"extension" not in request

    def test_a_request_in_the_body_of_another_is_a_body(self, port: int, seen: list[bytes]) -> None:
        inner = head("Content-Length: 0", start=("GET /inner HTTP/1.1", "Host: localhost"))
        exchange(port, [head(f"Content-Length: {len(inner)}", "Connection: close") + inner])
        (request,) = seen
        assert request.startswith(b"POST /predict ")
        assert request.endswith(b"\r\n\r\n" + inner)


def test_it_tells_no_version(port: int, seen: list[bytes]) -> None:
    received = exchange(port, [head("Content-Length: 0", "Connection: close")])
    assert b"\r\nServer: nginx\r\n" in received


def test_its_limits_fit_those_of_the_service() -> None:
    text = NGINX.read_text()

    def value(directive: str) -> int:
        (found,) = re.findall(rf"\b{directive} (\d+)[ms];", text)
        return int(found)

    settings = Settings()
    assert value("client_max_body_size") * 2**20 == settings.max_body_bytes
    assert value("proxy_read_timeout") > 2 * settings.deadline_seconds
