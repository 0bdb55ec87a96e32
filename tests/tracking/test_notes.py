"""What a run notes becomes what MLflow takes."""

import json
import math

from forecaster.config.run_config import RunConfig
from forecaster.tracking.notes import memory
from forecaster.tracking.run import start


def test_names_and_values_are_made_to_fit(client):
    values = {f"option.{number}": "x" for number in range(230)}
    odd = "data \udcff.csv"  # the name of a file in another encoding
    own = memory(odd, data=odd, data_digest="12", source=odd)
    with start(RunConfig(), odd, {"data": odd, "long": "b" * 9000}, held=own) as run:
        run.params({**values, "long": "a" * 7000, "lr_of.T (degC)": "1", "data.name": odd})
        run.metrics({"test_mse": 0.36719671677728562, "skill": -1e-7 / 3, "parameters": 12345678})
        run.metrics({"test_mae": math.nan, "column/T (degC)/mse": 1.0, "column/ü %/mse": 2.0})
        run.text("config.yaml", odd)
        run.describe(odd, "\n".join(f"| {i:04} |" for i in range(2000)), "picture.png")
    found = client.get_run(run.id)
    data, (used,) = found.data, found.inputs.dataset_inputs
    assert found.info.status == "FINISHED"
    fitting = {"long": "a" * 6000, "lr_of.T _degC_": "1", "data.name": "data ?.csv"}
    assert data.params == values | fitting
    rounded = {"test_mse": 0.367197, "skill": -3.33333e-8, "parameters": 12345678}
    assert math.isnan(data.metrics.pop("test_mae"))
    assert data.metrics == rounded | {"column/T _degC_/mse": 1.0, "column/ü _/mse": 2.0}
    assert (data.tags["data"], data.tags["long"]) == ("data ?.csv", "b" * 8000)
    assert used.dataset.name == found.info.run_name == "data ?.csv"
    assert used.dataset.source_type == "local"
    assert json.loads(used.dataset.source)["uri"] == "data ?.csv"
    text = data.tags["mlflow.note.content"]
    picture = f"![forecast](get-artifact?path=plots%2Fpicture.png&run_uuid={run.id})"
    assert text.startswith(f"data ?.csv\n\n{picture}\n")
    *_, last, empty, end = text.splitlines()
    assert (len(last), empty, end) == (8, "", "…"), "it ends with a whole line"


def test_runs_below_another_are_there_once_however_often_they_are_told(client):
    keys = []
    for _ in range(2):
        with start(RunConfig(), "above", {}, key="1" * 32) as run:
            keys.append(run.child("below", {"a": "b"}, {"seed": "0"}, {"mse": 1 / 3}, {"x": "y"}))
        assert run.whole
    (found,) = client.search_runs(["1"], f"tags.`forecaster.run` = '{keys[0]}'")
    assert keys[0] == keys[1]
    assert found.data.tags["mlflow.parentRunId"] == run.id
    assert (found.info.run_name, found.info.status, found.data.tags["a"]) == (
        "below", "FINISHED", "b",
    )  # fmt: skip
    assert (found.data.params, found.data.metrics) == ({"seed": "0"}, {"mse": 0.333333})
    assert [file.path for file in client.list_artifacts(found.info.run_id)] == ["x"]
