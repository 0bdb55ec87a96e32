"""The images, as far as their files can be tested; tests/containers/run builds them."""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.service.containers import ROOT
from tests.test_house import LINUX_311, PINS, PROJECT

OWN = PROJECT["name"]
DOCKERFILE = (ROOT / "service/Dockerfile").read_text()
LOCK = ROOT / "service/lock"
EXTRAS = {"serve": {"serve", "registry"}, "train": {"all", "excel", "postgresql", "sample"}}


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """The version and the hashes of each package of a file."""
    found = {}
    for entry in re.split(r"\n(?=\S)", (LOCK / f"{name}.txt").read_text().strip()):
        pin, *hashes = entry.replace("\\\n", " ").split()
        package, version = pin.split("==")
        found[canonicalize_name(package)] = (version, hashes)
    return found


def wanted(extras: set[str]) -> set[str]:
    """What the project with these extras installs on Linux with Python 3.11, except for itself."""
    own = PROJECT["optional-dependencies"]
    queue: list[tuple[str, str]] = [(text, "") for text in PROJECT["dependencies"]]
    queue += [(text, "") for extra in extras for text in own[extra]]
    found: set[tuple[str, str]] = set()
    while queue:
        text, extra = queue.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({**LINUX_311, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for inner in {"", *requirement.extras} - {each for of, each in found if of == name}:
            found.add((name, inner))
            texts = importlib.metadata.requires(name) or []
            queue += [(each, inner) for each in (own.get(inner, []) if name == OWN else texts)]
    return {name for name, _ in found} - {OWN}


class TestTheLocks:
    @pytest.mark.parametrize("name", ["serve", "train", "build"])
    def test_agree_with_the_constraints(self, name: str) -> None:
        for package, (version, hashes) in locked(name).items():
            assert version == PINS.get(package, version)
            assert package in PINS or package == "setuptools", f"{package} is not pinned"
            assert hashes
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)

    @pytest.mark.parametrize("name", EXTRAS)
    def test_hold_what_the_extras_want_and_nothing_else(self, name: str) -> None:
        of_torch = r"nvidia-|cuda-|triton$"  # of its builds for CUDA
        found = {each for each in wanted(EXTRAS[name]) if not re.match(of_torch, each)}
        assert set(locked(name)) - {"setuptools"} == found - {"torch", "setuptools"}

    def test_torch_is_one_line_apart(self) -> None:
        assert (LOCK / "torch.txt").read_text() == f"torch=={PINS['torch']}\n"

    def test_what_serves_holds_neither_training_nor_mlflows_server(self) -> None:
        serve, train = set(locked("serve")), set(locked("train"))
        assert "mlflow-skinny" in serve
        assert serve < train
        assert {"mlflow", "lightning", "scikit-learn", "matplotlib", "sqlalchemy"} <= train - serve

    def test_are_made_for_the_extras_of_the_images(self) -> None:
        text = (LOCK / "make").read_text()
        for name, extras in EXTRAS.items():
            (line,) = re.findall(
                rf"^compile (.*) pyproject.toml .*/{name}\.txt$", text, re.MULTILINE
            )
            assert set(line.replace("--extra", "").split()) == extras


class TestTheDockerfile:
    def test_what_it_copies_exists_and_is_not_ignored(self) -> None:
        lines = re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)
        copied = {name for line in lines for name in line.split()}
        ignore = (ROOT / ".dockerignore").read_text().split()
        assert {f"!{name}" for name in copied} == {line for line in ignore if line.startswith("!")}
        assert all((ROOT / name).exists() for name in copied)

    def test_who_runs_it_is_a_number(self) -> None:
        stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.M | re.S))
        for name in EXTRAS:
            assert re.findall(r"^USER (.*)$", stages[name], re.MULTILINE) == ["10001:10001"]
            assert stages[name].index("RUN") < stages[name].index("USER")

    def test_all_is_checked_before_the_sources_come(self) -> None:
        installs = re.findall(r"pip install (.*)$", DOCKERFILE, re.MULTILINE)
        assert all(
            "--require-hashes" in each or "torch.txt" in each or "/wheel/" in each
            for each in installs
        )
        assert all("--no-deps" in each for each in installs if "torch.txt" not in each)
        assert "--extra-index-url" not in DOCKERFILE
        sources = [
            m.start()
            for m in re.finditer("^COPY (forecaster|service/forecaster)", DOCKERFILE, re.M)
        ]
        wheel, torch = (DOCKERFILE.index(f"AS {stage}\n") for stage in ("wheel", "torch"))
        assert all(wheel < place < torch for place in sources)

    def test_the_image_below_is_an_argument(self) -> None:
        (base,) = re.findall(r"^FROM (\S+[^ ]) AS base$", DOCKERFILE, re.MULTILINE)
        assert base == "${PYTHON_IMAGE}"
        (image,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
        assert image in (ROOT / "docker-compose.yml").read_text()
        assert "sha256:" not in DOCKERFILE


class TestTheRelease:
    """It was never run; these tests check what can be checked without running it."""

    TEXT = (ROOT / ".github/workflows/release.yml").read_text()

    def test_its_scripts_are_bash_and_invent_no_digest(self) -> None:
        steps = yaml.safe_load(self.TEXT)["jobs"]["images"]["steps"]
        scripts = [step["run"] for step in steps if "run" in step]
        assert len(scripts) == 5
        for script in scripts:
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        assert not re.search(r"sha256:[0-9a-f]{8}", self.TEXT)

    def test_it_pins_every_image_of_compose(self, tmp_path: Path) -> None:
        steps = yaml.safe_load(self.TEXT)["jobs"]["images"]["steps"]
        (script,) = [step["run"] for step in steps if step.get("name", "").startswith("pin")]
        (tmp_path / "docker").write_text("#!/bin/sh\necho sha256:a-digest\n")
        (tmp_path / "docker").chmod(0o755)
        (tmp_path / "docker-compose.yml").write_text((ROOT / "docker-compose.yml").read_text())
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env={"PATH": path}, check=True,
            capture_output=True,
        )  # fmt: skip
        pinned = (tmp_path / "images.env").read_text().splitlines()
        defaults = re.findall(
            r"\$\{(\w+_IMAGE):-(\S+?)\}", (ROOT / "docker-compose.yml").read_text()
        )
        others = {name: image for name, image in defaults if "forecaster" not in image}
        assert pinned == [f"{name}={image}@sha256:a-digest" for name, image in others.items()]
