"""The command that a check of a file prints trains; a file that cannot be used is refused."""

import shlex

import numpy as np
import pandas as pd
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("untracked")]

QUICK = ("train.epochs=1", "train.checks=1", "model.width=4", "model.feed_forward=4",
         "track.register_model=false")  # fmt: skip


def wave(rows, cycle=7, seed=0):
    noise = np.random.default_rng(seed).normal(0, 2, rows)
    return 50 + 9 * np.sin(np.arange(rows) * 2 * np.pi / cycle) + noise


def series(rows, freq="D", start="2022-01-01", **columns):
    times = pd.date_range(start, periods=rows, freq=freq)
    return pd.DataFrame({"day": times, "sold": wave(rows), **columns})


def shops(rows, **columns):
    """A panel of shops with so many rows, which end together."""
    last = max(rows)
    parts = []
    for shop, own in enumerate(rows):
        table = series(last, promo=np.random.default_rng(shop).integers(0, 2, last), **columns)
        parts.append(table.assign(shop=f"s{shop:02}")[last - own :])
    return pd.concat(parts)


def indexed():
    return series(300).set_index("day").rename_axis(None).reset_index(names="")


def without(table, *rows):
    return table.drop(index=[*rows])


def words():
    sky = np.random.default_rng(0).choice(["clear", "rain", "snow"], 300)
    return series(300, sky=sky)


def many():
    noise = np.random.default_rng(0).normal(50, 5, (200, 60))
    columns = {f"c{place:02}": noise[:, place] for place in range(60)}
    return pd.DataFrame({"day": pd.date_range("2022-01-01", periods=200), **columns})


AHEAD = ("--target", "sold", "--future-covariates", "promo")
PANEL = ("--id", "shop", *AHEAD)
FORMS = {
    "days": (lambda: series(300), 7, ()),
    "hours": (lambda: series(600, "h"), 24, ()),
    "weeks": (lambda: series(150, "W-MON"), 8, ("--season", "52")),
    "months": (lambda: series(60, "MS", "2010-01-01"), 6, ()),
    "quarters": (lambda: series(40, "QS", "2010-01-01"), 4, ()),
    "years": (lambda: series(40, "YS", "1980-01-01"), 2, ()),
    "an index without a name": (indexed, 7, ()),
    "a young series": (lambda: shops([400] * 12 + [50]), 7, PANEL),
    "a series of few rows": (lambda: shops([400, 400, 3]), 7, PANEL),
    "each by its length": (lambda: shops([60, 90, 200]), 7, (*PANEL, "--split", "series")),
    "a panel of weeks": (lambda: shops([150] * 3), 8, (*PANEL, "--season", "52")),
    "a constant input": (lambda: series(300, promo=1), 7, AHEAD),
    "gaps": (lambda: without(series(300), 40, 41, 200), 7, ("--policy", "sort")),
    "a gap of the newest rows": (lambda: without(series(300), *range(240, 290)), 7,
                                 ("--policy", "sort")),
    "working days": (lambda: series(300, "B"), 5, ()),
    "words": (words, 7, ("--target", "sold", "--past-covariates", "sky")),
    "words known ahead": (words, 7, ("--target", "sold", "--future-covariates", "sky")),
    "a constant": (lambda: series(300).assign(sold=3.0), 7, ()),
    "zeros": (lambda: series(300).assign(sold=0), 7, ()),
    "a column that is empty": (lambda: series(300, other=np.nan), 7, ()),
    "few rows": (lambda: series(20), 2, ()),
    "a wide panel": (many, 7, ("--set", "data.panel=true")),
    "many columns": (many, 7, ()),
    "one step back": (lambda: shops([14] * 12), 4, ("--id", "shop", "--target", "sold",
                                                    "--lookback", "1", "--split", "series")),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_refused_or_the_command_of_its_check_trains(run, form):
    make, horizon, options = FORMS[form]
    make().to_csv("sales.csv", index=False)
    status, out, err = run("data", "check", "sales.csv", "--horizon", horizon, *options)
    assert status in (0, 65), err
    if status == 0:
        command = shlex.split(out.splitlines()[-1].removeprefix("to train"))
        quick = (word for each in QUICK for word in ("--set", each))
        status, _, err = run(*command[1:], *quick)
        assert status == 0, err
        assert "no pictures" not in err
