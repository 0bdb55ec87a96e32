"""The display of a measurement: tables for the terminal, and a file."""

import json
import re
from pathlib import Path

from forecaster.base.atomic import storing
from forecaster.study.bench.cells import TIE_MIB, TIE_SHARE, Document, Measurement


def tables(document: Document) -> str:
    """Tables of times and memory, with marks on dominated types, and what was not measured."""
    rows = {(row["attn"], row["length"]): row for row in document["rows"]}
    names = list(dict.fromkeys(row["attn"] for row in document["rows"]))
    lengths = sorted({row["length"] for row in document["rows"]})
    lines = [title(document), document["hardware"]]
    for heading, key in (("milliseconds", "milliseconds"), ("extra MiB", "mib")):
        lines += ["", f"{heading:<12}" + "".join(f"{length:>8} " for length in lengths).rstrip()]
        for name in names:
            cells = (rows[name, length] for length in lengths)
            line = "".join(f"{digits(row.get(key)):>8}{_mark(row)}" for row in cells)
            lines.append(f"{name:<12}{line}".rstrip())
    lines += [
        "",
        f"* dominated: another type is faster and needs less memory, each by {TIE_SHARE:.0%} and "
        f"{TIE_MIB:g} MiB at least",
        "! even full attention is. The controls and SDPA do not count; what a forecast gains from",
        "  an attention is another question.",
    ]
    for name in names:
        skipped = [row for row in document["rows"] if row["attn"] == name and "skipped" in row]
        if skipped:
            at = ", ".join(str(row["length"]) for row in skipped)
            lines.append(f"not measured: {name} at L = {at}: it {skipped[0]['skipped']}")
    return "\n".join(lines)


def title(document: Document) -> str:
    return (
        f"forward and backward{', causal' if document['causal'] else ''}, "
        f"batch {document['batch']}, {document['heads']} heads of {document['width']}, "
        f"{document['dtype']}"
    )


def save(document: Document, folder: Path) -> Path:
    """Write the document as JSON; its name states machine and shape.

    Raises StorageError when the folder cannot be written.
    """
    where = document["processor"]
    if document["device"] == "cpu":
        where += f" {document['threads']} threads"
    shape = "B{batch}-H{heads}-E{width}-{dtype}".format(**document)
    name = f"attention {where} {shape}{' causal' if document['causal'] else ''}"
    file = folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}.json"
    with storing(f"{folder} could not be written"):
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return file


def digits(value: float | None) -> str:
    """A value with three significant digits, "–" if it is missing."""
    if value is None:
        return "–"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _mark(row: Measurement) -> str:
    return "!" if "full" in row["dominated_by"] else "*" if row["dominated_by"] else " "
