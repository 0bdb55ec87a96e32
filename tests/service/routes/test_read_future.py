"""What is known ahead: the rows to fill in, and what was filled in."""

from io import StringIO

import pandas as pd
import pytest

from forecaster.forecast.future import future_rows
from forecaster.forecast.predictor import Predictor
from tests.service.routes.test_read import CSV, posted
from tests.service.toy import HORIZON, KINDS, PAST, make_bundle, refused, start
from tests.test_client import history

KNOWN = ("ahead", "words", "all")


def wrong(client, path, text):
    return refused(client, text, 422, path, **CSV)["detail"]


def sent(client, path, text, **query):
    answer = client.post(path, content=text.encode(), headers=CSV, params=query)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("kind", KNOWN)
def test_the_rows_are_those_of_the_command_and_are_read_back(kind, serve):
    """A history with rows ahead gives them filled, one without them gives them empty."""
    client, forecaster, _ = serve(kind, "tokens")
    schema, form = forecaster.schema, forecaster.form
    frame = history(forecaster.bundle)
    ahead = (frame.groupby(list(schema.id)) if schema.id else frame).tail(HORIZON).index
    whole, past = frame.to_csv(index=False), frame.drop(ahead).to_csv(index=False)
    expected = future_rows(form, whole.encode())
    found = sent(client, "/future", whole).text
    assert found == expected.to_csv(index=False)
    item = {"item": schema.items[1]} if schema.items else {}
    known = posted(client, whole, **item)["series"]
    apart = posted(client, past, future="apart", **item)["series"]
    cells = sent(client, "/read/future", found, **item).json()
    assert cells["future_covariates"] == known["future_covariates"]
    assert posted(client, whole, future="apart", **item)["series"] == known
    assert {**apart, "future_covariates": known["future_covariates"]} == known
    assert apart["future_covariates"].keys() == known["future_covariates"].keys()
    assert all(values == [None] * HORIZON for values in apart["future_covariates"].values())
    begin = pd.Timestamp(known["start"]) + PAST * pd.Timedelta(hours=1)
    assert pd.Timestamp(cells["start"]) == begin
    empty = sent(client, "/future", past).text
    names = list(schema.reading.future_covariates)
    assert pd.read_csv(StringIO(empty))[names].isna().all(axis=None)
    assert "no value at all: fill it in" in wrong(client, "/read/future", empty)


def test_what_does_not_fit_is_refused(tmp_path, client):
    plain = "time,load,wind\n2026-01-01,1,2\n"
    for path in ("/future", "/read/future"):
        assert "no covariates known ahead" in wrong(client, path, plain)
    bundle = make_bundle(tmp_path, model="tokens", **KINDS["all"])
    whole = history(bundle).to_csv(index=False)
    with start(model=str(tmp_path), max_series=2) as few:
        assert "at most 2 series, got 3" in wrong(few, "/future", whole)
        one = posted(few, whole, future="apart", item=bundle.schema.items[2])["series"]
        assert one == posted(few, whole, item=bundle.schema.items[2])["series"]
        rows = future_rows(Predictor(bundle).form, whole.encode())
        short = rows.groupby("town").head(2).to_csv(index=False)
        assert f"expected {HORIZON} rows" in wrong(few, "/read/future", short)
