"""Plant the mutants of mutants.json one by one in copies of the tree, and run tests in them:

    python -m tests.mutants.run [--record] [NAME ...]

A NAME is that of a room, else a part of a mutant's name. The status is 1 if a mutant that was
killed is alive now, or has no place; `--record` also writes down what was found.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from tests.mutants.plant import ROOT, CannotPlantError, load, plant, save, short
from tests.mutants.rooms import ROOMS

LIMIT = 1800  # seconds for the tests of a room without a mutant; with one, see `measure`
LEFT_OUT = ".git", "__pycache__", ".*_cache", ".hypothesis", ".venv", "build", "raw", "*runs"


def run_tests(folder, tests, limit=LIMIT):
    """Whether they pass; if not, the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FORECASTER_", "PYTEST_"))}
    ours = {"PYTHONPATH": f"{folder}:{folder}/service", "OMP_NUM_THREADS": "1"}
    done = subprocess.Popen(
        [*command, "--hypothesis-seed=0", *tests], cwd=folder, env={**kept, **ours}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = done.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        done.communicate()
        return False, f"none ended within {limit:.0f} s"
    if done.returncode == 5:
        raise SystemExit(f"no tests in {tests}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    return done.returncode == 0, failed[1] if failed else f"pytest ended with {done.returncode}"


def files_of(folder, name):
    pattern = Path("tests", name).with_name(f"test_{Path(name).name}.py")
    return [str(path.relative_to(folder)) for path in sorted(folder.glob(str(pattern)))]


def tests_of(folder, room, files):
    """The tests that mirror these files, and those of the room."""
    names = [*map(short, files), *ROOMS[room][1].split()]
    return list(dict.fromkeys(test for name in names for test in files_of(folder, name)))


def measure(folder, mutant, usual):
    """What the tests say that take `usual` seconds without it; one that hangs has noticed."""
    path, changed = plant(mutant, folder)
    right = path.read_text()
    path.write_text(changed)
    try:
        tests = tests_of(folder, mutant.room, [path.relative_to(folder).as_posix()])
        passed, failed = run_tests(folder, tests, 60 + 3 * usual)
    finally:
        path.write_text(right)
    return ("alive", "") if passed else ("killed", failed)


def of_room(room, mutants, record):
    """Measure the mutants of a room in a copy of its own; whether one is worse than recorded."""
    bad = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "tree")
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
        begun = monotonic()
        passed, failed = run_tests(folder, tests_of(folder, room, [m.file for m in mutants]))
        usual = monotonic() - begun
        print(f"{room}: {usual:.0f} s without a mutant", flush=True)
        if not passed:
            print(f"{room}: {failed} fails without a mutant", flush=True)
            return True
        for mutant in mutants:
            begun = monotonic()
            try:
                if mutant.state == "equivalent":
                    plant(mutant, folder)
                    continue
                state, why = measure(folder, mutant, usual)
            except CannotPlantError as error:
                state, why = "without a place", str(error)
            spent = f"{monotonic() - begun:.0f} s"
            worse = state == "without a place" or (mutant.state, state) == ("killed", "alive")
            print(f"{'! ' * worse}{mutant.name}: {state}, {spent} {why}", flush=True)
            bad = bad or worse
            if record and state != "without a place" and (state, mutant.state) != ("alive",) * 2:
                mutant.state, mutant.why = state, why
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    all, rooms = load(), {}
    for each in all:
        if not asked.names or any(
            n == each.room if n in ROOMS else n in each.name for n in asked.names
        ):
            rooms.setdefault(each.room, []).append(each)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        worse = [*pool.map(lambda room: of_room(room, rooms[room], asked.record), rooms)]
    if asked.record:
        save(all)
    return int(any(worse) or not rooms)


if __name__ == "__main__":
    raise SystemExit(main())
