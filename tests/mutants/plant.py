"""The mutants: small faults, each in one statement, that the tests are measured by.

A mutant names its statement by meaning: the function that holds it and the text of the statement,
as `ast.unparse` writes it. It can be planted wherever that function is now.
"""

import ast
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("mutants.json")
PACKAGES = "forecaster", "service/forecaster_service"
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef


@dataclass
class Mutant:
    """In `function` of `file`, the statement `old` becomes `new`."""

    name: str
    room: str
    kind: str
    file: str
    function: str
    old: str
    new: str
    state: str = "new"  # then killed, alive, or equivalent: nobody can see the difference
    why: str = ""  # of a killed one the first test that failed, else a sentence


class CannotPlantError(Exception):
    pass


def load():
    return [Mutant(**each) for each in json.loads(RECORD.read_text())] if RECORD.exists() else []


def save(mutants):
    text = json.dumps([asdict(each) for each in mutants], indent=1, ensure_ascii=False)
    RECORD.write_text(text + "\n")


def modules(root):
    return sorted(path for each in PACKAGES for path in (root / each).rglob("*.py"))


def short(file):
    """The path of a file inside its package: `a/b`, of the service `service/b`."""
    return re.sub(r"^forecaster/|^service/forecaster_|\.py$", "", file)


def functions(tree):
    """The functions of a module and the methods of its classes; inner ones are parts of these."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, FUNCTIONS):
                    yield f"{node.name}.{inner.name}", inner


def statements(function):
    """All statements inside, in the order of the file."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.stmt):
            yield node
        yield from statements(node)


def head(statement):
    """A statement without the statements that it holds."""
    empty = {"body": [], "orelse": [], "finalbody": [], "handlers": [], "decorator_list": []}
    fields = {field: getattr(statement, field, None) for field in statement._fields}
    kept = empty if isinstance(fields.get("body"), list) else {}
    return type(statement)(**{**fields, **{each: kept[each] for each in fields if each in kept}})


def text(statement):
    return ast.unparse(ast.fix_missing_locations(head(statement)))


def planted(source, mutant):
    """The source with the mutant in it, unless it has no such statement, or several."""
    tree = ast.parse(source)
    found = [
        statement
        for name, function in functions(tree)
        if name == mutant.function
        for statement in statements(function)
        if text(statement) == mutant.old
    ]
    if len(found) != 1:
        return None
    (old,) = found
    holds = isinstance(getattr(old, "body", None), list)
    (new,) = ast.parse(mutant.new + " pass" * holds).body
    for field in ("body", "orelse") if holds else ():
        setattr(new, field, getattr(old, field, []))

    class Plant(ast.NodeTransformer):
        def visit(self, node):
            return new if node is old else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Plant().visit(tree)))


def plant(mutant, root):
    """The file that holds the statement now, and its text with the mutant in it."""
    named = root / mutant.file
    for paths in ([named] if named.exists() else [], [p for p in modules(root) if p != named]):
        found = [(path, planted(path.read_text(), mutant)) for path in paths]
        places = [(path, changed) for path, changed in found if changed is not None]
        if len(places) == 1:
            return places[0]
        if places:
            break
    raise CannotPlantError(
        f"{mutant.name}: {len(places)} places have {mutant.old!r} in {mutant.function}, expected 1;"
        " bring its entry in mutants.json up to date"
    )
