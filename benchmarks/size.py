"""How large the code is: lines by room, names at the top, the longest files and functions.

    python -m benchmarks.size               of this tree
    python -m benchmarks.size OTHER ...     of other checkouts, too, each in columns of its own
    python -m benchmarks.size --words       how often a name of WORDS is bound, by room
    python -m benchmarks.size --walks       the files and types of two walks (walks.py)

A room is a name at the top of forecaster/, or the service, the tests, the benchmarks; a GPU that is
not there is a room of its own. Tokens are those of Python without comments and docstrings.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks import walks

ROOT = Path(__file__).resolve().parent.parent
SIMULATED = "tests/gpu_simulated"
OTHERS = {
    "service": "service", "tests": "tests", SIMULATED: SIMULATED, "benchmarks": "benchmarks",
}  # fmt: skip
TOP = "forecaster"
LONGEST = 8
WORDS = (
    "found", "each", "own", "told", "said", "wanted", "made", "kept", "asked", "begun", "tried",
)  # fmt: skip
"""Words that are names of nothing: a variable or an argument called so hides what it is."""
LEFT_OUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def files(folder: Path) -> Iterator[Path]:
    """The Python files of a folder."""
    return (file for file in sorted(folder.rglob("*.py")) if "__pycache__" not in file.parts)


def lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def tokens(file: Path) -> int:
    """The tokens of a file without comments, and without strings that are statements."""
    text = file.read_text(encoding="utf-8")
    said = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(each.type not in LEFT_OUT and each.start not in said for each in found)


def rooms(tree: Path) -> Counter[str]:
    """The lines of each room of a tree."""
    found: Counter[str] = Counter()
    for file in files(tree / TOP):
        found[file.relative_to(tree / TOP).parts[0].removesuffix(".py")] += lines(file)
    for name, folder in OTHERS.items():
        found[name] = sum(map(lines, files(tree / folder)))
    found["tests"] -= found[SIMULATED]
    return found


def functions(tree: Path) -> list[tuple[int, str]]:
    """The length and the place of each function of the product, the longest first."""
    found = [
        (node.end_lineno - node.lineno + 1, f"{file.relative_to(tree)}:{node.name}")
        for file in product(tree)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    return sorted(found, reverse=True)


def words(tree: Path) -> Counter[str]:
    """How often a variable or an argument of the product has one of WORDS as its name, by room."""
    bound: Counter[str] = Counter()
    for file in product(tree):
        parts = file.relative_to(tree).parts
        room = parts[1].removesuffix(".py") if parts[0] == TOP else parts[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[room] += node.id in WORDS
            elif isinstance(node, ast.arg):
                bound[room] += node.arg in WORDS
    return bound


def records(tree: Path) -> int:
    """The dataclasses and named tuples of the product."""
    classes = [
        node
        for file in product(tree)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    return sum(
        "NamedTuple" in map(ast.unparse, node.bases)
        or any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)
        for node in classes
    )


def product(tree: Path) -> list[Path]:
    return [*files(tree / TOP), *files(tree / "service")]


def main() -> None:
    arguments = sys.argv[1:]
    of_words = "--words" in arguments
    trees = [Path(name).resolve() for name in arguments if name[:2] != "--"] + [ROOT]
    if "--walks" in arguments:
        walks.show(trees)
        return
    counts = [(words if of_words else rooms)(tree) for tree in trees]
    names = sorted(set().union(*counts), key=lambda name: -max(each[name] for each in counts))
    wide = max(map(len, names))
    wide = max(wide, len("dataclasses, named tuples"))
    title = "names that are no nouns" if of_words else "lines of Python"
    print(f"{title:<{wide}}" + "".join(f"{tree.name:>12}" for tree in trees))
    for name in names:
        print(f"{name:<{wide}}" + "".join(f"{each[name]:>12,}" for each in counts))
    if of_words:
        print(f"{'all':<{wide}}" + "".join(f"{each.total():>12,}" for each in counts))
        return
    totals = {
        "dataclasses, named tuples": [records(tree) for tree in trees],
        "forecaster, service": [sum(map(lines, product(tree))) for tree in trees],
        "tokens of both": [sum(map(tokens, product(tree))) for tree in trees],
        f"names in {TOP}/": [
            sum(1 for each in rooms(tree) if each not in OTHERS and each[0] != "_")
            for tree in trees
        ],
    }
    for name, each in totals.items():
        print(f"{name:<{wide}}" + "".join(f"{count:>12,}" for count in each))
    print("\nlongest files:")
    longest = sorted(product(ROOT), key=lines, reverse=True)[:LONGEST]
    print("".join(f"{lines(file):>8,}  {file.relative_to(ROOT)}\n" for file in longest))
    print("longest functions:")
    print("".join(f"{count:>8,}  {place}\n" for count, place in functions(ROOT)[:LONGEST]), end="")


if __name__ == "__main__":
    main()
