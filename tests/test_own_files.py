"""Users' files in every form, from the file to the forecast."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.base.errors import DataError, UsageError
from forecaster.config.run_config import load
from forecaster.evaluate import judge, score
from forecaster.evaluate.problem import Problem, find_data, make_problem
from forecaster.forecast import bundle
from forecaster.forecast.bundle import Bundle
from forecaster.forecast.predictor import Predictor
from forecaster.model import ForecastModel
from forecaster.record import Record
from forecaster.run import experiment
from forecaster.train.run import Fit, fit
from tests import shapes, small

SMALL = (
    "model.width=4", "model.feed_forward=4", "train.epochs=1", "train.batch=32", "train.stride=4",
    "train.lr_of={}", "window.past=14", "train.checks=1",
)  # fmt: skip
ROWS, HORIZON = 200, 5
TIMES = pd.date_range("2024-01-01", periods=ROWS + HORIZON, freq="D")
NEXT = list(TIMES[ROWS:])


@pytest.fixture(autouse=True)
def home(tmp_path):
    with small.at_home(tmp_path) as folder:
        yield folder


def wave(seed: int, level: float = 50.0, rows: int = ROWS) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.3, rows)
    return level * (1 + 0.2 * np.sin(np.arange(rows) * 2 * np.pi / 7)) + noise


def wide() -> pd.DataFrame:
    return pd.DataFrame({"when": TIMES[:ROWS], "amount": wave(0), "visitors": wave(1, 900.0)})


def long() -> pd.DataFrame:
    """Three shops; one opens late and one closes early; promotions are known ahead."""
    parts = []
    for name, kind, first, last in (
        ("a", "mall", 0, ROWS), ("b", "street", 60, ROWS), ("c", "mall", 0, 150),
    ):  # fmt: skip
        promo = np.random.default_rng(first + last).integers(0, 2, ROWS + HORIZON)
        rows = pd.DataFrame({"shop": name, "day": TIMES, "sold": np.nan, "promo": promo})
        rows.loc[: ROWS - 1, "sold"] = wave(ord(name), 10.0 ** (ord(name) - 96))
        rows["kind"] = kind
        parts.append(rows.iloc[first:last])
    return pd.concat(parts, ignore_index=True)


def trained(name: str, *sets: str, **flags) -> tuple[Problem, Predictor]:
    """The bundle that `forecaster train --data NAME` keeps, without tracking."""
    loaded = load(None, [*SMALL, *sets], {"data": name, "horizon": HORIZON, **flags}, {})
    problem = make_problem(*find_data(loaded, lambda text: None))
    model = problem.build_model()
    fit(
        model, problem.training("cpu"), problem.stopping("cpu"), problem.config.train,
        device="cpu", seed=0,
    )  # fmt: skip
    intervals, words = judge.find_intervals(problem, model, "cpu")
    about = {
        "name": problem.name, "intervals": words, "refit": False, "data_digest": problem.digest,
    }  # fmt: skip
    made = Bundle(
        problem.config, problem.schema, dict(model.state_dict()), Record(), about, intervals
    )
    return problem, Predictor(made.save(Path("bundle")), "cpu")


def test_a_wide_file_with_one_target():
    wide().to_csv("sales.csv", index=False)
    problem, forecaster = trained("sales.csv", target="amount")
    assert problem.name == "forecaster-sales-S-amount-5"
    assert problem.schema.columns == ("amount",)
    ahead = forecaster.predict("sales.csv")
    assert list(ahead.columns) == ["when", "amount"]
    assert list(ahead["when"]) == NEXT
    assert ahead["amount"].between(30, 70).all()


def test_all_columns_of_a_parquet_file():
    wide().to_parquet("sales.parquet")
    problem, forecaster = trained("sales.parquet")
    assert problem.schema.targets == ("amount", "visitors")
    assert list(forecaster.predict(wide())["when"]) == NEXT


def test_past_covariates_are_read_and_not_predicted():
    wide().to_csv("sales.csv", index=False)
    problem, forecaster = trained("sales.csv", target="amount", past_covariates=["visitors"])
    assert problem.name == "forecaster-sales-MS-amount-5"
    other = wide().assign(visitors=wide()["visitors"][::-1].to_numpy())
    ahead = forecaster.predict(wide())
    assert list(ahead.columns) == ["when", "amount"]
    assert not ahead.equals(forecaster.predict(other))


@pytest.mark.parametrize("future", ["file", "rows"])
def test_a_panel_with_covariates_known_ahead_and_attributes(future):
    long().to_csv("shops.csv", index=False)
    problem, forecaster = trained(
        "shops.csv", target="sold", future_covariates=["promo"], static=["kind"]
    )
    schema = problem.schema
    assert (schema.id, schema.items) == (("shop",), ("a", "b", "c"))
    assert schema.known.width == 3
    assert schema.scaler.mean[:, 0] == pytest.approx([10, 100, 1000], rel=0.1)

    history = long()
    coming = pd.concat(
        [
            pd.DataFrame({"shop": name, "day": TIMES[end : end + HORIZON], "promo": 1})
            for name, end in (("a", ROWS), ("b", ROWS), ("c", 150))
        ]
    )
    if future == "rows":
        kinds = coming["shop"].map({"a": "mall", "b": "street", "c": "mall"})
        history, ahead = pd.concat([history, coming.assign(kind=kinds)]), None
    else:
        ahead = coming
    forecast = forecaster.predict(history, levels=(0.2, 0.8), future=ahead)
    assert list(forecast.columns) == ["shop", "day", "sold", "sold 0.2", "sold 0.8"]
    assert list(forecast["shop"]) == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    assert list(forecast["day"]) == [*NEXT, *NEXT, *TIMES[150:155]]
    middle = forecast.groupby("shop")["sold"].mean()
    assert middle.to_numpy() == pytest.approx([10, 100, 1000], rel=0.3)


def test_series_of_one_row_without_values_and_without_change_are_no_trouble():
    table = long().drop(columns=["promo", "kind"]).dropna()
    empty = pd.DataFrame({"shop": "empty", "day": TIMES[:ROWS], "sold": np.nan})
    flat, one = empty.assign(shop="flat", sold=7.0), table[table["shop"] == "a"].tail(1)
    rows = pd.concat([table, empty, flat, one.assign(shop="one")])
    rows.to_csv("shops.csv", index=False)
    problem, forecaster = trained("shops.csv", target="sold", id="shop")
    report = judge.judge(problem, forecaster.model, "cpu", forecaster.bundle.intervals)
    assert np.isfinite(report.model.mse)
    errors = report.record.to_dict()["items"]["errors"]
    assert {*errors} == {"a", "b", "flat"}  # columns with values in the test part
    assert errors["flat"]["mase"] is None
    ahead = forecaster.predict(pd.concat([table, flat]))
    assert ahead.loc[ahead["shop"] == "flat", "sold"].to_numpy() == pytest.approx(7, abs=1)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-310])
def test_forecasts_are_finite_at_any_scale(scale):
    table = wide().assign(amount=wave(0) * scale)
    table.to_csv("scale.csv", index=False)
    _, forecaster = trained("scale.csv", target="amount")
    ahead = forecaster.predict("scale.csv")["amount"]
    assert (ahead / scale).between(30, 70).all()


def test_what_comes_after_the_training_part_changes_nothing_of_it():
    table = long().dropna()
    own = {"target": "sold", "future_covariates": ["promo"], "static": ["kind"]}

    def problem(rows: pd.DataFrame) -> Problem:
        rows.to_csv("shops.csv", index=False)
        loaded = load(None, list(SMALL), {"data": "shops.csv", "horizon": HORIZON, **own}, {})
        return make_problem(*find_data(loaded, lambda text: None))

    before = problem(table)
    border = before.series.times[before.borders.train]
    spoilt = table.assign(sold=table["sold"].where(table["day"] < border, -1e4))
    spoilt["promo"] = spoilt["promo"].where(table["day"] < border, 77)
    after = problem(spoilt)
    assert after.schema == before.schema
    assert after.borders == before.borders
    one, other = before.training("cpu"), after.training("cpu")
    assert len(one) == len(other)
    for part, same in zip(*(w.batch(torch.arange(len(w))) for w in (one, other)), strict=True):
        assert part is same is None or torch.equal(part, same)
    for (values, calendar), (others, steps) in zip(one.rows(), other.rows(), strict=True):
        assert torch.equal(values, others)
        assert torch.equal(calendar, steps)
    ends = {
        before.series.times[step + HORIZON - 1] for _, _, step in map(one.origin, range(len(one)))
    }
    assert max(ends) < border


def test_an_item_does_not_change_the_forecast_of_another():
    long().drop(columns=["promo", "kind"]).to_csv("shops.csv", index=False)
    _, forecaster = trained("shops.csv", target="sold")
    table = pd.read_csv("shops.csv")
    together = forecaster.predict(table)
    for name, own in together.groupby("shop"):
        alone = forecaster.predict(table[table["shop"] == name])
        np.testing.assert_allclose(alone["sold"], own["sold"], rtol=1e-5)


@pytest.mark.parametrize("name", ["sales.csv", "sales.parquet"])
def test_marks_of_missing_values_are_as_empty_cells(name):
    table = wide()
    table.loc[[5, 7, 80, 150], "amount"] = -9999
    table["visitors"] = table["visitors"].round().astype(int).mask(np.arange(ROWS) % 50 == 3, -1)
    (table.to_csv if name.endswith("csv") else table.to_parquet)(name, index=False)
    said: list[str] = []
    asked = {"data": name, "horizon": HORIZON, "missing": ["-9999", "-1"]}
    problem = make_problem(*find_data(load(None, list(SMALL), asked, {}), said.append))
    assert "Missing values: 'amount' 4, 'visitors' 4." in said
    assert "Seasons found, in steps: 7." in said
    assert problem.oddities == ()
    _, forecaster = trained(name, missing=["-9999", "-1"])
    assert forecaster.schema.reading.missing == ("-9999", "-1")
    again = table.assign(amount=table["amount"].mask(table["amount"] == -9999))
    assert forecaster.predict(name).equals(forecaster.predict(again))
    from_list = make_problem(*find_data(load(None, ["data.missing=[-9999, -1]", *SMALL],
        {"data": name, "horizon": HORIZON}, {}), print))  # fmt: skip
    assert from_list.digest == problem.digest
    (first, *_) = make_problem(*find_data(load(None, list(SMALL), asked | {"missing": None}, {}),
        print)).oddities  # fmt: skip
    assert "--missing -9999 reads it" in first.text


SKIES = np.array(["rain", "clear", "fog"])[np.random.default_rng(3).integers(0, 3, ROWS + HORIZON)]


def weather() -> pd.DataFrame:
    """Sales depend on a sky that is known ahead and on a mood with missing values."""
    table = wide()[["when", "amount"]]
    table["amount"] += 20 * (SKIES[:ROWS] == "rain")
    table["sky"], table["open"] = SKIES[:ROWS], np.where(np.arange(ROWS) % 7 == 6, "no", "yes")
    table["mood"] = pd.Series(["good", "bad", None] * ROWS)[:ROWS]
    return table


@pytest.mark.parametrize("name", ["weather.csv", "weather.parquet"])
def test_words_and_flags_are_covariates(name):
    table = weather()
    (table.to_csv if name.endswith("csv") else table.to_parquet)(name, index=False)
    roles = {"past_covariates": ["mood"], "future_covariates": ["sky", "open"]}
    problem, forecaster = trained(name, target="amount", **roles)
    schema = problem.schema
    assert schema.columns == ("amount", "mood=bad", "mood=good")
    assert schema.known.columns == ("sky=clear", "sky=fog", "sky=rain", "open")
    assert schema.reading.categories == {"mood": ("bad", "good"), "sky": ("clear", "fog", "rain")}
    assert schema.reading.past_covariates == ("mood",)
    assert schema.reading.future_covariates == ("sky", "open")
    assert bundle.load(Path("bundle")).schema == schema
    values, known = problem.series.values, problem.series.known
    assert known is not None
    assert (known[:, 2] == (SKIES[:ROWS] == "rain")).all()
    assert (known[:, 3] == (np.arange(ROWS) % 7 != 6)).all()
    assert np.isnan(values[2::3, 1:]).all()
    assert (values[0::3, 1:] == [0, 1]).all()

    future = pd.DataFrame({"when": NEXT, "sky": SKIES[ROWS:], "open": True})
    ahead = forecaster.predict(table, future=future)
    rows = pd.concat([table, future.assign(open="yes")])
    assert ahead.equals(forecaster.predict(rows)), "a frame's flags are those of the file"
    future.to_csv("future.csv", index=False)
    assert ahead.equals(forecaster.predict(name, future="future.csv"))
    other = future.assign(sky=["clear"] * HORIZON)
    assert not ahead.equals(forecaster.predict(table, future=other))
    assert len(forecaster.predict(forecaster.example)) == HORIZON
    assert list(forecaster.example.columns) == ["when", "amount", "mood", "sky", "open"]
    assert np.isfinite(forecaster.golden(range(8))).all()
    with pytest.raises(
        DataError, match=r"row 2 .*, column 'sky': 'hail' is none of the known .*fog"
    ):
        forecaster.predict(table, future=other.assign(sky=["fog", "hail", "fog", "fog", "fog"]))
    with pytest.raises(
        DataError, match=r"row 1 \(.*\), column 'mood': 'meh' is none of .*bad, good"
    ):
        forecaster.predict(table.assign(mood="meh"), future=future)


def test_words_that_are_no_categories_are_refused():
    table = weather()
    table.to_csv("weather.csv", index=False)
    with pytest.raises(DataError, match=r"'sky' \(such as 'fog'\) holds words, but only numbers"):
        trained("weather.csv", target="sky")
    table.assign(sky=[f"word {i}" for i in range(ROWS)]).to_csv("weather.csv", index=False)
    with pytest.raises(
        DataError, match=r"'sky' has more than 50 different words, such as 'word 0'"
    ):
        trained("weather.csv", target="amount", past_covariates=["sky"])


def test_an_id_of_several_columns_comes_back_in_them():
    table = long().drop(columns=["promo"]).dropna()
    table["town"] = table["shop"].map({"a": "x", "b": "x", "c": "y"})
    table.to_csv("shops.csv", index=False)
    problem, forecaster = trained("shops.csv", target="sold", id="town,kind", freq="D")
    assert problem.schema.items == ("x / mall", "x / street", "y / mall")
    assert bundle.load(Path("bundle")).schema == problem.schema
    ahead = forecaster.predict("shops.csv")
    assert list(ahead.columns) == ["town", "kind", "day", "sold"]
    assert list(ahead["town"] + ahead["kind"])[::HORIZON] == ["xmall", "xstreet", "ymall"]
    assert list(forecaster.example.columns) == ["town", "kind", "day", "sold"]
    assert len(forecaster.predict(forecaster.example)) == HORIZON


def test_an_unknown_item_is_scaled_by_its_history():
    long().drop(columns=["promo", "kind"]).to_csv("shops.csv", index=False)
    _, forecaster = trained("shops.csv", target="sold")
    table = pd.DataFrame({"shop": "new", "day": TIMES[:20], "sold": wave(5, 3e6, 20)})
    said = []
    assert forecaster.predict(table, say=said.append)["sold"].between(1e6, 6e6).all()
    assert said[0].startswith("series 'new': it is scaled by its own history")
    both = pd.concat([table, table.assign(shop="empty", sold=np.nan)])
    with pytest.raises(DataError, match="series 'empty' has no value at all in column 'sold'"):
        forecaster.predict(both)


def test_columns_as_series_are_those_of_the_long_form():
    values = {name: wave(i, 10.0**i) for i, name in enumerate(["u", "v", "w"])}
    table = pd.DataFrame({"ds": TIMES[:ROWS], **values})
    table.to_csv("wide.csv", index=False)
    table.melt("ds", var_name="unique_id", value_name="y").to_csv("long.csv", index=False)
    one, forecaster = trained("wide.csv", "data.panel=true")
    other, twin = trained("long.csv")
    index = torch.arange(len(one.training("cpu")))
    for here, there in zip(
        one.training("cpu").batch(index), other.training("cpu").batch(index), strict=True
    ):
        assert (here is None and there is None) or torch.equal(here, there)
    wide_ahead, long_ahead = forecaster.predict("wide.csv"), twin.predict("long.csv")
    assert list(wide_ahead.columns) == ["ds", "u", "v", "w"]
    assert list(wide_ahead["ds"]) == NEXT
    for name in values:
        own = long_ahead[long_ahead["unique_id"] == name]
        np.testing.assert_allclose(wide_ahead[name], own["y"], rtol=1e-9)


def years() -> pd.DataFrame:
    """Four series of different years."""
    parts = [
        pd.DataFrame(
            {
                "farm": f"f{year}",
                "day": pd.date_range(f"{year}-01-01", periods=ROWS, freq="D"),
                "milk": wave(year),
            }
        )
        for year in range(2020, 2024)
    ]
    return pd.concat(parts, ignore_index=True)


def test_series_of_different_years_are_cut_by_their_own_lengths():
    years().to_csv("farms.csv", index=False)
    said: list[str] = []
    own = {"data": "farms.csv", "id": "farm", "horizon": HORIZON}
    loaded = load(None, list(SMALL), own, {})
    problem = make_problem(*find_data(loaded, lambda _: None), said.append)
    (sentence,) = said
    assert sentence.startswith("Cut at one date, 1 of 4 series would begin after the training")
    assert problem.config.data.split == "series"
    counts = [len(part("cpu")) for part in (problem.training, problem.validation, problem.test)]
    assert counts == [4 * (140 - 14 - 5 + 1), 4 * (20 - 5 + 1), 4 * (40 - 5 + 1)]
    values = problem.series.values.reshape(4, ROWS)
    np.testing.assert_allclose(problem.schema.scaler.mean[:, 0], values[:, :140].mean(axis=1))
    test = problem.test("cpu")
    item, row, step = test.origin(36)
    assert (item, row) == (1, ROWS + 160)
    assert problem.series.times[step] == pd.Timestamp("2021-01-01") + pd.Timedelta(160, "D")
    stop, rest = problem.stopping("cpu"), problem.calibrating("cpu")
    assert (len(stop), len(rest)) == (4 * (10 - 5 + 1), 4 * (10 - 5 + 1))

    _, forecaster = trained("farms.csv", id="farm")
    assert bundle.load(Path("bundle")).config.data.split == "series"
    first = judge.judge(problem, forecaster.model, "cpu", forecaster.bundle.intervals)
    assert judge.rejudge(bundle.load(Path("bundle")), "cpu").record == first.record
    assert len(forecaster.predict("farms.csv")) == 4 * HORIZON


def test_series_of_many_lengths_take_turns_to_stop_and_to_calibrate():
    lengths = [30, 40, 35, 30, 12, 60, 100, 3]
    parts = [
        pd.DataFrame({"unique_id": i, "ds": TIMES[:n], "y": wave(i, rows=n)})
        for i, n in enumerate(lengths)
    ]
    pd.concat(parts).to_csv("m4.csv", index=False)
    problem, _ = trained("m4.csv", "window.past=auto", split="series")
    assert problem.config.window.past == 7, "a week, which most series have room for"
    assert problem.uncalibrated == ""
    windows = [problem.stopping("cpu"), problem.calibrating("cpu"), problem.validation("cpu")]
    stop, rest, both = ({part.origin(n)[0] for n in range(len(part))} for part in windows)
    assert stop == {0, 2, 5, 6}
    assert rest == {1, 3, 6}
    assert both == stop | rest
    with pytest.raises(DataError, match=r"m4, its longest series: 100 steps are too few"):
        trained("m4.csv", split="series", horizon=60)


def test_a_folder_of_files_is_a_panel():
    Path("shops").mkdir()
    for name in "ab":
        rows = long().query("shop == @name")[["day", "sold"]]
        rows.to_csv(f"shops/{name}.csv", index=False)
    problem, forecaster = trained("shops")
    assert problem.schema.items == ("a", "b")
    assert len(forecaster.predict("shops")) == 2 * HORIZON


def test_missing_values_and_gaps_are_masked():
    table = wide()[["when", "amount"]]
    table.loc[::9, "amount"] = np.nan
    table.drop(index=[50, 51, 120]).to_csv("holes.csv", index=False)
    with pytest.raises(DataError, match=r"missing steps of D: 3 .*--policy sort"):
        trained("holes.csv")
    problem, forecaster = trained("holes.csv", policy="sort")
    assert np.isnan(problem.series.values).sum() == len(range(0, ROWS, 9)) + 3
    report = judge.judge(problem, forecaster.model, "cpu", forecaster.bundle.intervals)
    assert np.isfinite(report.model.mse)
    said = []
    ahead = forecaster.predict(table.drop(index=[195]), say=said.append)
    assert ahead["amount"].between(30, 70).all()
    assert "Steps without a row, whose values are missing: 1." in said


def test_holidays_are_a_feature_of_the_calendar():
    wide().to_csv("sales.csv", index=False)
    problem, forecaster = trained("sales.csv", target="amount", holidays="AU-VIC")
    assert problem.schema.task(14, 7, 5).covariates == 1
    features = problem.training("cpu").calendar[:, -1]
    assert {i for i in range(60) if features[i] > 0} == {0, 25}  # New Year, Australia Day
    assert list(forecaster.predict("sales.csv")["when"]) == NEXT
    with pytest.raises(DataError, match="no public holidays of 'AU-XYZ'"):
        trained("sales.csv", target="amount", holidays="AU-XYZ")


def test_the_evaluation_can_be_repeated():
    long().to_csv("shops.csv", index=False)
    problem, forecaster = trained(
        "shops.csv", target="sold", id="shop", future_covariates=["promo"]
    )
    first = judge.judge(problem, forecaster.model, "cpu", forecaster.bundle.intervals)
    assert judge.rejudge(bundle.load(Path("bundle")), "cpu").record == first.record


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.iloc[:4], "expected 5 rows, one per step of the model's horizon, got 4"),
        (lambda rows: rows.assign(day=rows["day"] + pd.Timedelta("1D")), "its first row at 2024"),
        (lambda rows: rows.assign(promo=[1, np.nan, 1, 1, 1]), "row 2, column 'promo': no value"),
        (lambda rows: rows.drop(columns="promo"), "'promo' not found"),
        (lambda rows: rows.assign(shop="z"), "the future of series 'a'.*got 0"),
    ],
)
def test_what_is_known_ahead_fills_exactly_the_horizon(change, words):
    one = long().query("shop == 'a'")
    one.to_csv("shops.csv", index=False)
    _, forecaster = trained("shops.csv", target="sold", id="shop", future_covariates=["promo"])
    coming = pd.DataFrame({"shop": "a", "day": NEXT, "promo": [0, 1, 0, 1, 1]})
    forecaster.predict(one, future=coming)
    with pytest.raises(DataError, match=words):
        forecaster.predict(one, future=change(coming))
    with pytest.raises(UsageError, match="needs promo for the 5 steps ahead"):
        forecaster.predict(one)


def test_a_name_that_is_neither_a_card_nor_a_file_says_what_files_are_called():
    with pytest.raises(UsageError, match=r"'sales.cvs'.*ending in .csv, "):
        trained("sales.cvs")


def test_too_short_a_file_gets_the_arithmetic():
    wide().head(40).to_csv("short.csv", index=False)
    with pytest.raises(DataError, match=r"40 steps are too few .* --horizon 5"):
        trained("short.csv", horizon=12)


def test_a_part_without_values_is_told_before_training():
    table = wide()
    table.loc[155:, "amount"] = np.nan
    table.to_csv("ended.csv", index=False)
    words = "ended.csv: 'amount' without any value in the test steps, 2024-06-09 .* to 2024-07-18"
    with pytest.raises(DataError, match=words):
        trained("ended.csv", target="amount")


@pytest.mark.parametrize("panel", [False, True])
def test_a_value_that_cannot_be_scaled_is_named(panel):
    table = long().drop(columns=["promo", "kind"]).dropna() if panel else wide()
    column = "sold" if panel else "amount"
    table.loc[table.index[ROWS - 1], column] = 1e300
    table.to_csv("far.csv", index=False)
    owner = ", series 'a'" if panel else ""
    stamp = f"{TIMES[ROWS - 1]}"
    with pytest.raises(DataError, match=rf"far.csv{owner}, {stamp}, column '{column}': 1e\+300 is"):
        trained("far.csv", id="shop" if panel else None, target=column)


@pytest.mark.slow
def test_train_and_predict_from_the_command_line(capfd, monkeypatch):
    import sys

    from forecaster import cli

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["forecaster", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 0
        return capfd.readouterr()

    long().to_csv("shops.csv", index=False)
    sets = [part for each in SMALL for part in ("--set", each)]
    said = call(
        "train", "--data", "shops.csv", "--target", "sold", "--future-covariates", "promo",
        "--static", "kind", "--horizon", "5", *sets,
    )  # fmt: skip
    assert "3 series" in said.err
    folder = str(next(Path("runs").iterdir()))
    future = pd.DataFrame(
        [
            {"shop": name, "day": TIMES[end + i], "promo": i % 2}
            for name, end in (("a", ROWS), ("b", ROWS), ("c", 150))
            for i in range(HORIZON)
        ]
    )
    future.to_csv("future.csv", index=False)
    rows = call("predict", "--model", folder, "--future", "future.csv").out.splitlines()
    assert rows[0] == "shop,day,sold"
    assert len(rows) == 1 + 3 * HORIZON
    assert "test split" in call("evaluate", "--model", folder).out
    told = call(
        "data", "check", "shops.csv", "--target", "sold", "--id", "shop", "--horizon", "5"
    ).out
    assert "series      3, of 140 to 200 rows" in told
    assert Path("shops-check.png").stat().st_size > 5000


def test_the_next_file_of_a_model_is_written_as_its_first():
    """A German text, a few rows of which do not show whether 1.500 has decimals."""
    table = wide().assign(visitors=wide()["visitors"].round() + 600)

    def german(table: pd.DataFrame, file: str) -> str:
        rows = table.assign(
            when=table["when"].dt.strftime("%d.%m.%Y"),
            visitors=table["visitors"].map("{:,.0f}".format).str.replace(",", "."),
        )
        text = rows.to_csv(index=False, sep=";", decimal=",")
        Path(file).write_bytes(f"# Läden\n{text}".encode("cp1252"))
        return file

    problem, forecaster = trained(german(table, "sales.csv"))
    text = forecaster.bundle.schema.reading.text
    assert text is not None
    assert (text.encoding, text.separator, text.decimal) == ("cp1252", ";", ",")
    np.testing.assert_array_equal(problem.series.values, table[["amount", "visitors"]])
    few = table[-20:].assign(amount=table["amount"][-20:].round())
    expected = forecaster.predict(few)
    assert forecaster.predict(german(few, "next.csv")).equals(expected)
    few.to_csv("next.csv", index=False)
    assert forecaster.predict("next.csv").equals(expected)
    Path("few.csv").write_text("t;a\n2024-01-01;1.500\n2024-01-02;1.500\n")
    with pytest.raises(
        DataError, match=r"may be 1500 or 1\.500; name the decimal sign with --deci"
    ):
        trained("few.csv")
    problem, _ = find_data(load(None, [], {"data": "few.csv", "decimal": ","}, {}), print)
    assert problem.data.decimal == ","


BEFORE = (  # what 0.1.0 did with a user's file
    "train.updates=null", "train.few_steps=null", "model.centre=cycle", "model.changes=false",
    "model.shrink=true",
)  # fmt: skip


def network(horizon: int, *sets: str) -> tuple[Problem, ForecastModel, Fit]:
    """The network that the recipe for files trains on own.csv, and its result."""
    loaded = load(None, sets, {"data": "own.csv", "horizon": horizon}, {})
    problem = make_problem(*find_data(loaded, lambda text: None))
    model = problem.build_model()
    fitted = fit(
        model, problem.training("cpu"), problem.stopping("cpu"), problem.config.train,
        device="cpu", seed=0,
    )  # fmt: skip
    return problem, model, fitted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "share"), [("monthly", 0.3), ("weekly", 1.0), ("daily", 1.1), ("three_years", 1.0)]
)
def test_a_small_file_is_trained_and_its_growth_goes_on(shape, share):
    """On all of validation, compared with 0.1.0 on the same rows; `share` of its error."""
    make, horizon = shapes.SHAPES[shape]
    table = make(0)
    table.to_csv("own.csv", index=False)
    problem, model, fitted = network(horizon)
    _, old, before = network(horizon, *BEFORE)
    windows = problem.validation("cpu")
    error = score(judge.forecast_with(model), windows).mse
    assert error <= share * score(judge.forecast_with(old), windows).mse

    patience, apart = problem.config.train.patience, 20
    assert fitted.steps >= min(1000, patience * apart)
    if shape in ("monthly", "three_years"):
        assert before.steps <= 30  # one step an epoch, and eight of patience
    if shape not in ("monthly", "weekly"):
        return
    season = problem.dataset.seasons[0]
    last = score(lambda b: b.past[:, -1:].expand(-1, horizon, -1), windows).mse
    year_ago = score(lambda b: b.past[:, -season:][:, :horizon], windows).mse
    assert error < min(last, year_ago)
    # no first step is farther from the last value than the largest step of the training rows
    usual = table["value"][: problem.borders.train].pct_change().abs().max()
    batch, scaler = windows.batch(torch.arange(len(windows))), problem.schema.target_scaler
    with torch.inference_mode():
        first = scaler.inverse(model(*batch.inputs)[:, 0].numpy())
    assert np.abs(first / scaler.inverse(batch.past[:, -1].numpy()) - 1).max() < usual


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "most"), [("monthly", 1.1), ("weekly", 1.1), ("daily", 1.1), ("three_years", 1.55)]
)
def test_what_is_served_of_a_small_file_is_about_the_best_part(shape, most):
    """The test error over that of the part that turns out best, as the mean ratio of three series.

    The goal is 1.1. For 700 days, where eight windows stop training, it is 1.09. For 36 months
    it is 1.53: two windows stop training and five are the test, so the best part cannot be known
    beforehand. No simple rule is near 1.1 there, on these three series and on three others
    (seeds 10 to 12): as it is 1.53 and 1.35; without the network 1.85 and 1.28; with half its share
    1.65 and 1.32; the best part on the stopping half 2.36 and 2.38; all kept parts evenly 2.13 and
    1.28; the network alone 1.29 and 1.66.
    """
    make, horizon = shapes.SHAPES[shape]
    ratios = []
    for seed in range(3):
        make(seed).to_csv("own.csv", index=False)
        loaded = load(None, ["track.register_model=false", "train.updates=200"],
                      {"data": "own.csv", "horizon": horizon}, {})  # fmt: skip
        result = experiment.run(loaded, lambda said: None, lambda metrics: None)
        test = result.record.to_dict()["test"]
        parts = [test["network"], *test["floors"].values()]
        ratios.append(test["mse"] / min(part["mse"] for part in parts))
    assert np.exp(np.log(ratios).mean()) <= most
