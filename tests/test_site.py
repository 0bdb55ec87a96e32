"""The site that is built from docs/: nothing is missing in it, and it agrees with the code."""

import ast
import json
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pydantic
import pytest
import torch
import typer
import yaml

from forecaster import cli
from forecaster.attention import ATTENTIONS, Place
from forecaster_service.request import ForecastRequest
from tests.browser import READY, complaints, wants_chromium

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.name for path in (ROOT / "docs").glob("*.md")}
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
SCHEMES = {"light": "default", "dark": "slate"}
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def test_each_page_stands_once_in_the_navigation():
    names = [file for room in SITE["nav"] for pages in room.values() for page in pages
             for file in page.values()]  # fmt: skip
    assert sorted(names) == sorted(PAGES)


def test_the_reference_of_commands_is_that_of_the_commands(tmp_path):
    command = [*("utils", "docs", "--name", "forecaster", "--title", "Commands"), "--output"]
    subprocess.run(
        [sys.executable, "-m", "typer", cli.__name__, *command, tmp_path / "commands.md"],
        check=True, capture_output=True,
    )  # fmt: skip
    assert (ROOT / "docs" / "commands.md").read_text() == (tmp_path / "commands.md").read_text(), (
        f"run typer {cli.__name__} {' '.join(command)} docs/commands.md"
    )


def unknown(line):
    """The words of a command line, after `forecaster`, that name no command or no option of it."""
    command, words = typer.main.get_command(cli.app), line.partition(" #")[0].split()
    while words and (inside := getattr(command, "commands", {})):
        if words[0] not in inside:
            return words[:1]
        command = inside[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    return {word.partition("=")[0] for word in words if word.startswith("--")} - known


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_command_line_names_options_that_there_are(document):
    text = re.sub(r"\s*\\\n\s*", " ", document.read_text())  # lines that go on
    lines = re.findall(r"(?:^ *|`)forecaster ([a-z][^`\n]*)", text, re.MULTILINE)
    assert [(line, words) for line in lines if (words := unknown(line))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_program_imports_what_there_is(document):
    for program in re.findall(r"^```python\n(.*?)^```", document.read_text(), re.M | re.S):
        for statement in ast.parse(program).body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                exec(ast.unparse(statement), {})


def test_the_requests_that_curl_sends_are_valid():
    text = (ROOT / "docs" / "serving.md").read_text()
    bodies = re.findall(r"/predict -H [^\n]*-d '(\{.*?\})'\n", text, re.DOTALL)
    known = pydantic.TypeAdapter(ForecastRequest)
    assert [len(known.validate_python(json.loads(body)).inputs) for body in bodies] == [1, 2]


def test_the_reference_of_python_has_every_attention():
    text = (ROOT / "docs" / "api.md").read_text()
    named = re.findall(r"^### (\S+)\n\n::: forecaster\.attention\.(\w+)$", text, re.MULTILINE)
    assert named == [(name, name.replace("-", "_")) for name in ATTENTIONS]


def test_the_readme_fits_on_two_screens():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 2


def test_the_attention_of_docs_adding_learns_and_sees_neither_the_future_nor_what_is_masked():
    text = (ROOT / "docs" / "adding.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names = {}
    exec(program, names)
    near = names["NearAttention"](Place(16, 4, 12, 12), reach=6.0)
    x = torch.randn(2, 12, 16, requires_grad=True)
    near(x).square().sum().backward()
    assert x.grad.abs().sum() > 0
    assert near.effective().text == "near: weights that halve every 4 steps"
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, 3] = False
    masked = torch.where(mask[..., None], x, 7.0)
    assert torch.equal(near(x[:, [0]], x, key_mask=mask), near(x[:, [0]], masked, key_mask=mask))
    changed = masked.detach().clone()
    changed[:, 9:] = -7.0
    causal = [near(each, causal=True, key_mask=mask)[:, [0, 1, 2, 4, 8]] for each in (x, changed)]
    torch.testing.assert_close(*causal)
    assert near(x, causal=True, key_mask=torch.zeros_like(mask)).isfinite().all()


@pytest.fixture(scope="module")
def site():
    """The folder of the site, which is built without a warning."""
    done = subprocess.run(
        ["zensical", "build", "--clean", "--strict"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / SITE["site_dir"]


@pytest.mark.slow
def test_it_is_whole_and_fetches_nothing(site):
    for name in PAGES - {"index.md"}:
        assert (site / name.removesuffix(".md") / "index.html").is_file()
    for page in site.rglob("*.html"):
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|iframe)[^>]*src=\"(https?://[^\"]*)", text)
        fetched += re.findall(r"<link[^>]*rel=\"?stylesheet[^>]*href=\"(https?://[^\"]*)", text)
        assert not fetched, page
    reference = (site / "api" / "index.html").read_text()
    for what in ("forecaster.estimator.Forecaster.fit", "forecaster.client.Client.predict"):
        assert f'id="{what}"' in reference


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.slow
@wants_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_axe_finds_nothing(site, tab, width, scheme):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        tab.open(address, width, scheme, READY)
        tab.run("localStorage.clear()")  # where the theme stores a colour scheme
        shown = f"document.body?.dataset.mdColorScheme === '{SCHEMES[scheme]}'"
        for page in ("", "api/", "results/"):
            tab.open(address + page, width, scheme, f"{READY} && {shown}")
            tab.wait("[...document.querySelectorAll('.md-code__nav')].every((n) => n.ariaLabel)")
            assert complaints(tab) == []
            assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        server.shutdown()
