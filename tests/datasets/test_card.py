import re
from pathlib import Path

import pytest
import torch
import yaml

from forecaster.base import installation
from forecaster.base.errors import ConfigError, DataError, UsageError
from forecaster.datasets import Borders, Windows, card_names, load_card
from forecaster.datasets.card import Card, spans

ETT_ROWS = {"h": 17_420, "m": 69_680}


def test_names():
    assert card_names() == [
        "ETTh1", "ETTh2", "ETTm1", "ETTm2", "electricity", "electricity-client0-OT",
        "electricity-mean", "epf-BE", "epf-DE", "epf-FR", "epf-NP", "epf-PJM",
        "europe-loads", "europe-prices", "exchange_rate", "nn5", "traffic", "traffic-sensor0",
        "vic_elec", "weather",
    ]  # fmt: skip


@pytest.mark.parametrize("name", card_names())
def test_every_card_says_where_its_data_are_and_whose(name):
    card = load_card(name)
    assert card.name == name
    assert card.title
    assert card.about
    assert card.licence
    assert card.citation
    for source in card.sources:
        assert source.urls or source.package or source.page
        assert all(url.startswith("https://") for url in source.urls)
    assert card.target in card.columns


@pytest.mark.parametrize(
    ("name", "borders", "seasons"),
    [
        ("ETTh1", Borders(8_640, 11_520, 14_400), (24, 168)),
        ("ETTh2", Borders(8_640, 11_520, 14_400), (24, 168)),
        ("ETTm1", Borders(34_560, 46_080, 57_600), (96, 672)),
        ("ETTm2", Borders(34_560, 46_080, 57_600), (96, 672)),
    ],
)
def test_ett_borders_and_seasons(name, borders, seasons):
    card = load_card(name)
    assert card.split.borders(ETT_ROWS[name[3]], "it") == borders
    assert card.seasons == seasons


@pytest.mark.parametrize(
    ("name", "counts"),
    [("ETTh1", (2785, 2689, 2545, 2161)), ("ETTm1", (11_425, 11_329, 11_185, 10_801))],
)
@pytest.mark.parametrize("past", [96, 336])
def test_ett_counts_of_test_windows(name, counts, past):
    rows = ETT_ROWS[name[3]]
    borders = load_card(name).split.borders(rows, "it")
    values = torch.zeros(rows, 1)
    got = tuple(
        len(Windows(values, values, past, horizon, borders.validation, borders.test, (0,)))
        for horizon in (96, 192, 336, 720)
    )
    assert got == counts


@pytest.mark.parametrize(
    ("name", "columns", "seasons", "rows", "borders"),
    [
        ("electricity", 321, (24, 168), 26_304, Borders(18_412, 21_044, 26_304)),
        ("traffic", 862, (24, 168), 17_544, Borders(12_280, 14_036, 17_544)),
        *(
            (f"epf-{market}", 3, (24, 168), 52_416, Borders(36_691, 41_933, 52_416))
            for market in ("NP", "PJM", "BE", "FR", "DE")
        ),
        ("exchange_rate", 8, (7,), 7_588, Borders(5_311, 6_071, 7_588)),
        ("weather", 21, (144, 1008), 52_696, Borders(36_887, 42_157, 52_696)),
    ],
)
def test_shapes_borders_and_seasons_of_the_others(name, columns, seasons, rows, borders):
    card = load_card(name)
    assert len(card.columns) == columns
    assert card.target == card.columns[-1] == "OT"
    assert card.seasons == seasons
    assert card.split.borders(rows, "it") == borders


@pytest.mark.parametrize(
    ("name", "columns", "known", "seasons"),
    [
        ("europe-loads", 38, 0, (24, 168)),
        ("europe-prices", 76, 38, (24, 168)),
        ("nn5", 111, 0, (7,)),
    ],
)
def test_cards_of_many_columns(name, columns, known, seasons):
    card = load_card(name)
    assert (len(card.columns), len(card.future_covariates)) == (columns, known)
    assert card.targets == (card.columns[:38] if known else ())
    assert card.seasons == seasons


def test_parts_say_so():
    for name in card_names():
        whole = name.split("-")[0]
        if whole in card_names() and name != whole:
            assert load_card(name).title.startswith(f"Part of {whole}: ")


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("exchange_rate.csv", 0),
        ("exchange_rate.txt.gz", 1),
        ("rates.txt.gz", 1),
        ("rates.v2.csv", 0),
        ("rates.parquet", 0),
    ],
)
def test_the_name_of_a_file_tells_its_form(file, form):
    card = load_card("exchange_rate")
    assert card.source_of(Path("/some/folder") / file) is card.sources[form]


def test_runs_of_column_numbers_are_written_short():
    card = load_card("traffic")
    assert card.columns == (*map(str, range(861)), "OT")
    assert spans(card.columns) == ["0..860", "OT"]
    assert spans(["0", "1", "a", "3", "5", "6", "7"]) == ["0", "1", "a", "3", "5..7"]
    assert Card.model_validate(card.model_dump(mode="json")) == card


def test_fractions_round_as_the_benchmarks_do():
    # Autoformer's numbers for exchange_rate: 7588 rows, train 5311, test 1517.
    borders = load_card("vic_elec").split.borders(7588, "it")
    assert (borders.train, borders.test - borders.validation, borders.test) == (5311, 1517, 7588)


@pytest.mark.parametrize(("name", "rows"), [("ETTh1", 14_399), ("vic_elec", 3)])
def test_too_few_rows_for_the_borders(name, rows):
    with pytest.raises(DataError, match=f"the file has {rows} rows"):
        load_card(name).split.borders(rows, "it")


def test_names_are_found_in_any_case_and_near_ones_are_proposed():
    assert load_card("etth1").name == "ETTh1"
    assert load_card("vic-elec").name == "vic_elec"
    with pytest.raises(UsageError, match=r"unknown data set 'ETTh3'.*Known: ETTh1, ETTh2"):
        load_card("ETTh3")


def facts():
    return {
        "name": "mine",
        "title": "t",
        "about": "a",
        "sources": [{"files": ["mine.csv"], "sha256": "0" * 64}],
        "time": "date",
        "timezone": "naive",
        "freq": "15T",
        "columns": ["a", "b"],
        "target": "b",
        "seasons": [96],
        "split": {"fractions": [0.6, 0.2, 0.2]},
        "licence": "l",
        "citation": "c",
    }


def source(**change):
    return {"sources": [{"files": ["mine.csv"], "sha256": "0" * 64} | change]}


@pytest.fixture
def cards(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "cards", lambda: tmp_path)
    return tmp_path


def test_a_new_card_is_found_by_its_file(cards):
    (cards / "mine.yaml").write_text(yaml.safe_dump(facts()), encoding="utf-8")
    card = load_card("mine")
    assert card.freq == "15min"
    assert card.split.borders(100, "it") == Borders(60, 80, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"freq": "fortnight"}, "freq: .*unknown time step 'fortnight'"),
        (source(sha256="abc"), r"sources\.0\.sha256: .*pattern"),
        (source(sha256=None), r"sources\.0: .*expected 'sha256' or 'git_blob'"),
        (source(git_blob="0" * 64), r"sources\.0\.git_blob: .*pattern"),
        (source(bare={"first": "noon"}), r"sources\.0\.bare\.first: "),
        (
            source(bare={"first": "2020-01-01", "columns": ["a", "c"]}),
            "the columns of mine.csv are not those of the card",
        ),
        ({"sources": []}, "sources: "),
        ({"seasons": []}, "seasons: "),
        ({"seasons": [0]}, r"seasons\.0: "),
        ({"target": "c"}, "target 'c' is not among"),
        ({"future_covariates": ["c"]}, "future covariate 'c' must be a column and not a target"),
        ({"future_covariates": ["b"]}, "future covariate 'b' must be a column and not a target"),
        (
            {"future_covariates": ["a"], "targets": ["a", "b"]},
            "future covariate 'a' must be a column and not",
        ),
        ({"targets": ["a"]}, r"the targets \['a'\] must be columns and include 'b'"),
        ({"targets": ["b", "c"]}, "must be columns and include 'b'"),
        ({"columns": ["a", "a", "b"]}, "a column is named twice"),
        ({"columns": ["a", "b", "date"]}, "a column is named twice"),
        (source(files=[]), r"sources\.0\.files: "),
        ({"timezone": "CET"}, "timezone: "),
        ({"split": {}}, "split: .*either 'rows' or 'fractions'"),
        ({"split": {"rows": [1, 2, 3], "fractions": [0.6, 0.2, 0.2]}}, "split: .*either"),
        ({"split": {"rows": [10, 5, 20]}}, "split: .*must increase"),
        ({"split": {"fractions": [0.6, 0.2, 0.1]}}, "split: .*add up to 1"),
        ({"title": None}, "title: "),
    ],
)
def test_a_wrong_card_names_file_and_key(cards, change, message):
    file = cards / "mine.yaml"
    file.write_text(yaml.safe_dump(facts() | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{re.escape(str(file))}: .*{message}"):
        load_card("mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine.yaml: the card: "),
        ("- a list", "mine.yaml: the card: "),
        ("name: [", "mine.yaml: not valid YAML"),
        ("name: !!python/object/apply:os.getcwd []", "mine.yaml: not valid YAML"),
    ],
)
def test_what_is_no_card(cards, text, message):
    (cards / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_card("mine")
