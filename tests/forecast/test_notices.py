import re
from pathlib import Path

from forecaster.forecast.notices import Notice, NoticeCode

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"


def test_a_notice_is_a_sentence_with_a_code() -> None:
    notice = Notice(NoticeCode.MEDIAN, "median, not mean, is given")
    assert f"warning: {notice}" == "warning: median, not mean, is given"
    assert (notice.code, notice) == ("median", "median, not mean, is given")


def test_the_documents_list_each_code() -> None:
    section = DOCS.read_text().partition("### Notices\n")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == list(NoticeCode)
