"""The files of the page; tests/service/test_page.py tests in a browser what it does."""

import re

import pytest

from forecaster.forecast.notices import REMARKS
from forecaster_service.routes.page import FILES, WEB
from tests.colours import contrast, palettes
from tests.service.test_app import Links


def test_it_loads_its_own_files_and_nothing_else(client):
    page = client.get("/").text
    links = Links(page).found
    assert set(links) >= {
        "page/page.css",
        "page/page.js",
        "docs",
    }
    for link in links:
        assert ":" not in link
        assert not link.startswith("/"), "it may be served under a prefix"
        assert client.get(f"/{link}").status_code == 200
    for name in ("index.html", "page.css", "page.js"):
        addresses = re.findall(r"https?:[^\s\"'`]*", (WEB / name).read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}


def test_nothing_is_inline_and_the_policy_would_refuse_it(client):
    answer = client.get("/")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", answer.text)
    assert all(tag.endswith("defer>") for tag in re.findall(r"<script[^>]*>", answer.text))
    script = (WEB / "page.js").read_text("utf-8")
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)
    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/page/page.css", "text/css"),
        ("/page/page.js", "text/javascript"),
        ("/page/icon.svg", "image/svg+xml"),
    ],
)
def test_headers(client, path, kind):
    answer = client.get(path)
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("name", ["index.html", "nothing.js", "..%2fapp.py", "%2e%2e", "x" * 100])
def test_no_other_file_can_be_had(client, name):
    answer = client.get(f"/page/{name}")
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_folder_has_the_files():
    assert {path.name for path in WEB.iterdir()} == {"index.html", *FILES}


def test_it_warns_by_the_codes_that_are_remarks():
    script = (WEB / "page.js").read_text(encoding="utf-8")
    codes = re.search(r"REMARKS = new Set\(\[(.*)\]\)", script)
    assert codes
    assert {*re.findall(r"\w+", codes[1])} == {code.value for code in REMARKS}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out(scheme):
    """Also those of the chart, which axe does not check."""
    colours = palettes((WEB / "page.css").read_text(encoding="utf-8"))[scheme]
    for name in ("ink", "soft", "link", "error"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("ink", "soft", "error"):
        assert contrast(colours[name], colours["box"]) >= 4.5, name
    for name in ("history", "forecast"):
        for ground in ("paper", "box"):
            assert contrast(colours[name], colours[ground]) >= 3, f"{name} on {ground}"


def test_it_is_no_part_of_the_interface(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert not [path for path in paths if path == "/" or path.startswith("/page")]
