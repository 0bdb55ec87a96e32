import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import yaml

import forecaster
from forecaster.base.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_changelog_and_the_citation_name_it():
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == CITATION["version"] == __version__ == forecaster.__version__


def test_what_is_published_is_what_the_tag_names(tmp_path):
    """The workflow has never run; its check runs here, on copies of the files that it reads."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())
    steps = workflow["jobs"]["build"]["steps"]
    (script,) = (each["run"] for each in steps if each.get("name", "").startswith("the tag"))
    for name in ("pyproject.toml", "CITATION.cff", "forecaster/base/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    right = {"TAG": f"v{__version__}", "REPOSITORY": PROJECT["urls"]["Repository"]}
    wrong = {"TAG": "v9.9.9"}, {"REPOSITORY": "https://example.org/another"}, {"date": "unreleased"}
    for change in ({}, *wrong):
        date = change.get("date", "2026-12-01")
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} ({date})\n")
        given = {"cwd": tmp_path, "env": right | change}
        done = subprocess.run(["bash", "-c", script], **given, check=False)
        assert (done.returncode == 0) is (not change)
