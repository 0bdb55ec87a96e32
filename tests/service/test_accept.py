import pytest

from forecaster_service.accept import CSV, JSON, preferred


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", JSON), ("*/*", JSON), ("application/json", JSON), ("text/html", JSON),
        ("text/csv", CSV), ("TEXT/CSV", CSV), ("text/*", CSV), ("text/csv; charset=utf-8", CSV),
        ("text/csv, */*", CSV), ("text/csv, application/json", JSON),
        ("text/csv;q=0.9, application/json;q=0.8", CSV), ("text/csv;q=0.5, */*;q=0.7", JSON),
        ("application/json;q=0.1 , text/csv ; q=0.2", CSV), ("text/csv;q=0, */*", JSON),
        ("application/*, text/csv", CSV), ("application/json;q=0, */*;q=0.1", CSV),
        ("text/csv;q=nan", JSON), ("text/csv;q=", JSON), (";,;q=1,", JSON), ("text/csv;q=9", JSON),
    ],
)  # fmt: skip
def test_the_better_one(accept: str, media: str) -> None:
    assert preferred(accept, (JSON, CSV)) == media
