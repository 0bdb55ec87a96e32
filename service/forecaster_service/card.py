"""The card of a model and an example of a request, as GET /models shows them."""

from typing import Any

from forecaster.datasets.dataset import MARK
from forecaster.forecast import composition, effects
from forecaster.forecast.paths import windows_of
from forecaster.forecast.predictor import Predictor
from forecaster.record import Backtest
from forecaster_service.response import MOST_ITEMS, ModelCard, ModelIdentity

FIGURES = {"windows", "columns", "network", "floors", "best_floor", "headline", "verdict"}
"""What GET /models shows of the test split beside the metrics that floors have, too."""
SAME = ("time", "wide", "columns", "targets", "freq", "timezone")
"""What the card takes from the schema as it is, and what stays the same for clients."""


def _bands(test: Backtest | None) -> list[dict[str, Any]]:
    """The coverage of the intervals of a test split, the narrowest first."""
    return [
        {
            "share": float(share) / 100,
            "coverage": band["coverage"],
            "again": test is not None and test.calibrated_again,
            "columns": {name: figures["coverage"] for name, figures in band.columns.items()},
        }
        for share, band in (test.intervals.bands if test and test.intervals else {}).items()
    ]


def example(forecaster: Predictor) -> dict[str, Any]:
    """An example request that the model accepts, with everything that it reads."""
    frame, schema, past = forecaster.example, forecaster.schema, forecaster.bundle.past
    attributes, read_from = schema.known.attributes, schema.reading.read_from
    before, known = read_from(schema.past_only), read_from(schema.known.columns)
    columns = [schema.items[0]] if schema.wide else list(schema.targets)
    series = {
        "item_id": schema.items[0] if schema.items else "example",
        "start": frame[schema.time].iloc[0].isoformat(),
        "columns": list(schema.targets),
        "target": frame[columns][:past].to_numpy().tolist(),
        "past_covariates": {name: frame[name][:past].tolist() for name in (*before, *known)},
        "future_covariates": {name: frame[name][past:].tolist() for name in known},
        "static_covariates": {
            attribute.name: frame[attribute.name].tolist()[0] for attribute in attributes
        },
    }
    parameters = {"prediction_length": forecaster.bundle.horizon, "freq": schema.freq}
    return {"inputs": [series], "parameters": parameters}


def describe(forecaster: Predictor) -> tuple[ModelIdentity, ModelCard]:
    """Who a model is, and its card."""
    bundle, schema = forecaster.bundle, forecaster.schema
    about, reading, test = bundle.about, schema.reading, bundle.record.test
    facts = {
        **{key: getattr(schema, key) for key in SAME},
        "name": bundle.origin.get("name", bundle.name),
        "version": bundle.origin.get("version"),
        "alias": bundle.origin.get("alias"),
        "run_id": about.get("run_id"),
        "attn": bundle.config.attn.name,
        "attn_weight": composition.attention_weight(bundle),
        "digest": bundle.digest,
        "made_of": composition.made_of(bundle),
        "refit": bool(about.get("refit")),
        "seen_until": about.get("seen_until"),
        "effective": about.get("attn_effective", ""),
        "device": forecaster.device,
        "id": MARK.join(schema.id) or None,
        "id_columns": schema.id,
        "past_covariates": reading.read_from(schema.past_only),
        "future_covariates": reading.read_from(schema.known.columns),
        "flags": [name for name in reading.future_covariates if name in schema.known.flags],
        "effects": [*effects.sentences(bundle)],
        "static_covariates": [
            {"name": attribute.name, "words": attribute.words or None}
            for attribute in schema.known.attributes
        ],
        "items": len(schema.items),
        "item_names": schema.items[:MOST_ITEMS],
        "policy": reading.policy,
        "reading": {key: value for key, value in reading.to_dict().items() if key != "targets"},
        "look_back": bundle.past,
        "needs": forecaster.needs,
        "least": forecaster.least,
        "new_series": forecaster.newcomers is not None,
        "horizon": bundle.horizon,
        "forecast": "mean",
        "quantile_levels": forecaster.levels,
        "paths_from": windows_of(bundle.intervals),
        "intervals": str(about["intervals"]),
        "bands": _bands(test),
        "test": test.model_dump(include={*FIGURES, *test.bar.measured}) if test else {},
    }
    return ModelIdentity.model_validate(facts), ModelCard.model_validate(facts)
