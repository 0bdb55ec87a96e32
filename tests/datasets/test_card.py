import re
from pathlib import Path

import pytest
import yaml

from forecaster.base import installation
from forecaster.base.errors import ConfigError, DataError
from forecaster.datasets.card import Borders, Card, card_names, load_card


@pytest.mark.parametrize("name", card_names())
def test_every_card_says_where_its_data_are_and_whose(name):
    card = load_card(name)
    assert card.name == name
    for source in card.sources:
        assert source.urls or source.package or source.page
        assert all(url.startswith("https://") for url in source.urls)
        assert not any(file.startswith("/") or ".." in file for file in source.files)
        assert source.sha256 or source.git_blob
        if source.bare:
            assert sorted(source.bare.columns or card.columns) == sorted(card.columns)
    assert len({card.time, *card.columns}) == 1 + len(card.columns)
    targets = {card.target, *card.targets}
    assert targets <= {*card.columns}
    assert card.target in (card.targets or targets)
    assert {*card.future_covariates} <= {*card.columns} - targets
    rows, fractions = card.split.rows, card.split.fractions
    assert (rows is None) != (fractions is None)
    assert sum(fractions or [1]) == pytest.approx(1)
    assert sorted(rows or ()) == [*(rows or ())]
    whole = name.split("-")[0]
    if whole in card_names() and name != whole:
        assert card.title.startswith(f"Part of {whole}: ")


def test_shapes_borders_and_seasons():
    for name, columns, seasons, rows, borders in (
        ("ETTh1", 7, (24, 168), 17_420, (8_640, 11_520, 14_400)),
        ("ETTm1", 7, (96, 672), 69_680, (34_560, 46_080, 57_600)),
        ("traffic", 862, (24, 168), 17_544, (12_280, 14_036, 17_544)),
        ("exchange_rate", 8, (7,), 7_588, (5_311, 6_071, 7_588)),
        ("weather", 21, (144, 1008), 52_696, (36_887, 42_157, 52_696)),
    ):
        card = load_card(name)
        assert (len(card.columns), card.seasons) == (columns, seasons)
        assert card.target == card.columns[-1] == "OT"
        assert card.split.borders(rows, "it") == Borders(*borders)
        assert Card.model_validate(card.model_dump(mode="json")) == card


def test_the_end_of_the_name_of_a_file_tells_its_form():
    card = load_card("exchange_rate")
    forms = {"exchange_rate.csv": 0, "rates.txt.gz": 1, "rates.v2.csv": 0, "rates.parquet": 0}
    for file, form in forms.items():
        assert card.source_of(Path("/some/folder") / file) is card.sources[form]


def test_too_few_rows_for_the_borders():
    for name, rows in (("ETTh1", 14_399), ("vic_elec", 3)):
        with pytest.raises(DataError, match=f"the file has {rows} rows"):
            load_card(name).split.borders(rows, "it")


FACTS = load_card("ETTh1").model_dump(mode="json") | {
    "name": "mine", "freq": "15T", "split": {"fractions": [0.6, 0.2, 0.2]}
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ({"colour": "red"}, "colour: "),
        ({"freq": "fortnight"}, "freq: "),
        ({"sources": [{"files": ["mine.csv"], "sha256": "abc"}]}, r"sources\.0\.sha256: "),
        ({"split": {"rows": [1, 2]}}, r"split\.rows\.2: "),
        ({"split": {"fractions": [0.6, 0.2, 1.2]}}, r"split\.fractions\.2: "),
        ("", ""),
        ("- a list", ""),
        ("name: [", ""),
        ("name: !!python/object/apply:os.getcwd []", ""),
    ],
)
def test_a_new_card_is_found_by_its_file_and_a_wrong_one_told(tmp_path, monkeypatch, text, key):
    monkeypatch.setattr(installation, "cards", lambda: tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(FACTS), encoding="utf-8")
    card = load_card("mine")
    assert (card.freq, card.split.borders(100, "it")) == ("15min", Borders(60, 80, 100))
    facts = yaml.safe_dump(FACTS | text) if isinstance(text, dict) else text
    file.write_text(facts, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{re.escape(str(file))}: {key}"):
        load_card("mine")
