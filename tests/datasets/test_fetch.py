import hashlib
import subprocess
import sys
import time

import pytest
import requests
from werkzeug import Response

from forecaster.base import installation
from forecaster.base.errors import ConfigError, DataError, UnavailableError
from forecaster.datasets.card import Source, load_card
from forecaster.datasets.fetch import locate

BODY = b"date,a\n" + b"".join(b"2020-01-01 %02d:00:00,%d\n" % (hour, hour) for hour in range(24))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The data cache, with no data set anywhere: empty directory, empty cache, no variable."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("FORECASTER_DATA", raising=False)
    return installation.cache() / "data"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def blob_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def card(httpserver):
    """A card whose file is BODY, available only from the server of the test."""
    source = Source(
        files=("sub/tiny.csv", "tiny.csv"),
        urls=(httpserver.url_for("/one/tiny.csv"), httpserver.url_for("/two/tiny.csv")),
        sha256=sha256(BODY),
    )
    return load_card("ETTh1").model_copy(update={"name": "tiny", "sources": (source,)})


def put(folder, name="tiny.csv", body=BODY):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    return file


def files(folder):
    return sorted(file.name for file in folder.rglob("*") if not file.name.endswith(".lock"))


def test_download_lands_in_the_cache_and_is_not_repeated(httpserver, card, cache):
    put(cache, body=b"damaged")
    httpserver.expect_request("/one/tiny.csv").respond_with_data("gone", status=404)
    httpserver.expect_oneshot_request("/two/tiny.csv").respond_with_data(BODY)
    for _ in range(2):
        assert locate(card) == cache / "tiny.csv"
        assert (cache / "tiny.csv").read_bytes() == BODY
    assert len(httpserver.log) == 2
    assert files(cache) == ["tiny.csv"]


def half(_request):
    response = Response(BODY[:100])
    response.headers["Content-Length"] = str(len(BODY))
    return response


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: Response(BODY + b"x"), "it returned a different file: expected "),
        (half, "ChunkedEncodingError"),
        (lambda _: Response("no", status=503), "HTTP status 503"),
    ],
)
@pytest.mark.parametrize("old", [None, b"an older version"])
def test_a_failed_download_leaves_the_cache_as_it_was(httpserver, card, cache, answer, reason, old):
    if old:
        put(cache, body=old)
    for place in ("/one/tiny.csv", "/two/tiny.csv"):
        httpserver.expect_request(place).respond_with_handler(answer)
    with pytest.raises(UnavailableError) as caught:
        locate(card)
    places = (str(cache.parents[2] / "work/data/raw"), str(cache))
    for part in (*places, *card.sources[0].urls, "FORECASTER_DATA", "--set data.path=FILE"):
        assert part in str(caught.value)
    assert str(caught.value).count(reason) == 2
    assert files(cache) == (["tiny.csv"] if old else [])
    assert not old or (cache / "tiny.csv").read_bytes() == old


def test_a_server_that_is_gone(card, monkeypatch):
    timeouts = []

    def get(url, timeout, **_):
        timeouts.append(timeout)
        raise requests.ConnectTimeout(url)

    monkeypatch.setattr(requests, "get", get)
    with pytest.raises(UnavailableError, match=r"/tiny\.csv: ConnectTimeout"):
        locate(card)
    assert timeouts == [(5, 60)] * 2


LOCATE = """
import sys
from forecaster.datasets.card import Card
from forecaster.datasets.fetch import locate
print(locate(Card.model_validate_json(sys.argv[1])))
"""


def test_two_processes_at_once_download_once(httpserver, card, cache):
    def slowly(_request):
        time.sleep(1)
        return Response(BODY)

    httpserver.expect_request("/one/tiny.csv").respond_with_handler(slowly)
    command = [sys.executable, "-c", LOCATE, card.model_dump_json()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out == f"{cache / 'tiny.csv'}\n"
        assert "%" not in err
    assert len(httpserver.log) == 1


def test_a_cache_that_cannot_be_written_is_named(card, cache):
    cache.parent.parent.mkdir(parents=True)
    cache.parent.write_text("a file where the cache's folder should be")
    with pytest.raises(UnavailableError, match=f"{cache} cannot be written: "):
        locate(card)


def test_the_order_of_the_places(httpserver, card, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.setenv("FORECASTER_DATA", str(tmp_path / "data"))
    httpserver.expect_request("/one/tiny.csv").respond_with_data(BODY)
    named = put(tmp_path, "mine.csv", b"as it is")
    places = [
        put(tmp_path / "data", "sub/tiny.csv"),
        put(tmp_path / "data"),
        put(tmp_path / "work/data/raw"),
        put(tmp_path / "checkout/data/raw"),
        put(cache),
    ]
    assert locate(card, named) == named
    for place in places:
        assert locate(card) == place
        place.unlink()
    assert httpserver.log == []
    assert locate(card) == cache / "tiny.csv"
    assert len(httpserver.log) == 1


def test_a_file_found_but_not_named_must_be_the_cards(card, tmp_path):
    file = put(tmp_path / "work/data/raw", body=b"edited")
    for name, digest in (("sha256", sha256), ("git_blob", blob_id)):
        sums = {"sha256": None, "git_blob": None, name: digest(BODY)}
        source = card.sources[0].model_copy(update=sums)
        match = f"{file} .*{digest(BODY)}, got {digest(b'edited')}.*--set data.path={file}"
        with pytest.raises(DataError, match=match):
            locate(card.model_copy(update={"sources": (source,)}))


def test_a_named_file_is_used_as_it_is_and_none_is_passed_over(card, cache, tmp_path, monkeypatch):
    edited = put(tmp_path, body=b"edited")
    assert locate(card, edited) == edited
    for path in (tmp_path / "other.csv", tmp_path):
        with pytest.raises(UnavailableError, match=f"{path} does not exist"):
            locate(card, path)
    put(cache)
    monkeypatch.setenv("FORECASTER_DATA", "/no/such/folder")
    with pytest.raises(ConfigError, match="FORECASTER_DATA=/no/such/folder"):
        locate(card)


def test_a_sample_that_is_not_installed_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tsdata", None)
    with pytest.raises(UnavailableError, match=r"pip install 'attention-forecaster\[sample\]'"):
        locate(load_card("vic_elec"))
