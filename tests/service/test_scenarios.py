"""What the page makes of inputs known ahead, and the times on its axis, in a real browser."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from forecaster.datasets.known import KnownInputs
from forecaster.datasets.scaling import Scaler
from forecaster.forecast.future import future_rows
from forecaster.forecast.predictor import Predictor, keep
from tests.browser import FAILED, complaints, quiet, wants_chromium
from tests.service.processes import until
from tests.service.test_page import opened, pick, values
from tests.service.toy import HORIZON, KINDS, PAST, make_bundle
from tests.test_client import history, serving

pytestmark = [pytest.mark.slow, wants_chromium]


def test_rows_ahead_are_downloaded_filled_in_and_compared(tab, tmp_path):
    bundle = make_bundle(tmp_path / "model", model="tokens", **KINDS["ahead"])
    torch.manual_seed(1)
    weights = {  # before training, they are zero where it reads covariates
        name: torch.randn(value.shape) if value.is_floating_point() and not value.any() else value
        for name, value in bundle.weights.items()
    }
    keep(replace(bundle, weights=weights), tmp_path / "model")
    predictor, frame = Predictor.load(tmp_path / "model", "cpu"), history(bundle)
    past = frame[:-HORIZON]
    past.to_csv(tmp_path / "mine.csv", index=False)
    with serving(tmp_path / "model") as url:
        with quiet(tab):
            tab.open(url, 375)
            tab.choose(tmp_path / "mine.csv")
            assert "The values of holiday, target are not given" in tab.text("#warnings")
            names = list(bundle.schema.reading.future_covariates)
            repeated = past[names].tail(24).head(HORIZON).reset_index(drop=True)
            rows = future_rows(predictor.form, past).assign(**repeated)
            expected = predictor.predict(past, future=rows)["load"]
            np.testing.assert_allclose(values(tab)["load"], expected, rtol=1e-5)

            tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
            tab.run("document.querySelector('#rows').click()")
            file = tmp_path / "future.csv"
            until(lambda: file.exists() and file.stat().st_size)
            filled = pd.read_csv(file)
            assert list(filled) == ["time", *names]
            assert filled[names].isna().all(axis=None)
            rows = filled.assign(**frame.tail(HORIZON).reset_index(drop=True)[names])
            rows.to_csv(file, index=False)
            tab.choose(file, "#future")
            first = predictor.predict(past, future=rows)["load"]
            np.testing.assert_allclose(values(tab)["load"], first, rtol=1e-5)

            pick(tab, "#other", "value = 'change target'")
            pick(tab, "#change", "value = -2.5")
            rows["target"] -= 2.5
            second = predictor.predict(past, future=rows)["load"]
            found = values(tab)["load with target − 2.5"]
            np.testing.assert_allclose(found, second, rtol=1e-5)
            mean = (second - first).mean()
            told = f"load is {abs(mean):.3g} {'lower' if mean < 0 else 'higher'} on average"
            assert tab.text("#difference").startswith(f"With target − 2.5, {told}")
            assert complaints(tab) == []
            assert tab.run("document.documentElement.scrollWidth <= innerWidth")

            rows.to_csv(tmp_path / "cold.csv", index=False)
            pick(tab, "#other", "value = 'rows'")
            tab.choose(tmp_path / "cold.csv", "#second")
            np.testing.assert_allclose(values(tab)["load with cold.csv"], second, rtol=1e-5)
        late = rows.assign(time=pd.to_datetime(rows["time"]) + pd.Timedelta(hours=1))
        late.to_csv(tmp_path / "late.csv", index=False)
        tab.choose(tmp_path / "late.csv", "#future", then=FAILED)
        assert tab.text("#error").startswith("The rows of late.csv begin at 2026-")


def test_a_flag_is_on_or_off(tab, tmp_path):
    known = KnownInputs(("sale",), Scaler((0.2,), (0.4,)), low=(0.0,), high=(1.0,))
    bundle = make_bundle(tmp_path, model="tokens", columns=("load",), known=known)
    predictor = Predictor(bundle)
    frame = predictor.example
    assert sorted(set(frame["sale"])) == [0, 1]
    with opened(tab, tmp_path):
        assert "sale (known ahead, on or off)" in tab.text("#facts")
        choices = "[...document.querySelector('#other').options].map((each) => each.text)"
        assert tab.run(choices) == ["nothing", "sale on", "sale off", "other rows"]
        tab.run("document.querySelector('#chart').focus()")
        shown = set()
        for _ in range(HORIZON):
            shown.add(tab.text("#readout").rpartition(", ")[2])
            tab.press("ArrowRight")
        assert shown >= {"sale on", "sale off"}
        for state in ("on", "off"):
            pick(tab, "#other", f"value = '{state} sale'")
            assert tab.run("document.querySelector('#change-field').hidden")
            rows = frame.tail(HORIZON).assign(sale=int(state == "on"))
            expected = predictor.predict(frame[:-HORIZON], future=rows)["load"]
            second = values(tab)[f"load with sale {state}"]
            np.testing.assert_allclose(second, expected, rtol=1e-5)


def test_of_a_panel_the_rows_of_each_series_are_taken(tab, tmp_path):
    bundle = make_bundle(tmp_path / "model", model="tokens", **KINDS["all"])
    frame = history(bundle)
    expected = Predictor.load(tmp_path / "model", "cpu").predict(frame)
    there = ~frame.index.isin(frame.groupby("town").tail(HORIZON).index)
    assert len(frame[there]) == 3 * (PAST + 5)
    rows = frame.loc[~there, ["town", "time", *bundle.schema.reading.future_covariates]]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with opened(tab, tmp_path / "model"):
        tab.paste(frame[there].to_csv(index=False))
        tab.choose(tmp_path / "rows.csv", "#future")
        for place in (1, 0):
            pick(tab, "#item", f"selectedIndex = {place}")
            item = tab.run("document.querySelector('#item').value")
            wanted = expected.loc[expected["town"] == item, "load"]
            np.testing.assert_allclose(values(tab)["load"], wanted, rtol=1e-5)
