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


def test_the_package_has_it():
    assert forecaster.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_what_is_installed_reads_it_from_here():
    assert importlib.metadata.version("attention-forecaster") == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "forecaster/base/version.py"


def test_the_changelog_and_the_citation_name_it():
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest == citation["version"] == __version__


def test_the_citation_names_what_the_package_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == project["license"]
    assert citation["repository-code"] == project["urls"]["Repository"]
    assert [each["name"] for each in citation["authors"]] == [
        each["name"] for each in project["authors"]
    ]


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"TAG": tag, "REPOSITORY": project["urls"]["Repository"] + repository},
        check=False,
    )
    assert (done.returncode == 0) is passes
