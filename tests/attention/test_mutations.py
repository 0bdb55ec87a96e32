"""The tests of this folder fail when a mechanism ignores `causal`, in a copy of the library; other
faults are in tests/mutants."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forecaster.attention import ATTENTIONS

ROOT = Path(__file__).parents[2]


IGNORES_CAUSAL = """

def _ignore_causal(core):
    import functools

    @functools.wraps(core)
    def blind(*args, causal=False, **options):
        return core(*args, causal=False, **options)

    return blind


for _name in [n for n in globals() if n.endswith("_attention") and n != "softmax_attention"]:
    globals()[_name] = _ignore_causal(globals()[_name])
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "forecaster", folder / "forecaster", ignore=without)
    shutil.copytree(ROOT / "tests" / "attention", folder / "tests" / "attention", ignore=without)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    ours = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""}
    environment = {**os.environ, **ours}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_copy_is_what_is_tested_and_is_green(copy: Path) -> None:
    program = "import forecaster; print(forecaster.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", program], cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(copy)
    run = run_tests(
        copy, "tests/attention/common/test_multihead.py", "tests/attention/test_full.py"
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name != "none"])
def test_turns_red_without_the_causal_mask(copy: Path, name: str) -> None:
    file = ATTENTIONS[name].__module__.rpartition(".")[2]
    text = (copy / "forecaster" / "attention" / f"{file}.py").read_text()
    path = copy / "forecaster" / "attention" / f"{file}.py"
    try:
        path.write_text(text + IGNORES_CAUSAL)
        run = run_tests(copy, "tests/attention/test_definition.py", "-k", f"equals and {name}")
    finally:
        path.write_text(text)
    assert run.returncode == 1, run.stdout + run.stderr  # 1: tests ran, and some failed
