import re
from pathlib import Path

from forecaster.forecast.notices import NoticeCode

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"


def test_the_documents_list_each_code() -> None:
    section = DOCS.read_text().partition("### Notices\n")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == list(NoticeCode)
