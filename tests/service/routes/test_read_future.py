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


def texts_of(frame, ids):
    """A history with the rows of the future, and without them."""
    past = frame.drop((frame.groupby(list(ids)) if ids else frame).tail(HORIZON).index)
    return frame.to_csv(index=False), past.to_csv(index=False)


def sent(client, path, text, **query):
    answer = client.post(path, content=text.encode(), headers=CSV, params=query)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("kind", KNOWN)
def test_the_rows_are_those_of_the_command_and_are_read_back(kind, serve):
    """A history with rows ahead gives them filled, one without them gives them empty."""
    client, forecaster, _ = serve(kind, "tokens")
    schema, form = forecaster.schema, forecaster.form
    whole, past = texts_of(history(forecaster.bundle), schema.id)
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
    assert (
        "no value at all: fill it in"
        in refused(client, empty.encode(), 422, "/read/future", **CSV)["detail"]
    )


def test_what_does_not_fit_is_refused(tmp_path, client):
    plain = b"time,load,wind\n2026-01-01,1,2\n"
    for path in ("/future", "/read/future"):
        assert "no covariates known ahead" in refused(client, plain, 422, path, **CSV)["detail"]
    bundle = make_bundle(tmp_path, model="tokens", **KINDS["all"])
    whole = history(bundle).to_csv(index=False)
    with start(model=str(tmp_path), max_series=2) as few:
        assert (
            "at most 2 series, got 3"
            in refused(few, whole.encode(), 422, "/future", **CSV)["detail"]
        )
        one = posted(few, whole, future="apart", item=bundle.schema.items[2])["series"]
        assert one == posted(few, whole, item=bundle.schema.items[2])["series"]
        rows = future_rows(Predictor(bundle).form, whole.encode())
        short = rows.groupby("town").head(2).to_csv(index=False)
        assert (
            f"expected {HORIZON} rows"
            in refused(few, short.encode(), 422, "/read/future", **CSV)["detail"]
        )
