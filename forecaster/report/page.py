"""A page of sections, written as one self-contained HTML file without scripts or network access.

The template escapes every text. The page's Content-Security-Policy forbids everything except its
pictures and the style sheet, named by its hash.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from forecaster.base.atomic import storing
from forecaster.evaluate.display import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    @property
    def words(self) -> frozenset[int]:
        """The columns, from 0, whose cells are words: each begins with a letter, or is empty."""
        columns = [[cell for cell in cells if cell] for cells in zip(*self.rows, strict=True)]
        words = [cells and all(cell[:1].isalpha() for cell in cells) for cells in columns]
        return frozenset(place for place, is_words in enumerate(words) if is_words)


@dataclass(frozen=True)
class Chart:
    """A picture and its caption, which also stands for it where it is not seen."""

    figure: "Figure"
    caption: str

    @property
    def source(self) -> str:
        """The picture as an address that needs no network."""
        return f"data:image/svg+xml;base64,{base64.b64encode(svg(self.figure)).decode()}"


@dataclass(frozen=True)
class Section:
    """A heading, sentences, tables, charts, and text to copy."""

    id: str
    heading: str
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    code: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    sections: Sequence[Section]


def render(page: Page) -> str:
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    policy += "; form-action 'none'"
    template: Any = _environment().get_template("page.html.j2")
    return str(template.render(page=page, style=style, policy=policy)) + "\n"


def write(page: Page, file: Path) -> int:
    """Write the page; returns its size in bytes. Raises StorageError if writing fails."""
    data = render(page).encode()
    with storing(f"the report could not be written to {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return len(data)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
