"""The proxy of docker-compose.yml, as Debian's nginx with the same configuration, in front of the
service. What the service has got is in its log."""

import json
import re
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from select import POLLERR, poll

import pytest

from forecaster_service.settings import Settings
from tests.service.containers import NGINX, ROOT, folder_of_nobody, nginx
from tests.service.processes import (
    AMBIGUOUS,
    BODY,
    Server,
    everything,
    free_port,
    get,
    head,
    serving,
    until,
)
from tests.service.toy import NAME

DEPLOY = ROOT / "docs" / "operate.md"
pytestmark = pytest.mark.slow

WHOLE = head("Content-Length: 15", "Connection: close") + BODY
"""A request that the service answers 422."""


@pytest.fixture(scope="module")
def service(folder, tmp_path_factory):
    """A service that believes the proxy."""
    place = tmp_path_factory.mktemp("service")
    with serving(folder, place, trusted_proxies="127.0.0.1") as server:
        yield server


@pytest.fixture(scope="module")
def proxied(service):
    """nginx in front of it, with its log of requests."""
    with nginx(port := free_port(), service.port, lingering_timeout="1s") as folder:
        yield Server(port, log=folder / "access")


@pytest.fixture(scope="module")
def hasty(service):
    """The port of another nginx, which waits only a second for clients and for the service."""
    times = ("client_header_timeout", "client_body_timeout", "send_timeout", "proxy_read_timeout")
    with nginx(port := free_port(), service.port, **dict.fromkeys(times, "1s")):
        yield port


def exchange(port, parts, pause=0, source="127.0.0.1"):
    """What comes back until the connection is closed, which must happen within a minute."""
    with socket.create_connection(("127.0.0.1", port), 60, (source, 0)) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server did not read the rest
        return everything(connection)


def told(service, ours):
    """The line of the service's log about a request with this id."""
    found = []

    def there():
        lines = map(json.loads, service.log.read_text().splitlines())
        found[:] = [line for line in lines if line.get("request_id") == ours]
        return bool(found)

    until(there)
    return found[0]


@contextmanager
def untouched(service):
    """The service gets no request during the block."""
    before = service.figure("request_seconds_count")
    yield
    after = service.figure("request_seconds_count")
    assert after == before + 1, "the one that asked for this number"


def problem(port, path="/predict", body=None, **headers):
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


def test_the_service_answers_as_without_it(service, proxied):
    example = service.get(f"/models/{NAME}/example")
    for body in (example, {"inputs": example["inputs"] * 50}):
        direct, through = (one.post("/predict", body) for one in (service, proxied))
        assert through["predictions"] == direct["predictions"]
    status, _, detail = problem(proxied.port, "/models/nobody/example")
    assert (status, detail) == (404, f"there is no such model here; the models are: {NAME}")
    assert problem(proxied.port, "/livez", Host="evil.example")[0] == 400
    for _ in range(20):  # it answers before the body is read, and no answer is lost
        kind = {"Content-Type": "text/plain"}
        assert problem(proxied.port, body=b" " * 2**23, **kind)[0] == 415
    most, kind = Settings().max_body_bytes, {"Content-Type": "application/json"}
    assert problem(proxied.port, body=b" " * most, **kind)[0] == 400
    assert problem(proxied.port, body=b" " * (most + 1), **kind)[0] == 413
    assert b"\r\nServer: nginx\r\n" in exchange(proxied.port, [WHOLE]), "it tells no version"


class TestRequests:
    def test_arrive_in_any_form_and_share_connections(self, service, proxied):
        pieces = [b"%x\r\n%c\r\n" % (1, byte) for byte in BODY]
        chunked = head("Transfer-Encoding: chunked") + b"".join(pieces) + b"0\r\n\r\n"
        for _ in range(10):  # clients, one after the other
            received = exchange(proxied.port, [chunked, head("Content-Length: 15") + BODY, WHOLE])
            assert received.count(b"HTTP/1.1 422 ") == 3
        assert service.figure("connections") <= 4  # one for each process of nginx, and this one

    @pytest.mark.parametrize(
        ("given", "kept"), [("my-id.1", True), ('x" y', False), ("a" * 65, False)]
    )
    def test_say_who_sent_them_by_what_nginx_saw(self, service, proxied, given, kept):
        """In both logs, under one id; probes are in none."""
        forged = ("X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4", "X-Request-Start: t=1")
        asked = head(f"X-Request-ID: {given}", *forged, "Connection: close", "Content-Length: 0")
        received = exchange(proxied.port, [asked], source="127.0.0.7")
        (found,) = re.findall(rb"(?im)^x-request-id: ([A-Za-z0-9._-]{1,64})\r$", received)
        assert (found == given.encode()) is kept
        exchange(proxied.port, [get("/livez")])
        line = told(service, found.decode())
        assert (line["client"], line["path"], line["status"]) == ("127.0.0.7", "/predict", 400)
        assert line["ms"] < 30_000, "it arrived when nginx saw it"
        theirs = json.loads(proxied.log.read_text().splitlines()[-1])
        assert theirs["request_id"] == found.decode()
        assert (theirs["path"], theirs["client"]) == ("/predict", "127.0.0.7")


class TestRefusals:
    """Refusals by nginx itself; the service never gets these requests."""

    def test_a_long_body(self, service, proxied):
        """In chunks, of which the service sees the first; the first test declares the length."""
        pieces = [b"10000\r\n%b\r\n" % (b"1" * 2**16)] * 800
        received = exchange(proxied.port, [head("Transfer-Encoding: chunked"), *pieces])
        # a client that goes on sending may lose the answer, but never sees another one
        assert received == b"" or received.startswith(b"HTTP/1.1 413")
        until(lambda: service.figure("requests_in_flight") == 1)  # this one

    @pytest.mark.parametrize(
        ("path", "length", "status"),
        [("/livez", 9000, 431), ("/" + "a" * 9000, 0, 414), ("/.problem", 0, 404)],
    )
    def test_long_heads_and_its_own_page(self, service, proxied, path, length, status):
        with untouched(service):
            assert problem(proxied.port, path, **{"X-Long": "a" * length})[0] == status

    def test_a_service_that_does_not_answer_or_is_not_there(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            place = silent.getsockname()[1]
            with nginx(port := free_port(), place, proxy_read_timeout="1s"):
                assert problem(port, "/predict", b"{}")[0] == 504
                silent.close()
                status, headers, _ = problem(port, "/predict", b"{}")
        assert (status, headers["Retry-After"]) == (503, "2")

    @pytest.mark.parametrize(
        ("zone", "other"), [("requests", b"503"), ("of_client", b"422")], ids=["all", "a client"]
    )
    def test_more_requests_at_a_time_than_it_takes(self, service, zone, other):
        """Of one client, others still have room."""
        slow = {f"limit_conn {zone}": "2", "client_body_timeout": "120s"}
        with nginx(port := free_port(), service.port, **slow), ExitStack() as stack:
            for _ in range(2):
                waiting = socket.create_connection(("127.0.0.1", port))
                stack.enter_context(waiting).sendall(head("Content-Length: 1000"))
            until(lambda: service.figure("requests_in_flight") == 3)  # with this one
            assert exchange(port, [WHOLE])[9:12] == b"503"
            assert exchange(port, [WHOLE], source="127.0.0.2")[9:12] == other

    @pytest.mark.parametrize("zone", ["address", "key"])
    def test_more_requests_of_one_client_than_it_may_send(self, service, zone):
        """By one address; by one key, also from several addresses."""
        variable, name = {
            "address": ("$binary_remote_addr", "rate"), "key": ("$http_authorization", "of_key"),
        }[zone]  # fmt: skip
        slow = {
            f"limit_req_zone {variable}": f"zone={name}:1m rate=1r/m",
            f"limit_req zone={name}": "burst=2 nodelay",
        }
        with nginx(port := free_port(), service.port, **slow):

            def ask(place, key):
                return exchange(
                    port, [get("/x", f"Authorization: {key}")], source=f"127.0.0.{place}"
                )

            moves = zone == "key"
            answers = [ask(1 + moves * number, "anna") for number in range(4)]
            other = ask(1, "bob") if moves else ask(2, "anna")
        assert [answer[9:12] for answer in answers] == [b"404"] * 3 + [b"429"]
        assert b"\r\nRetry-After: 1\r\n" in answers[-1]
        assert other[9:12] == b"404"


def test_an_outer_proxy_is_believed_when_it_is_known(service):
    asked = get("/x", "X-Forwarded-For: 6.6.6.6, 10.1.2.3", "X-Request-ID: %s")
    with nginx(port := free_port(), service.port, "set_real_ip_from 127.0.0.9;"):
        for source, client in (("127.0.0.9", "10.1.2.3"), ("127.0.0.1", "127.0.0.1")):
            exchange(port, [asked % source.encode()], source=source)
            assert told(service, source)["client"] == client


def test_pages_and_forecasts_go_through_tls(service, tmp_path):
    """With the certificate that docs/operate.md makes."""
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
        address = f"https://localhost:{port}"
        with nginx(free_port(), service.port, place):
            context = ssl.create_default_context(cafile=str(folder / "tls/tls.crt"))
            with urllib.request.urlopen(address, timeout=60, context=context) as page:
                assert page.headers["Content-Type"].startswith("text/html")
            body = json.dumps(service.get(f"/models/{NAME}/example")).encode()
            headers = {"Content-Type": "application/json", "Origin": address}  # as of the page
            request = urllib.request.Request(f"{address}/predict", body, headers)
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                assert json.load(answer)["predictions"]
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                urllib.request.urlopen(address, timeout=60)
            assert problem(port, "/livez")[0] == 400  # without TLS


class TestSlowClients:
    @pytest.mark.parametrize(
        ("parts", "pause"),
        [
            ([], 0),
            ([head("Content-Length: 15")[:-2]], 0),
            ([bytes([byte]) for byte in head("X-Long: " + "a" * 1000, "Content-Length: 15")], 0.1),
            ([head("Content-Length: 15") + BODY[:7]], 0),
            ([head("Transfer-Encoding: chunked") + b"f\r\n"], 0),
        ],
        ids=["silence", "half a header", "a drip", "half a body", "half a chunk"],
    )
    def test_are_sent_away(self, hasty, parts, pause):
        received = exchange(hasty, parts, pause)
        assert received == b"" or received.startswith(b"HTTP/1.1 408 ")

    def test_that_do_not_read_are_reset(self, hasty):
        large = get("/static-offline-docs/swagger-ui-bundle.js").replace(b"close", b"keep-alive")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", hasty))
            connection.sendall(large * 10)
            ended = poll()
            ended.register(connection, POLLERR)
            assert ended.poll(60_000)


class TestSmuggling:
    @pytest.mark.parametrize(
        "request_",
        [
            *AMBIGUOUS,
            head("Content-Length: 15", "Content-Length: 15") + BODY,
            head("Content-Length: 15, 15") + BODY,
            head("Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
            head("Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
            head("Transfer-Encoding: chunked") + b"1\r\n{\r\n+1\r\n}\r\n0\r\n\r\n",
        ],
    )
    def test_what_is_ambiguous_never_reaches_the_service(self, service, proxied, request_):
        with untouched(service):
            received = exchange(proxied.port, [request_])
        assert re.match(rb"HTTP/1.1 (400|501) ", received)
        assert received.count(b"HTTP/1.1") == 1

    @pytest.mark.parametrize(
        "request_",
        [
            WHOLE.replace(b"\r\n", b"\n"),
            head("Transfer-Encoding: chunked", "Connection: close")
            + b"f;x=extension\r\n%b\r\n0\r\n\r\n" % BODY,
            head(f"Content-Length: {len(get('/inner'))}", "Connection: close") + get("/inner"),
        ],
        ids=["lines without CR", "extensions", "a request in a body"],
    )
    def test_what_is_forgiven_is_written_anew(self, proxied, request_):
        """The service, which refuses some of it, gets one plain request."""
        received = exchange(proxied.port, [request_])
        assert received[9:12] in (b"422", b"400")
        assert b"expected JSON" in received or received.count(b"HTTP/1.1") == 1
        assert b"is no HTTP request" not in received


def test_its_limits_fit_those_of_the_service():
    text = NGINX.read_text()

    def value(directive):
        (found,) = re.findall(rf"\b{directive} (\d+)[ms];", text)
        return int(found)

    settings = Settings()
    assert value("client_max_body_size") * 2**20 == settings.max_body_bytes
    assert value("proxy_read_timeout") > 2 * settings.deadline_seconds
