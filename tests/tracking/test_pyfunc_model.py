import json
import sys
import warnings
from contextlib import contextmanager

import pandas as pd
import pytest

from forecaster.forecast.predictor import Predictor
from forecaster.tracking import run as tracked
from tests.service.toy import HORIZON, KINDS, make_bundle
from tests.tracking.toy import tracked_at


def log(folder, home):
    """The folder of the logged model of a bundle."""
    with tracked.start(tracked_at(f"sqlite:///{home}/mlflow.db"), "toy", {}) as run:
        run.log_model(folder)
    (description,) = home.rglob("MLmodel")
    return description.parent


@contextmanager
def loaded(folder):
    """A logged model as MLflow loads it, in this process."""
    path = list(sys.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        import mlflow.pyfunc

        yield mlflow.pyfunc.load_model(str(folder))
    sys.path[:] = path


MODELS = {
    **{zone: {"timezone": zone} for zone in ("naive", "UTC")},
    **{name: KINDS[name] for name in ("past", "wide, past", "all")},
}


@pytest.fixture(scope="module", params=MODELS)
def kind(request, tmp_path_factory):
    """A forecaster of some kind, and its logged model."""
    folder = tmp_path_factory.mktemp("kind") / "bundle"
    ready = Predictor(make_bundle(folder, **MODELS[request.param]), "cpu")
    with loaded(log(folder, tmp_path_factory.mktemp("store"))) as model:
        yield ready, model


def only(*names):
    return pytest.mark.parametrize("kind", names, indirect=True)


def sent(frame, model):
    """A frame as it arrives at the server of MLflow, missing values as null."""
    from mlflow.pyfunc.scoring_server import infer_and_parse_data

    return infer_and_parse_data(next(tables(frame)), model.metadata.get_input_schema())


def tables(frame):
    """A frame in each of the forms that a server of MLflow accepts."""
    split = json.loads(frame.to_json(orient="split", index=False, date_format="iso"))
    records = [dict(zip(split["columns"], row, strict=True)) for row in split["data"]]
    columns = {name: [record[name] for record in records] for name in split["columns"]}
    yield {"dataframe_split": split}
    yield {"dataframe_records": records}
    yield {"inputs": columns}
    yield {"inputs": records}
    yield {"instances": records}


def test_it_forecasts_like_the_bundle(kind):
    ready, model = kind
    expected = ready.predict(ready.example)
    pd.testing.assert_frame_equal(model.predict(ready.example), expected)
    pd.testing.assert_frame_equal(model.predict(sent(ready.example, model)), expected)
    params = {"horizon": 2, "quantile_levels": [0.1, 0.9]}
    wanted = ready.predict(ready.example, 2, levels=(0.1, 0.9))
    pd.testing.assert_frame_equal(model.predict(ready.example, params=params), wanted)


@only("naive", "UTC")
def test_stamps_may_be_text_with_a_zone_where_the_model_has_one(kind):
    from mlflow.exceptions import MlflowException

    ready, model = kind
    text = ready.example["time"].dt.strftime("%Y-%m-%dT%H:%M:%S").astype(object)
    expected = ready.predict(ready.example)
    pd.testing.assert_frame_equal(model.predict(ready.example.assign(time=text)), expected)
    zoned = ready.example.assign(time=text + "Z")
    if ready.schema.timezone == "UTC":
        pd.testing.assert_frame_equal(model.predict(zoned), expected)
    else:
        with pytest.raises(MlflowException, match="a stamp with a time zone"):
            model.predict(zoned)


def test_a_file_is_taken_as_pandas_reads_it(kind):
    ready, model = kind
    numbers = ready.example.select_dtypes("number")
    whole = [name for name in numbers if numbers[name].notna().all()]
    assert whole
    for kind_of in ("int64", "int8", "float32"):
        own = ready.example.assign(**numbers[whole].round().astype(kind_of))
        pd.testing.assert_frame_equal(model.predict(own), ready.predict(own))


@only("naive")
def test_mistakes_are_explained(kind):
    from mlflow.exceptions import MlflowException

    ready, model = kind
    for frame, params, words in (
        (ready.example.tail(3), {}, "the history has 3 rows, the model needs 24"),
        (ready.example.drop(columns="time"), {}, "column 'time' not found"),
        (ready.example, {"horizon": 7}, f"1 to {HORIZON} steps, got horizon=7"),
    ):
        with pytest.raises(MlflowException, match=words) as caught:
            model.predict(frame, params=params)
        assert caught.value.get_http_status_code() == 400


@only("past", "wide, past", "all")
@pytest.mark.parametrize("params", [{}, {"horizon": 2, "quantile_levels": [0.9, 0.1]}])
def test_a_server_of_mlflow_takes_each_form_of_a_table(kind, params):
    from mlflow.pyfunc.scoring_server import invocations

    ready, model = kind
    gappy = ready.example.copy()
    gappy.loc[[3, 4], gappy.columns[-1]] = None
    for frame in (ready.example, gappy) if not ready.schema.known.columns else (ready.example,):
        expected = ready.predict(frame, params.get("horizon"),
                                 levels=params.get("quantile_levels", ()))  # fmt: skip
        for table in tables(frame):
            body = json.dumps({**table, "params": params})
            schema = model.metadata.get_input_schema()
            answer = invocations(body, "application/json", model, schema).response
            found = pd.DataFrame(json.loads(answer)["predictions"])
            assert list(found) == list(expected)
            found["time"] = pd.to_datetime(found["time"])
            pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-5)


@only("all")
def test_the_series_of_a_long_panel_stand_below_one_another(kind):
    ready, model = kind
    one = ready.example
    other = one.assign(town="new", kind="out", size=90, wind=one["wind"] * 3)
    both = pd.concat([one, other], ignore_index=True)
    answer = model.predict(sent(both, model))
    pd.testing.assert_frame_equal(answer, ready.predict(both))
    assert list(answer["town"]) == ["Bern"] * HORIZON + ["new"] * HORIZON


@only("wide, past", "all")
def test_no_series_is_left_out_without_a_word(kind):
    from mlflow.exceptions import MlflowException

    ready, model = kind
    panel = ready.example
    if ready.schema.wide:
        name = ready.schema.items[-1]
        panel = panel.assign(**{name: panel[name].where(panel.index >= len(panel) - 3)})
    else:
        name = "new"
        panel = pd.concat([panel, panel.assign(town=name, kind="out", size=90)[-HORIZON - 3 :]])
    said = []
    ready.predict(panel, say=said.append)
    assert [each for each in said if getattr(each, "code", "") == "left_out"]
    words = f"that any forecast needs: '{name}'; ask without them, or with more rows"
    with pytest.raises(MlflowException, match=words):
        model.predict(panel)
