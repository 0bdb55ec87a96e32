"""Every mutant has its place in the code of today; `tests.mutants.run` runs tests against them."""

import ast
from dataclasses import replace

import pytest

from tests.mutants.plant import ROOT, CannotPlantError, load, plant
from tests.mutants.rooms import ROOMS
from tests.mutants.run import files_of

MUTANTS = load()
STATES = "killed", "alive", "equivalent"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_has_its_place(mutant):
    path, changed = plant(mutant, ROOT)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(path.read_text()))
    assert mutant.state in STATES
    assert mutant.why or mutant.state == "killed"


def test_sixty_can_be_seen():
    assert sum(mutant.state != "equivalent" for mutant in MUTANTS) >= 60
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.room for mutant in MUTANTS} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_the_tests_of_a_room_exist(room):
    for name in ROOMS[room][1].split():
        assert files_of(ROOT, name), name


@pytest.fixture
def tree(tmp_path):
    """The statement of a mutant, in another file than its record says, with a comment."""
    change = {"old": "if a < b:", "new": "if a <= b:"}
    mutant = replace(MUTANTS[0], file="forecaster/gone.py", function="Box.f", **change)
    (tmp_path / "forecaster" / "new").mkdir(parents=True)
    file = tmp_path / "forecaster" / "new" / "place.py"
    file.write_text(
        "class Box:\n    def f(self, a, b):\n        if not a:\n            return 'é'\n"
        "        elif a < b:  # now\n            return 1\n        return 2\n"
    )
    return tmp_path, file, mutant


class TestPlant:
    def test_finds_a_statement_that_moved(self, tree):
        folder, file, mutant = tree
        path, changed = plant(mutant, folder)
        assert path == file
        assert changed == file.read_text().replace("elif a < b:  # now", "elif a <= b:")

    @pytest.mark.parametrize("change", [("a < b", "a < c"), ("def f", "def g"), ("Box", "Chest")])
    def test_names_the_mutant_that_has_no_place(self, tree, change):
        folder, file, mutant = tree
        file.write_text(file.read_text().replace(*change))
        with pytest.raises(CannotPlantError, match=f"^{mutant.name}: 0 places have 'if a < b:'"):
            plant(mutant, folder)

    def test_takes_no_place_by_chance(self, tree):
        folder, file, mutant = tree
        file.with_name("other.py").write_text(file.read_text())
        with pytest.raises(CannotPlantError, match="2 places"):
            plant(mutant, folder)
