"""The files of the page; tests/service/test_page.py tests in a browser what it does."""

import re
from itertools import product

import pytest

from forecaster.forecast.notices import REMARKS
from forecaster_service.routes.page import WEB
from tests.service.test_app import Links


def test_it_loads_its_own_files_and_nothing_else(client):
    page = client.get("/").text
    links = Links(page).found
    assert set(links) >= {"page/page.css", "page/page.js", "docs"}
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


def test_headers(client):
    for path, kind in (
        ("/", "html"),
        ("/page/page.js", "javascript"),
        ("/page/icon.svg", "svg+xml"),
    ):
        found = client.get(path).headers
        assert kind in found["content-type"]
        assert found["x-content-type-options"] == "nosniff"
        assert (found["referrer-policy"], found["cache-control"]) == ("no-referrer", "no-cache")
        assert "default-src 'none'" in found["content-security-policy"]


def test_no_other_file_can_be_had(client):
    for name in ("index.html", "nothing.js", "..%2fapp.py", "%2e%2e", "x" * 100):
        assert client.get(f"/page/{name}").status_code in (404, 422)


def test_it_warns_by_the_codes_that_are_remarks():
    script = (WEB / "page.js").read_text(encoding="utf-8")
    codes = re.search(r"REMARKS = new Set\(\[(.*)\]\)", script)
    assert codes
    assert {*re.findall(r"\w+", codes[1])} == {code.value for code in REMARKS}


def luminance(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_lines_of_the_chart_stand_out(scheme):
    """Axe checks texts; lines want a contrast of 3 (WCAG 2.2, 1.4.11)."""
    css = (WEB / "page.css").read_text(encoding="utf-8")
    found = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", found))
    for name, ground in product(("history", "forecast"), ("paper", "box")):
        low, high = sorted(luminance(colours[each]) for each in (name, ground))
        assert (high + 0.05) / (low + 0.05) >= 3, f"{name} on {ground}"
