"""Draw mutants by a seed, spread over rooms and kinds, and add them to the record:

python -m tests.mutants.draw 60
"""

import ast
import itertools
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from math import sqrt

from tests.mutants.plant import (
    ROOT,
    Mutant,
    functions,
    head,
    load,
    modules,
    save,
    short,
    statements,
    text,
)
from tests.mutants.rooms import ROOMS

SEED = 20
BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add}
AXES = {0: 1, 1: 2, -1: -2}
BY_AXIS = re.compile(
    "size|sum|mean|amax|amin|max|min|softmax|cumsum|flip|transpose|flatten|unsqueeze|squeeze|chunk"
    "|unfold|gather|index_select|select|narrow|argmax|sort|movedim"
)
LOCKS = re.compile(r"_locked\(|FileLock|_TURN|\._(changed?|writing|living|for_\w+)$")
NO_NUMBER = re.compile(r"['\"\[{]|folder|path|parent|root|file|home|name|text|str\(")
SAID = re.compile(r"(\w+\.)*(log\w*|print|echo|info|debug|warn\w*|error|write_line)\(")
Place = tuple[str, str, str]  # room, file, function


def number(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand)
        return None if value is None else -value
    known = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if known else None  # type: ignore[attr-defined]


def fixed(value: int) -> ast.expr:
    return ast.parse(str(value), mode="eval").body


def sign(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in SIGNS:
        parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
        if not any(NO_NUMBER.search(ast.unparse(part)) for part in parts):
            fields = {**vars(node), "op": SIGNS[type(node.op)]()}
            yield type(node)(**fields)


def bound(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in BOUNDS:
        yield ast.Compare(node.left, [BOUNDS[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def off_by_one(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Slice):
        for field in ("lower", "upper"):
            value = number(getattr(node, field) or ast.Pass())
            if value is not None:
                yield ast.Slice(**{**vars(node), field: fixed(value + 1)})
    elif isinstance(node, ast.Subscript) and (value := number(node.slice)) is not None:
        yield ast.Subscript(node.value, fixed(value + 1), node.ctx)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
        for place, argument in enumerate(node.args):
            if (value := number(argument)) is not None:
                after = [*node.args[:place], fixed(value + 1), *node.args[place + 1 :]]
                yield ast.Call(node.func, after, node.keywords)


def axis(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg in ("dim", "axis"):
        if (value := number(node.value)) in AXES:
            yield ast.keyword(node.arg, fixed(AXES[value]))
    elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
        value = number(node.args[-1])
        if value in AXES and BY_AXIS.fullmatch(node.func.attr):
            yield ast.Call(node.func, [*node.args[:-1], fixed(AXES[value])], node.keywords)


def swap(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and "isinstance" not in ast.unparse(node.func):
        parts, rest = node.args[:2], node.args[2:]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        parts, rest = node.slice.elts[:2], node.slice.elts[2:]
    else:
        return
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Slice | ast.Constant
    if len({ast.unparse(part) for part in parts}) == 2 and all(isinstance(p, kinds) for p in parts):
        if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
            return
        if isinstance(node, ast.Call):
            yield ast.Call(node.func, [*parts[::-1], *rest], node.keywords)
        else:
            yield ast.Subscript(node.value, ast.Tuple([*parts[::-1], *rest]), node.ctx)


def scaling(node: ast.AST) -> Iterator[ast.AST]:
    known = isinstance(node, ast.BinOp) and not NO_NUMBER.search(ast.unparse(node))
    if known and isinstance(node.op, ast.Mult | ast.Div):
        yield node.left


def lock(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.With | ast.AsyncWith):
        kept = [each for each in node.items if not LOCKS.search(ast.unparse(each.context_expr))]
        if not kept:
            yield ast.If(ast.Constant(True), [], [])
        elif len(kept) < len(node.items):
            yield type(node)(kept, [])


KINDS: dict[str, Callable[[ast.AST], Iterator[ast.AST]]] = {
    each.__name__: each for each in (sign, bound, off_by_one, axis, swap, scaling, lock)
}


class Substitute(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """What a statement computes: no annotations, and no texts with numbers in them."""
    yield node
    for child in ast.iter_child_nodes(node):
        left_out = child is getattr(node, "annotation", None)
        if not left_out and not isinstance(child, ast.JoinedStr | ast.stmt):
            yield from expressions(child)


def mutations(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """The kind and the text of each mutation of a statement."""
    if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.ClassDef):
        return
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) or SAID.match(text(statement)):
        return
    alone = isinstance(statement, ast.If) and not statement.orelse
    if alone and isinstance(statement.body[-1], ast.Raise):
        yield "limit", "if False:"
    top = ast.Module([head(statement)], [])
    for old in list(expressions(top.body[0])):
        for kind, mutate in KINDS.items():
            for new in mutate(old):
                Substitute(old, new).visit(top)
                changed = ast.unparse(ast.fix_missing_locations(top))
                Substitute(new, old).visit(top)
                yield kind, changed


def candidates() -> dict[Place, list[Mutant]]:
    found: dict[Place, list[Mutant]] = {}
    for path in modules(ROOT):
        file = path.relative_to(ROOT).as_posix()
        room = next(room for room, (files, _) in ROOMS.items() if re.match(files, file))
        for name, function in functions(ast.parse(path.read_text())):
            texts = [(each, text(each)) for each in statements(function)]
            often = Counter(old for _, old in texts)
            found[room, file, name] = [
                Mutant(f"{short(file)}.{name}: {kind}", room, kind, file, name, old, new)
                for each, old in texts
                if often[old] == 1
                for kind, new in mutations(each)
            ]
    return found


def draws() -> Iterator[Mutant]:
    """One mutant of a function, of the room with the fewest for its size and its rarest kind."""
    chance, found = random.Random(SEED), candidates()
    rooms: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    counts = Counter(room for (room, *_), mutants in found.items() for _ in mutants)
    sizes = {room: sqrt(count) for room, count in counts.items()}
    while True:
        room = min(ROOMS, key=lambda room: (rooms[room] >= 2, rooms[room] / sizes[room]))
        places = [place for place in found if place[0] == room]
        kind = min(
            sorted({mutant.kind for place in places for mutant in found[place]}),
            key=lambda kind: (kinds[kind], chance.random()),
        )
        fit = [m for place in places for m in found[place] if m.kind == kind]
        file = chance.choice(sorted({mutant.file for mutant in fit}))
        drawn = chance.choice([mutant for mutant in fit if mutant.file == file])
        del found[room, file, drawn.function]
        rooms[room] += 1
        kinds[kind] += 1
        yield drawn


if __name__ == "__main__":
    known = load()
    names = {each.name for each in known}
    fresh = (each for each in draws() if each.name not in names)
    save([*known, *itertools.islice(fresh, int(sys.argv[1]))])
