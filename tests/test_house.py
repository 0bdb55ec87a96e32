"""The house rules that a machine can check."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import size

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    path
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("d*/*.md")])
    if path.name not in ("CHANGELOG.md", "api.md", "commands.md")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    extra: texts
    for extra, texts in PROJECT["optional-dependencies"].items()
    if extra not in ("bench", "peers")  # what benchmarks compare with is not tested beside the rest
}
PINS = {
    canonicalize_name(name): version
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
    for name, version in [line.split("==")]
}
LINUX_311 = {
    "python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux",
    "platform_system": "Linux", "platform_machine": "x86_64",
}  # fmt: skip


def declared(*extras):
    """The requirements of pyproject.toml itself."""
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]
    return [Requirement(text) for text in texts if not text.startswith("attention-forecaster[")]


@cache
def closure(*extras):
    """What `pip install '.[EXTRAS]'` installs on Linux with Python 3.11 beside the project, in
    canonical names."""
    own = PROJECT["optional-dependencies"]
    queue = [(text, "") for text in PROJECT["dependencies"]]
    queue += [(text, "") for extra in extras for text in own[extra]]
    found = set()
    while queue:
        text, extra = queue.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({**LINUX_311, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for inner in {"", *requirement.extras} - {each for of, each in found if of == name}:
            found.add((name, inner))
            ours = name == PROJECT["name"]
            texts = own.get(inner, []) if ours else importlib.metadata.requires(name) or []
            queue += [(each, inner) for each in texts]
    return {name for name, _ in found} - {PROJECT["name"]}


class TestConstraints:
    def test_every_line_is_one_exact_version(self):
        assert all(re.fullmatch(r"[0-9][A-Za-z0-9.]*", version) for version in PINS.values())

    def test_malicious_releases_are_ruled_out(self):
        (lightning,) = [each for each in declared("train") if each.name == "lightning"]
        assert not any(lightning.specifier.contains(bad) for bad in ("2.6.2", "2.6.3"))
        assert PINS["pytorch-lightning"] not in ("2.6.2", "2.6.3")

    def test_they_satisfy_the_ranges(self):
        for requirement in declared(*EXTRAS):
            pin = PINS[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin), f"{requirement} and the pin {pin}"

    def test_they_pin_all_that_is_installed_and_nothing_else(self):
        # the builds of torch for CUDA bring these, in the versions that torch names
        of_torch = {name for name in closure(*EXTRAS) if re.match(r"nvidia-|cuda-|triton$", name)}
        assert closure(*EXTRAS) - of_torch - set(PINS) == {"setuptools"}, (
            "whatever setuptools torch finds"
        )
        assert set(PINS) - closure(*EXTRAS) == set()


COMES_WITH = {"pydantic-core": "pydantic"}


class TestDependencies:
    def test_whatever_is_imported_is_declared(self):
        extras = [extra for extra in EXTRAS if extra != "dev"]
        names = {canonicalize_name(requirement.name) for requirement in declared(*extras)}
        distributions = importlib.metadata.packages_distributions()
        for file in [*(ROOT / "forecaster").rglob("*.py"), *(ROOT / "service").rglob("*.py")]:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    modules = [node.module]
                else:
                    continue
                for module in {module.partition(".")[0] for module in modules}:
                    if module in {*sys.stdlib_module_names, "forecaster", "forecaster_service"}:
                        continue
                    owners = {canonicalize_name(name) for name in distributions[module]}
                    owners = {COMES_WITH.get(owner, owner) for owner in owners}
                    assert owners & names, f"{file.name} imports {module}"


WALKS = {"csv": (60, 42), "post": (13, 8)}
"""The files and the types of both walks (benchmarks/walks.py), at most."""


class TestSizes:
    """What may only grow in a commit that says what for."""

    def test_of_product_and_tests(self):
        # 330 of these so that a GPU trains and serves, 780 so that files of every shape are read,
        # 150 so that slow series are first, 510 so that the first hour goes well, of which 180 so
        # that the service reads workbooks of strangers, 400 so that new series are forecast,
        # 950 so that paths and totals are
        assert sum(map(size.lines, size.product(ROOT))) <= 43_275
        rooms = size.rooms(ROOT)
        assert rooms["tests"] <= 34_400
        assert sum(name not in {*size.OTHERS, "errors"} and name[0] != "_" for name in rooms) <= 18

    def test_of_names(self):
        assert size.records(ROOT) <= 104
        assert size.words(ROOT).total() <= 71

    def test_a_name_is_that_of_one_class(self):
        found = Counter(
            node.name
            for file in size.product(ROOT)
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ClassDef)
        )
        # a notice, and how it is sent
        assert {name for name, count in found.items() if count > 1} == {"Notice"}

    def test_a_class_has_at_most_twenty_methods(self):
        methods = {
            node.name: sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
                           for part in node.body)
            for file in size.product(ROOT)
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ClassDef)
        }  # fmt: skip
        # the face of Python has what its users call
        assert {name for name, count in methods.items() if count > 20} == {"Forecaster"}


class TestTools:
    def test_imports_run_downward(self):
        done = subprocess.run(
            ["lint-imports"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout

    def test_ci_runs_the_tools_and_each_slow_test_in_one_of_three_parts(self):
        script = ROOT / ".ci" / "run"
        assert os.access(script, os.X_OK)
        subprocess.run(["bash", "-n", script], check=True)
        text = script.read_text()
        for command in ("ruff format --check .", "ruff check .", "mypy"):
            assert f"step {command}" in text
        assert 'others=("${alone[@]}" "${beside[@]}")' in text
        for part in (
            '"${together[@]}" "${first[@]}" "${marked[@]}"',
            '"${together[@]}" "${beside[@]}"',
            '"${alone[@]}"',
        ):
            assert f"\nrest {part}\n" in text, "a slow test runs in one of the three parts"

    def test_a_skip_can_be_forbidden(self, tmp_path):
        shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    data\n    gpu\n")
        (tmp_path / "test_it.py").write_text(
            "import pytest\n"
            "def test_lazy(): pytest.skip('lazy')\n"
            "@pytest.mark.data\n"
            "def test_data(): assert False\n"
        )
        other = ("FORECASTER_DATA", "PYTEST_ADDOPTS")
        variables = {k: v for k, v in os.environ.items() if k not in other}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--forbid-skips"],
            cwd=tmp_path, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        blamed = [line for line in done.stdout.splitlines() if "that is a failure here" in line]
        assert blamed == ["skipped, and that is a failure here: test_it.py::test_lazy"]
        assert "2 skipped" in done.stdout


class TestDocuments:
    def test_the_walks_enter_files_that_are_there(self):
        text = (ROOT / "CONTRIBUTING.md").read_text()
        section = text.partition("### Three walks")[2].partition("\n## ")[0]
        walks = [line for line in section.splitlines() if line.startswith("| ")][2:]
        assert len(walks) == 3
        for walk in walks:
            files = re.findall(r"`([\w/]+(?:\.py|/))`", walk)
            folders = [ROOT / "forecaster", ROOT / "service" / "forecaster_service"]
            missing = [f for f in files if not any((folder / f).exists() for folder in folders)]
            assert missing == []
            assert 5 <= len(files) <= 12

    def test_ci_takes_the_second_block_of_the_quick_start_as_a_reader_would(self, tmp_path):
        script, text = ((ROOT / name).read_text() for name in (".ci/run", "README.md"))
        awk = re.search(r"^awk -v out=\"\$work/block\" '.*?' README\.md$", script, re.M | re.S)[0]
        subprocess.run(["bash", "-euc", f"work={tmp_path}\n{awk}"], cwd=ROOT, check=True)
        for number, extra in ((1, "all,sample"), (2, "dev")):
            block = (tmp_path / f"block{number}.sh").read_text()
            assert f"```bash\n{block}```" in text
            assert f"python -m pip install -c constraints.txt -e '.[{extra}]'\n" in block
        assert block.splitlines()[-1] == "pytest"

    @pytest.mark.parametrize(
        "document", [ROOT / "CHANGELOG.md", *DOCUMENTS], ids=lambda path: path.name
    )
    def test_links_lead_somewhere(self, document):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), target

    @pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
    def test_code_that_is_named_is_there(self, document):
        rooms = ("forecaster", "service", "tests", "benchmarks", "examples")
        there = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
        named = re.findall(r"`([a-z_/]+\.py)(?:::\w+)*`", document.read_text())
        assert [file for file in named if not any(path.match(file) for path in there)] == []

    def test_the_words_of_the_documents(self):
        """Without what is generated: references, and the tables of benchmarks/render.py."""
        made = r"<!-- begin (\w+) -->.*?<!-- end \1 -->"
        texts = [re.sub(made, "", path.read_text(), flags=re.DOTALL) for path in DOCUMENTS]
        # 341 of these say what is measured, and what is promised, of a GPU, and what it wants,
        # 193 why slow series are forecast otherwise, 470 how new ones are, 580 of seven attentions
        assert sum(len(text.split()) for text in texts) <= 30_990


def test_every_module_of_the_library_has_its_tests():
    """tests/a/test_b.py for forecaster/a/b.py; a base is tested through the modules that use it."""
    tests, library = ROOT / "tests", ROOT / "forecaster"
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    tested = {path.with_name(path.name.removeprefix("test_")) for path in files}
    modules = {
        path.relative_to(library)
        for path in library.rglob("*.py")
        if path.stem not in ("__init__", "__main__", "base", "shapes")
    }
    assert modules - tested == set()


@pytest.mark.parametrize("script", ["run", "long"])
def test_the_tests_that_ci_names_are_there(script):
    words = set(re.findall(r"tests/[\w/{},.]+", (ROOT / ".ci" / script).read_text()))
    expand = ["bash", "-c", f"printf '%s\\n' {' '.join(words)}"]  # {a,b}
    named = subprocess.run(expand, capture_output=True, text=True, check=True).stdout.split()
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []
