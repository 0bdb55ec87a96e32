"""Every mutant has its place in the code of today; `tests.mutants.run` runs tests against them."""

import ast
from dataclasses import replace

import pytest

from tests.mutants.plant import ROOT, CannotPlantError, load, plant
from tests.mutants.rooms import ROOMS
from tests.mutants.run import files_of

MUTANTS = load()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_has_its_place(mutant):
    path, changed = plant(mutant, ROOT)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(path.read_text()))
    assert mutant.state in ("killed", "alive", "equivalent")
    assert mutant.why or mutant.state == "killed"


def test_sixty_can_be_seen():
    assert sum(mutant.state != "equivalent" for mutant in MUTANTS) >= 60
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.room for mutant in MUTANTS} == set(ROOMS)


def test_the_tests_of_each_room_exist():
    names = [name for _, tests in ROOMS.values() for name in tests.split()]
    assert [name for name in names if not files_of(ROOT, name)] == []


def test_a_statement_that_moved_is_found_and_takes_no_place_by_chance(tmp_path):
    change = {"old": "if a < b:", "new": "if a <= b:"}
    mutant = replace(MUTANTS[0], file="forecaster/gone.py", function="Box.f", **change)
    (tmp_path / "forecaster").mkdir()
    file = tmp_path / "forecaster" / "place.py"
    right = (
        "class Box:\n\n    def f(self, a, b):\n        if not a:\n            return 'é'\n"
        "        elif a < b:\n            return 1\n        return 2"
    )
    file.write_text(right)
    assert plant(mutant, tmp_path) == (file, right.replace("a < b", "a <= b"))
    file.with_name("other.py").write_text(right)
    with pytest.raises(CannotPlantError, match="2 places"):
        plant(mutant, tmp_path)
    for name in (file.name, "other.py"):
        file.with_name(name).write_text(right.replace("a < b", "a < c"))
    with pytest.raises(CannotPlantError, match=f"^{mutant.name}: 0 places have 'if a < b:'"):
        plant(mutant, tmp_path)
