"""The sdist and the wheel are built; the wheel is installed elsewhere and used there."""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import trove_classifiers

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


def call(*command, **options):
    """Run a command; its stdout."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel of this checkout, with a stray file among the raw data."""
    folder = tmp_path_factory.mktemp("built")
    stray = ROOT / "data" / "raw" / "stray.csv"
    stray.write_text("not for others\n")
    try:
        call(sys.executable, "-m", "build", "--no-isolation", "-o", folder, ROOT)
    finally:
        stray.unlink()
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def elsewhere(built, tmp_path_factory):
    """The commands of an environment with the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    python = folder / "venv" / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", built[1])
    # .pth files are not read in a folder that a .pth file names: the checkout stays out of sight
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "work").mkdir()
    others = ("PYTHON", "FORECASTER_", "MLFLOW_")
    environment = {key: each for key, each in os.environ.items() if not key.startswith(others)}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")

    def run(name, *arguments):
        command = folder / "venv" / "bin" / name
        return call(command, *arguments, cwd=folder / "work", env=environment)

    return run


def test_they_contain_the_code_the_configurations_and_the_cards_and_no_raw_data(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    expected = {
        str(path.relative_to(package.parent))
        for package in (ROOT / "forecaster", ROOT / "service" / "forecaster_service")
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    for folder, inside in (("configs", "_configs"), ("data/cards", "_cards")):
        files = (path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.yaml"))
        expected |= {f"forecaster/{inside}/{file}" for file in files}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    with tarfile.open(built[0]) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/test_packaging.py"} <= sources
    assert not any("stray" in name or name.startswith(("runs", "mlflow")) for name in sources)


def test_an_index_takes_them_with_whole_addresses_in_the_long_description(built):
    call(sys.executable, "-m", "twine", "check", "--strict", *built)
    with zipfile.ZipFile(built[1]) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        told = message_from_bytes(archive.read(name))
    assert told["Name"] == "attention-forecaster"
    assert told["License-Expression"] == "Apache-2.0"
    repository = dict(each.split(", ") for each in told.get_all("Project-URL"))["Repository"]
    assert set(trove_classifiers.classifiers) >= set(told.get_all("Classifier"))
    pages = re.findall(r"\]\(([^)]*)\)", told.get_payload())
    assert any(each.startswith(f"{repository}/blob/v{told['Version']}/docs/") for each in pages)
    assert all(each.startswith(("https://", "http://", "#")) for each in pages)
    for each in pages:  # their targets exist
        _, inside, path = each.partition(f"/v{told['Version']}/")
        assert not inside or (ROOT / path.partition("#")[0]).exists(), each


def test_the_command_and_the_service_work_without_the_checkout(elsewhere):
    program = (
        "import forecaster, forecaster_service.app as ours; print(len(ours.create_app().routes),"
        "forecaster.__file__, ours.__file__)"
    )
    routes, *paths = elsewhere("python", "-c", program).split()
    assert int(routes) > 3
    assert not any(Path(path).is_relative_to(ROOT) for path in paths)
    version = importlib.metadata.version("attention-forecaster")
    assert elsewhere("forecaster", "--version") == f"forecaster {version}\n"
    assert "forecaster/_configs/default.yaml" in elsewhere("forecaster", "config")
    assert "name: informer" in elsewhere("forecaster", "config", "--config", "informer2020")
    listed = elsewhere("forecaster", "data", "list")
    assert len(listed.splitlines()) == len([*(ROOT / "data" / "cards").glob("*.yaml")])
    assert elsewhere("forecaster", "data", "fetch", "vic_elec").endswith("vic_elec.csv\n")
    assert "resembles usual" in elsewhere("forecaster", "advise", "--data", "vic_elec")
    assert "no problem found" in elsewhere("forecaster", "doctor")


def test_a_model_is_trained_and_forecasts(elsewhere):
    write = "from pathlib import Path; Path('own.csv').write_text('day,n\\n' + ''.join("
    rows = "f'{2000 + n // 12}-{n % 12 + 1:02}-01,{n % 12}\\n' for n in range(120)))"
    elsewhere("python", "-c", write + rows)
    elsewhere("forecaster", "train", "--data", "own.csv", "--horizon", "4", "--epochs", "1")
    ahead = elsewhere("forecaster", "predict", "--model", "forecaster-own-M-all-4").splitlines()
    assert ahead[0] == "day,n"
    assert ahead[1].startswith("2010-01-01,")
    assert len(ahead) == 5
