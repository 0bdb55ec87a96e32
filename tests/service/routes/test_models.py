from forecaster.datasets.reading import Reading
from forecaster.forecast.predictor import Predictor
from tests.bundles import rejudged
from tests.service.toy import (
    COLUMNS,
    HORIZON,
    ITEMS,
    KINDS,
    METRICS,
    NAME,
    PAST,
    make_bundle,
    start,
)


def test_card_tells_what_a_client_needs(client, folder):
    (card,) = client.get("/models").json()["models"]
    bundle = Predictor.load(folder).bundle
    assert client.get(f"/models/{NAME}").json() == card
    answered = {**card.pop("reading"), "targets": card["targets"]}
    assert Reading.from_dict(answered) == bundle.schema.reading
    (part,) = card.pop("made_of")
    assert (part["name"], part["weight"], part["chosen"]) == ("network", 1, "attention prob")
    shown = {*METRICS, "network", "headline", "columns"}
    assert card.pop("test") == bundle.record.test.model_dump(mode="json", include=shown)
    assert card == {
        "name": NAME, "version": None, "alias": None, "run_id": "0" * 32, "attn": "prob",
        "attn_weight": 1.0, "digest": bundle.digest, "effective": "sparse",
        "device": "cpu", "columns": list(COLUMNS), "time": "time", "id": None,
        "id_columns": [], "wide": False, "targets": list(COLUMNS), "past_covariates": [],
        "future_covariates": [], "flags": [], "effects": [], "static_covariates": [], "items": 0,
        "item_names": [], "freq": "h", "timezone": "naive", "policy": "error", "look_back": PAST,
        "needs": PAST, "least": PAST, "new_series": False, "horizon": HORIZON, "forecast": "mean",
        "quantile_levels": [0.1, 0.5, 0.9], "paths_from": 39,
        "intervals": "made up", "bands": [], "refit": False,
        "seen_until": None,
    }  # fmt: skip


def test_card_tells_covariates_attributes_series_and_what_the_bands_cover(tmp_path):
    columns = {"load": {"coverage": 0.7}, "wind": {"coverage": None}}
    found = {"80": {"coverage": 0.74, "columns": columns}, "50": None, "verdict": "as they should"}
    rejudged(make_bundle(tmp_path, **KINDS["all"]), intervals=found).save(tmp_path)
    with start(model=str(tmp_path)) as client:
        (card,) = client.get("/models").json()["models"]
    assert card["past_covariates"] == ["Zürich °C"]
    assert card["future_covariates"] == ["holiday", "target"]
    assert card["static_covariates"] == [
        {"name": "size", "words": None},
        {"name": "kind", "words": ["in", "out"]},
    ]
    assert (card["items"], card["item_names"]) == (3, list(ITEMS))
    assert (card["time"], card["id"], card["wide"]) == ("time", "town", False)
    assert card["id_columns"] == ["town"]
    by_column = {"load": 0.7, "wind": None}
    band = {"share": 0.8, "coverage": 0.74, "again": False, "columns": by_column}
    assert card["bands"] == [band]


def test_several_are_listed_and_chosen_by_name(tmp_path, registry):
    """Each by all of its names that no other has, the first by default; the header of every answer
    names the model."""
    make_bundle(tmp_path / "one")
    make_bundle(tmp_path / "two", columns=("x",))
    registry.put("a@champion", tmp_path / "one", name="a", version="7", alias="champion")
    registry.put("a@next", tmp_path / "two", name="a", version="8", alias="next")
    for version in "79":
        registry.put(f"b/{version}", tmp_path / "two", name="b", version=version)
    with start(model="a@champion, a@next, b/7, b/9") as client:
        cards = client.get("/models").json()["models"]
        told = [(each["name"], each["version"], each["alias"]) for each in cards]
        assert told[:3] == [("a", "7", "champion"), ("a", "8", "next"), ("b", "7", None)]
        names = "a champion a@champion a/7", "8 next a@next", "b b/7", "9 b/9"
        for card, own in zip(cards, names, strict=True):
            for name in own.split():
                example = client.get(f"/models/{name}/example").json()
                answer = client.post("/predict", json=example)
                label = f"{card['name']}/{card['version']}; digest={card['digest']}"
                assert answer.headers["X-Forecaster-Model"] == label
        example = client.get("/models/a/example").json()
        assert client.post("/predict", json=example).json()["model"]["version"] == "7"
        assert "choose one of: a, b" in client.get("/models/7").json()["detail"]
        assert "the models are: a" in client.get("/models/c").json()["detail"]


def test_other_names_are_404(client):
    for name in ("other", "..", "%2e%2e", "../../etc/passwd", "a%00b", "%23"):
        answer = client.get(f"/models/{name}/example")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
