"""What a model would have forecast at past origins is what it forecasts of a shorter history."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster import Forecaster
from forecaster.base.errors import DataError, UsageError
from tests.test_estimator import HORIZON, made

ROOT = Path(__file__).resolve().parents[2]


def table(rows: int = 260, shops: tuple[str, ...] = ()) -> pd.DataFrame:
    steps, random = np.arange(rows), np.random.default_rng(0)
    frame = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=rows, freq="h", tz="UTC")})
    frame["heat"] = random.normal(size=rows)
    frame["load"] = 10 + np.sin(steps * np.pi / 12) + 0.1 * random.normal(size=rows)
    if not shops:
        return frame
    each = [frame.iloc[i * 7 :].assign(shop=shop) for i, shop in enumerate(shops)]
    return pd.concat(each, ignore_index=True)


@pytest.fixture(scope="module")
def one() -> Forecaster:
    return made(target="load", future_covariates="heat", lookback=24).fit(table())


@pytest.fixture(scope="module")
def many() -> Forecaster:
    return made(target="load", id="shop", lookback=24).fit(table(shops=("a", "b")))


def score(model: Forecaster, ahead: pd.DataFrame) -> object:
    """The score of historical forecasts."""
    off = (ahead["load"] - ahead["load actual"]).abs().mean()
    return pytest.approx(-off / model.bundle.schema.target_scaler.std.mean())


def test_origins_forecast_what_shorter_histories_do(one: Forecaster) -> None:
    frame = table()
    found = one.historical_forecasts(frame, levels=[0.1, 0.9])
    assert list(found)[:3] == ["origin", "time", "load"]
    assert found["time"].iloc[-1] == frame["time"].iloc[-1]
    for origin, own in [*found.groupby("origin")][::5]:
        past = frame[frame["time"] <= origin]
        ahead = frame[frame["time"] > origin][["time", "heat"]].head(HORIZON)
        alone = one.predict(past, [0.1, 0.9], future=ahead)
        wanted = alone.to_numpy()[:, 1:].astype(float)
        assert own[[*alone]].to_numpy()[:, 1:] == pytest.approx(wanted, abs=1e-5)
        came = frame.set_index("time")["load"].reindex(own["time"])
        assert own["load actual"].to_numpy() == pytest.approx(came.to_numpy())


def test_series_of_a_panel_have_their_own_origins(many: Forecaster) -> None:
    frame = table(shops=("a", "b"))
    found = many.historical_forecasts(frame, stride=50, horizon=2)
    assert set(found.groupby(["shop", "origin"]).size()) == {2}
    off = many.residuals(frame, step=2)
    late = found.groupby(["shop", "origin"]).tail(1)
    wanted = (late["load actual"] - late["load"]).to_numpy()
    key = late[["shop", "time"]].merge(off, on=["shop", "time"])
    assert key["load"].to_numpy() == pytest.approx(wanted, abs=1e-6)


def test_a_fold_that_follows_continues_the_fitted_rows(many: Forecaster, one: Forecaster) -> None:
    frame = pd.concat([table(), table(300)[260:]], ignore_index=True)
    assert one.score(frame[260:]) == score(one, one.historical_forecasts(frame, start=260))
    assert many.score(table(shops=("a", "b"))) < 0


def test_rows_that_trained_do_not_count_where_series_differ_in_length() -> None:
    shops = ("a", "b", "c", "d", "e", "f")
    model = made(target="load", id="shop", lookback=24).fit(table(shops=shops))
    whole = table(284, shops)
    new = whole[whole["time"] > table()["time"].max()]
    found = model.historical_forecasts(pd.concat([table(shops=shops), new], ignore_index=True))
    own = found[found["time"] > table()["time"].max()]
    assert len(own) == len(new)
    assert model.score(new) == score(model, own)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_stamps_in_the_index_are_continued_too(zone: str | None) -> None:
    frame = table(300)[["time", "load"]]
    frame["time"] = frame["time"].dt.tz_convert(zone)
    indexed = frame.set_index("time")
    model, own = (made(target="load", lookback=24).fit(each[:260]) for each in (frame, indexed))
    assert own.score(indexed[260:]) == pytest.approx(model.score(frame[260:]))


def test_what_does_not_fit_is_said(one: Forecaster) -> None:
    with pytest.raises(DataError, match="has 20 rows, but an origin needs"):
        one.historical_forecasts(table().head(20))
    with pytest.raises(UsageError, match="stride"):
        one.historical_forecasts(stride=0)
    with pytest.raises(UsageError, match="Did you mean 'mse'"):
        one.evaluate("msee")
    assert list(one.evaluate("mase")) == ["mase"]
    assert "<table" in one._repr_html_()


def test_scikit_learn_searches_and_chains() -> None:
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    frame = table()[["time", "load"]]
    chain = Pipeline([("same", FunctionTransformer()), ("model", made(target="load"))]).fit(frame)
    assert len(chain.predict(frame)) == HORIZON
    with pytest.raises(UsageError, match="y: expected None"):
        made(target="load").fit(frame, np.zeros(len(frame)))
    text = (ROOT / "docs" / "python.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (program,) = [each for each in programs if "GridSearchCV" in each]
    names = {"Forecaster": made, "frame": table(700)[["time", "load"]]}
    exec(program, names)
    assert np.isfinite(names["search"].best_score_)
