import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import forecaster
from forecaster.base.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, CITATION = PYPROJECT["project"], yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_package_has_it():
    assert forecaster.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_what_is_installed_reads_it_from_here():
    assert importlib.metadata.version("attention-forecaster") == __version__
    assert "version" not in PROJECT
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "forecaster/base/version.py"


def test_the_changelog_and_the_citation_name_it():
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == CITATION["version"] == __version__


def test_the_citation_names_what_the_package_does():
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["repository-code"] == PROJECT["urls"]["Repository"]
    named = [[each["name"] for each in source["authors"]] for source in (CITATION, PROJECT)]
    assert named[0] == named[1]


@pytest.mark.parametrize(
    ("tag", "repository", "dated", "passes"),
    [
        ("v" + __version__, "", True, True),
        ("v9.9.9", "", True, False),
        ("v" + __version__, "-of-another", True, False),
        ("v" + __version__, "", False, False),
    ],
)
def test_what_is_published_is_what_the_tag_names(tag, repository, dated, passes, tmp_path):
    """The workflow has never run; its check runs here, on copies of the files that it reads."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())
    (script,) = (
        step["run"]
        for step in workflow["jobs"]["build"]["steps"]
        if step.get("name", "").startswith("the tag")
    )
    for name in ("pyproject.toml", "CITATION.cff", "forecaster/base/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    date = "2026-12-01" if dated else "unreleased"
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} ({date})\n")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"TAG": tag, "REPOSITORY": PROJECT["urls"]["Repository"] + repository},
        check=False,
    )
    assert (done.returncode == 0) is passes
