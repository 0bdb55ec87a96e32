import pytest

from forecaster.base.errors import StorageError
from forecaster.evaluate.drawing import Drawing
from forecaster.report import Chart, Page, Section, Table, render, write
from tests.report.reader import check_alone

EVIL = "<script>alert('1')</script> & \"x\""


def page(name=EVIL):
    figure = Drawing()
    figure.suptitle(name)
    section = Section(
        "one", name, [name], [Table((name, "b"), [(name, name)], name)],
        [Chart(figure, name)], [name],
    )  # fmt: skip
    return Page(name, name, [section, Section("two", "Two")])


def test_every_text_is_escaped_wherever_it_stands():
    html = render(page())
    assert "<script" not in html
    read = check_alone(html)
    assert read.text["one"].count(EVIL) == 8, "heading to code"
    assert read.pictures == [EVIL]
    assert read.text[""].count(EVIL) == 4, "title, h1, lead, link"
    assert read.count("section") == 2


def test_columns_of_words_are_left_aligned():
    rows = [("a", "9.0%", "over 96 steps", ""), ("b2", "none", "", "")]
    table = Table(("part", "weight", "chosen", "empty"), rows)
    assert table.words == {0, 2}
    read = check_alone(render(Page("a", "b", [Section("one", "One", tables=[table])])))
    cells = [a.get("class") for tag, a in read.tags if tag == "td"]
    assert cells == [None, "words", None] * 2


def test_a_file_is_written_with_its_folder_if_it_can_be(tmp_path):
    file = tmp_path / "new" / "page.html"
    assert write(page(), file) == file.stat().st_size
    assert file.read_text(encoding="utf-8") == render(page())
    with pytest.raises(StorageError, match=r"the report could not be written to .*below\.html"):
        write(page(), file / "below.html")
