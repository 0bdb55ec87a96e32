"""The two walks of the code: from a CSV to a bundle, and from a POST to its answer.

    python -m benchmarks.size --walks [OTHER ...]   count both, and list them
    python -m benchmarks.walks --draw               draw both in CONTRIBUTING.md

A file is on a walk if a record goes into it or comes out of it: a dataclass or a named tuple of
ours is an argument (the object of a method, too) or the result of one of its functions, called from
another file; by itself, or in a list, a tuple or a dict. The types of these records are the types
of the walk. What happens in an import does not count. The rooms of ASIDE are passed over, as
libraries are: what a reader looks up (base, config), the network, which is one call (model,
attention), and what shows and tracks a run (cli, report, tracking).

The walks begin at what users call, so that any checkout can be traced: `forecaster train` with a
generated file, then POST /predict with the example of the model that came out.
"""

import ast
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from textwrap import shorten
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "CONTRIBUTING.md"
TITLES = {"csv": "from a CSV to a bundle", "post": "from a POST to its answer"}
COMMAND = ("train", "--data", "x.csv", "--horizon", "12", "--epochs", "1")
ASIDE = ("base", "config", "model", "attention", "cli", "report", "tracking")
FOLDERS = ("forecaster/", "service/forecaster_service/")
PACKAGES = ("forecaster", "forecaster_service")


class Walk(NamedTuple):
    callers: dict[str, list[str]]
    """The files, in the order in which records reach or leave them first; and those whose functions
    are open then, the innermost first."""
    taken: dict[str, list[str]]
    """The types of the records that go into a file."""
    given: dict[str, list[str]]
    """The types of the records that come out of a file."""

    @property
    def files(self) -> list[str]:
        return [*self.callers]

    @property
    def types(self) -> list[str]:
        """In the order of the files."""
        return list(
            dict.fromkeys(kind for f in self.files for kind in self.taken[f] + self.given[f])
        )


def walks(tree: Path) -> dict[str, Walk]:
    """Both walks of a tree, by name, traced in a process of its own."""
    outside = ("FORECASTER_", "MLFLOW_")
    variables = {key: text for key, text in os.environ.items() if not key.startswith(outside)}
    variables["PYTHONPATH"] = os.pathsep.join([str(tree), str(tree / "service")])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-P", __file__, "--trace", str(tree)],
            cwd=folder, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{tree}: the trace failed\n{done.stderr[-2000:]}")
        documents = json.loads(Path(folder, "walks.json").read_text(encoding="utf-8"))
    return {name: Walk(*document) for name, document in documents.items()}


class Trace:
    """A profile function: notes the records that go into files and come out of them."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.places: dict[str, str | None] = {}
        self.forget()

    def forget(self) -> None:
        self.walk = Walk({}, {}, {})

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        if event not in ("call", "return") or (file := self.place(frame)) is None:
            return
        placed = (place for outer in outward(frame) if (place := self.place(outer)) is not None)
        if next(placed, None) == file:
            return
        kinds = dict.fromkeys(records([result] if event == "return" else arguments(frame)))
        if not kinds:
            return
        stack = [frame, *outward(frame)]
        if any(is_import(outer) for outer in stack):
            return
        callers = [place for outer in stack[1:] if (place := self.place(outer)) is not None]
        if file not in self.walk.callers:
            self.walk.callers[file] = list(dict.fromkeys(callers))
            self.walk.taken[file], self.walk.given[file] = [], []
        types = (self.walk.given if event == "return" else self.walk.taken)[file]
        types += [kind for kind in kinds if kind not in types]

    def place(self, frame: FrameType) -> str | None:
        """The file of a frame, from the tree on; None if it is passed over."""
        name = frame.f_code.co_filename
        if name not in self.places:
            below = name.removeprefix(f"{self.tree}/")
            room = below.removeprefix(FOLDERS[0]).partition("/")[0].removesuffix(".py")
            ours = below.startswith(FOLDERS) and room not in ASIDE
            self.places[name] = below if ours else None
        return self.places[name]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace this thread and those that begin meanwhile."""
        sys.setprofile(self)
        threading.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def outward(frame: FrameType) -> Iterator[FrameType]:
    while (outer := frame.f_back) is not None:
        yield (frame := outer)


def is_import(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith("<frozen importlib")


def arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    stars = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]
    return [frame.f_locals.get(name) for name in names]


def records(value: object) -> Iterator[str]:
    """The types of the records in a value."""
    kind = type(value)
    if kind in (list, tuple):
        for member in value:  # type: ignore[attr-defined]
            yield from records(member)
    elif kind is dict:
        yield from records([*value.values()])  # type: ignore[attr-defined]
    elif kind.__module__.partition(".")[0] in PACKAGES and (
        is_dataclass(kind) or issubclass(kind, tuple)
    ):
        yield f"{kind.__module__}.{kind.__qualname__}"


def trace(tree: Path) -> dict[str, Walk]:
    """Both walks in a tree, which is the one that Python imports; writes to the current folder."""
    from fastapi.testclient import TestClient

    from forecaster.cli import app
    from forecaster_service.app import create_app
    from forecaster_service.settings import Settings

    with open("x.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("time", "load"))
        for hour in range(600):
            load = 10 + 3 * math.sin(hour * math.tau / 24) + math.sin(hour**2)
            rows.writerow((datetime(2024, 1, 1) + timedelta(hours=hour), f"{load:.3f}"))
    to_bundle, to_answer = Trace(tree), Trace(tree)
    with to_bundle.on():
        app(args=list(COMMAND), standalone_mode=False)
    (bundle,) = Path("runs").iterdir()
    service = create_app(Settings(model=str(bundle), max_batch=64, poll_seconds=0))
    with to_answer.on(), TestClient(service, base_url="http://localhost") as client:
        while "being loaded" in client.get("/readyz").text:
            time.sleep(0.02)
        (model,) = client.get("/models").json()["models"]
        body = client.get(f"/models/{model['name']}/example").json()
        to_answer.forget()
        client.post("/predict", json=body).raise_for_status()
        answered = to_answer.walk
        to_answer.forget()  # what ends the service is not on the walk
    return {"csv": to_bundle.walk, "post": answered}


def show(trees: list[Path]) -> None:
    """Print the counts of each tree, and the walks of the last."""
    traced = [walks(tree) for tree in trees]
    print(f"{'files and types':<26}" + "".join(f"{tree.name:>14}" for tree in trees))
    for name, title in TITLES.items():
        counts = [f"{len(both[name].files)} and {len(both[name].types)}" for both in traced]
        print(f"{title:<26}" + "".join(f"{count:>14}" for count in counts))
    for name, title in TITLES.items():
        walk = traced[-1][name]
        print(f"\n{title}, files:", *walk.files, "types:", *walk.types, sep="\n  ")


def drawing(tree: Path, walk: Walk) -> str:
    """A line a file, below the nearest earlier one that called it: the types that come out of it
    or, if there are none, that go into it; and the first line of its docstring."""
    below: dict[str, list[str]] = {}
    for place, file in enumerate(walk.files):
        earlier = walk.files[:place]
        caller = next((other for other in walk.callers[file] if other in earlier), "")
        below.setdefault(caller, []).append(file)

    def lines(caller: str, indent: str) -> Iterator[str]:
        for file in below.get(caller, []):
            names = [kind.rpartition(".")[2] for kind in walk.given[file] or walk.taken[file]]
            types = shorten(", ".join(names), 24, placeholder=" ...")
            arrow = f"-> {types}" if walk.given[file] else f"{types} ->"
            text = ast.get_docstring(ast.parse((tree / file).read_text(encoding="utf-8"))) or ""
            name = indent + file.removeprefix("forecaster/").removeprefix("service/")
            yield f"{name:<42} {arrow:<27} {text.partition(chr(10))[0]}".rstrip()
            yield from lines(file, indent + "  ")

    return "\n".join(lines("", ""))


def drawn(document: str, both: dict[str, Walk]) -> str:
    """A document with both walks between their markers, `<!-- begin walk_csv -->` and so on."""
    for name, walk in both.items():
        begin, end = (f"<!-- {word} walk_{name} -->" for word in ("begin", "end"))
        before, _, rest = document.partition(begin)
        after = rest.partition(end)[2]
        document = f"{before}{begin}\n```text\n{drawing(ROOT, walk)}\n```\n{end}{after}"
    return document


def main() -> None:
    if sys.argv[1:2] == ["--trace"]:
        Path("walks.json").write_text(json.dumps(trace(Path(sys.argv[2]))), encoding="utf-8")
    elif sys.argv[1:] == ["--draw"]:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(drawn(text, walks(ROOT)), encoding="utf-8")
    else:
        print(__doc__)


if __name__ == "__main__":
    main()
