"""The tests of this folder fail when something essential is removed: each case breaks one thing in
a copy of the library and runs them there."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from forecaster.attention import ATTENTIONS

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutation:
    """In `file`, `old` becomes `new`; then `tests` (files of this folder) must fail."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = {
    "heads merged without the transpose": Mutation(
        "common/multihead.py",
        "return x.transpose(1, 2).flatten(2)",
        "return x.reshape(x.shape[0], x.shape[2], -1)",
        ("common/test_multihead.py",),
    ),
    "heads split without the transpose": Mutation(
        "common/multihead.py",
        "return x.view(*x.shape[:2], heads, -1).transpose(1, 2)",
        "return x.reshape(x.shape[0], heads, x.shape[1], -1)",
        ("common/test_multihead.py",),
    ),
    "sample drawn from the global generator": Mutation(
        "prob.py", "generator=generator, ", "", ("test_prob.py",)
    ),
    "rotations drawn from the global generator": Mutation(
        "lsh.py", "generator=generator, ", "", ("test_lsh.py",)
    ),
    "exponentials without the maximum subtracted": Mutation(
        "common/prefix.py",
        "(score - top).clamp_",
        "(score - 0 * top).clamp_",
        ("test_aft_simple.py",),
    ),
    "exponentials of a band without the maximum subtracted": Mutation(
        "common/banded.py",
        "top = k.amax(2, keepdim=True)",
        "top = 0 * k[:, :, :1]",
        ("test_aft_local.py",),
    ),
}

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


def assert_turns_red(folder: Path, file: str, text: str, *arguments: str) -> None:
    path = folder / "forecaster" / "attention" / file
    right = path.read_text()
    try:
        path.write_text(text)
        run = run_tests(folder, *arguments)
    finally:
        path.write_text(right)
    assert run.returncode == 1, run.stdout + run.stderr  # 1: tests ran, and some failed


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
@pytest.mark.parametrize("what", MUTATIONS)
def test_turns_red(copy: Path, what: str) -> None:
    mutation = MUTATIONS[what]
    text = (copy / "forecaster" / "attention" / mutation.file).read_text()
    assert text.count(mutation.old) >= 1, f"{mutation.file} no longer has: {mutation.old}"
    tests = [f"tests/attention/{test}" for test in mutation.tests]
    mutated = text.replace(mutation.old, mutation.new)
    assert_turns_red(copy, mutation.file, mutated, *tests)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name != "none"])
def test_turns_red_without_the_causal_mask(copy: Path, name: str) -> None:
    file = ATTENTIONS[name].__module__.rpartition(".")[2]
    text = (copy / "forecaster" / "attention" / f"{file}.py").read_text()
    assert_turns_red(copy, f"{file}.py", text + IGNORES_CAUSAL, f"tests/attention/test_{file}.py")
