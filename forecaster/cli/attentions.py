"""List, measure and choose attentions."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from forecaster.base.errors import UsageError
from forecaster.cli import options
from forecaster.cli.output import command, nothing, print_json, row, say
from forecaster.config.flags import FLAGS

# By the tables of docs/comparison.md, as tests/test_benchmarks.py checks: everyday types are
# measurably better in one of them than none, and than static and full attention where these are a
# fifth quicker. Of the others, the second group costs less than full attention in long series.
GROUPS = {
    "everyday": (
        "full", "prob", "lsh", "topk", "single", "fastformer", "diff", "aft-full", "aft-local",
        "aft-simple", "aft-conv", "gated", "sliding", "position-prior",
    ),
    "for long sequences": (
        "logsparse", "strided", "fixed", "flash", "retention", "delta", "ssd",
    ),
    "for study": ("gau", "forgetting", "static", "mean", "none"),
}  # fmt: skip
# an H200, forward and backward, from 96 to 8,192 steps: docs/performance.md
GPU = {
    "as quick": ("full",),
    "up to 9 times as long with its head 512 wide": ("single",),
    "1.2 to 2.8 times as long": ("logsparse", "strided", "fixed"),
    "2 to 200 times as long": ("prob", "lsh", "topk", "gau", "flash", "diff", "aft-full"),
    "longer, a fifth at 8,192 steps; longer if causal": ("fastformer", "aft-simple"),
    "longer, but quicker at 8,192 steps": ("aft-local", "aft-conv"),
}
ABOUT_DATA = [name for name, path in FLAGS.items() if path.startswith("data.") or name == "horizon"]

bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)

SHORT = 960
"""Steps of data below which the commands of `advise` name a horizon: ten of the default one."""


@options.described(name="Name of one attention, to show only it.")
def attentions(
    name: Annotated[str | None, typer.Argument()] = None,
    names: Annotated[bool, typer.Option("--names", help="Print only the names.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List the attention types that --attn takes, or show one.

    cost: time of one layer; D is the width of the model, L and S the lengths of queries and keys.
    causal: what the masked form guarantees. cross: whether it can attend to another series. random:
    what is drawn. export: whether `forecaster export` can write it at all lengths. year:
    of the paper, or a control in comparisons, or a plug-in of another package. Everyday types are
    those that paid in some table of docs/comparison.md. With a name: also the paper, the formula,
    and the options that --set attn.NAME=VALUE takes.

    Example: forecaster attentions prob
    """
    from forecaster.attention import CATALOGUE, SYNONYMS
    from forecaster.base.names import find

    chosen = list(CATALOGUE) if name is None else [find(CATALOGUE, name, "attention", SYNONYMS)[0]]
    if names:
        print("\n".join(chosen))
        return
    facts = []
    for attention in chosen:
        try:
            facts.append(_facts(attention))
        except UsageError as error:  # an attention of another package that cannot be loaded
            if name is not None:
                raise
            say(f"error: {error}")
    if as_json:
        print_json(facts if name is None else facts[0])
    elif name is None:
        _show_attentions(facts)
    else:
        _show_attention(facts[0])


@bench.command("attention")
@options.described(
    attn='"all", or comma-separated names; see `forecaster attentions`.',
    length="A range, measured at powers of two; or a comma-separated list.",
    batch="Series at a time.",
    heads="Heads.",
    width="Width of a head, even.",
    threads="Processor threads; by default torch's choice.",
    dtype="Else float32 on a processor and bfloat16 on a GPU.",
    limit="Seconds for one call; what takes longer is left out.",
    output="Folder for the JSON; else the user's cache.",
)
def bench_attention(
    attn: str = "all",
    length: str = "96:16384",
    batch: options.Count = 1,
    heads: options.Count = 8,
    width: Annotated[int, typer.Option(min=2)] = 64,
    causal: Annotated[bool, typer.Option("--causal", help="Attend only to the past.")] = False,
    threads: options.CountOrNone = None,
    device: options.Device = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    limit: Annotated[float, typer.Option(min=0.01)] = 20.0,
    output: Path | None = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure time and memory of attention functions.

    Measures forward and backward passes by length, beside torch's fused kernel (SDPA). A type is
    marked as dominated when another one is faster and needs less memory. With one thread, the time
    is processor time, which other work on the machine disturbs little.

    Example: forecaster bench attention --attn prob,full,lsh --length 96:4096 --causal
    """
    import torch

    from forecaster.base import installation, machine
    from forecaster.study import bench as measure

    names, lengths = measure.choose(attn), measure.read_lengths(length)
    if width % 2:
        raise UsageError(f"--width must be even, because diff halves it, got {width}")
    where = machine.device(device or "auto")
    how = measure.Setup(
        batch=batch,
        heads=heads,
        width=width,
        causal=causal,
        threads=threads or torch.get_num_threads(),
        device=where,
        dtype=dtype or ("bfloat16" if where == "cuda" else "float32"),
        limit=limit,
    )
    document = {"command": command(), **measure.curves(names, lengths, how)}
    file = measure.save(document, output or installation.cache() / "bench")
    if as_json:
        print_json(document)
    else:
        print(measure.tables(document))
    say(f"wrote {file}")


@options.configured(*ABOUT_DATA)
def advise(request: options.Asked, as_json: options.AsJson = False) -> None:
    """Name an attention for your data.

    Measures a few facts about the data, and names the studied regimes that they resemble, with the
    findings there (docs/choosing.md).

    Example: forecaster advise --data sales.csv --target amount
    """
    if "data" not in request.flags:
        raise UsageError("advise needs --data FILE")
    from forecaster.datasets.seasons import measure
    from forecaster.plan.data import find_data
    from forecaster.study.advise import data as adviser

    config, dataset = find_data(request.load(), nothing if as_json else say)

    def train(attn: str | None, recipe: str | None, sets: Sequence[str]) -> str:
        named = request.config or (None if config.data.is_file else recipe)
        changed = replace(request, config=named, sets=[*request.sets, *sets])
        return changed.command("train", attn=attn, horizon=horizon)

    def compare(grid: str, attn: str | None, fits: Sequence[str]) -> str:
        read = {
            name: value for name, value in request.flags.items() if name not in ("data", "horizon")
        }
        sets = [f"{FLAGS[name]}={_value(value)}" for name, value in read.items()]
        values = {
            "--grid": grid,
            "--data": request.flags["data"],
            "--attn": attn,
            "--horizon": request.flags.get("horizon", horizon),
            "--name": f"{config.data.label}-{grid}",
        }
        given = [("--set", value) for value in (*fits, *request.sets, *sets)]
        return options.shell("compare", [*values.items(), *given])

    facts, horizon = measure(dataset, config.data.holidays), None
    if facts.steps < SHORT:
        season = next(iter(facts.seasons), facts.steps)
        horizon = season if 4 * season <= facts.steps else max(1, facts.steps // 20)
    advice = adviser.advise(facts, train, compare)
    if as_json:
        print_json(advice)
    else:
        print(adviser.text(advice, facts))


def _value(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w. /-]*", value)
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def _facts(name: str) -> dict[str, Any]:
    """The facts about an attention, in the order in which they are shown."""
    import inspect

    from forecaster.attention import CATALOGUE, CONTROLS
    from forecaster.attention.base import SelfAttention
    from forecaster.base.names import option_model

    kind = CATALOGUE[name]
    text = inspect.getdoc(sys.modules[kind.__module__]) or inspect.getdoc(kind) or ""
    about = asdict(kind.about)
    fields = option_model(kind, name).model_fields
    package = CATALOGUE.plug_ins().get(name)
    control = "control" if name in CONTROLS else ""
    groups = (group for group, types in GROUPS.items() if name in types)
    return {
        "name": name,
        "kind": f"plug-in of {package}" if package else control,
        "about": text.split("\n")[0].rstrip("."),
        **about,
        "group": next(groups, "of other packages"),
        "gpu": next((speed for speed, types in GPU.items() if name in types), None),
        "cross": not issubclass(kind, SelfAttention),
        "export": not about["no_export"],
        "options": {key: field.default for key, field in fields.items()},
        "types": {key: _type(field.annotation) for key, field in fields.items()},
        "text": text,
    }


def _show_attentions(facts: list[dict[str, Any]]) -> None:
    head = ("name", "year", "cost", "causal", "cross", "random", "export")
    words = {None: "–", True: "yes", False: "no"}
    listed = [{**fact, "year": fact["kind"].partition(" ")[0] or fact["year"]} for fact in facts]
    rows = [head, *([words.get(fact[key], str(fact[key])) for key in head] for fact in listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    ]
    print(lines[0])
    for group in dict.fromkeys((*GROUPS, *(fact["group"] for fact in facts))):
        shown = [
            line for line, fact in zip(lines[1:], facts, strict=True) if fact["group"] == group
        ]
        print("\n".join(["", group, *shown]))
    print("\nOn a GPU, beside torch's fused full attention (trainings in docs/performance.md):")
    for speed, types in GPU.items():
        print(f"{speed}: {', '.join(types)}")


def _show_attention(fact: dict[str, Any]) -> None:
    print(f"{fact['text']}\n")
    if fact["kind"]:
        row("kind", fact["kind"])
    if fact["year"] is not None:
        row("paper", f"{fact['paper']}, {fact['year']}")
    for key in ("group", "cost", "causal", "random"):
        row(key, fact[key])
    if fact["gpu"]:
        row("gpu", f"{fact['gpu']} (beside torch's fused full attention)")
    row("cross", "yes" if fact["cross"] else "no: full attention is used there")
    row("export", "yes" if fact["export"] else f"not everywhere: {fact['no_export']}")
    for key, value in fact["options"].items():
        row("option", f"{key} = {_value(value)}  ({fact['types'][key]})")
    option = next((f" --set attn.{key}={_value(x)}" for key, x in fact["options"].items()), "")
    print(f"\nExample: forecaster train --attn {fact['name']}{option}")


def _type(annotation: Any) -> str:
    """An annotation as users write its values."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_args(annotation):
        return " or ".join(map(_type, get_args(annotation)))
    return "null" if annotation is type(None) else str(getattr(annotation, "__name__", annotation))
