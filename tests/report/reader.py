"""What a test reads from a page: its tags, the text of each section, and its references."""

import base64
import hashlib
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link"}


class Reader(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.style = ""
        self.open: list[str] = []
        self.section = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.section = dict(attributes)["id"] or ""

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text[self.section] = self.text.get(self.section, "") + data

    @property
    def pictures(self):
        """The words that stand for each picture."""
        return [attributes["alt"] or "" for tag, attributes in self.tags if tag == "img"]

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)


def check_alone(html):
    """Check that the page is well formed, refers only to itself, and obeys the policy it states."""
    read = Reader(html)
    assert not read.open
    for tag, attributes in read.tags:
        assert tag not in {"script", "link", "iframe", "object", "base", "form"}, tag
        for name, value in attributes.items():
            assert name not in {"style", "srcset"}, (tag, name)
            if name == "src":
                assert (value or "").startswith("data:image/svg+xml;base64,"), value
            assert not name.startswith("on"), (tag, name)
            if "href" in name:
                assert (value or "").startswith("#"), value
    for outside in ("://", "url(", "@import"):
        assert outside not in html.replace("sqlite:///", ""), outside
    ids = [a["id"] for _, a in read.tags if "id" in a]
    assert len(set(ids)) == len(ids)
    links = [a["href"] for tag, a in read.tags if tag == "a"]
    assert links == [f"#{each}" for each in ids]
    digest = base64.b64encode(hashlib.sha256(read.style.encode()).digest()).decode()
    (policy,) = [
        a["content"] for _, a in read.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; ")
    return read
