from typing import Literal

import pytest
from pydantic import ValidationError

from forecaster.attention import ATTENTIONS
from forecaster.base.errors import UsageError
from forecaster.base.names import find, model_reference, option_model
from forecaster.model import SKELETONS

TABLE = {"full": 1, "prob": 2, "aft-full": 3, "ETTh1": 4}


class TestFind:
    @pytest.mark.parametrize(
        ("name", "hint"), [("porb", "prob"), ("ETTh9", "ETTh1"), ("aft_ful", "aft-full"), ("", "")]
    )
    def test_the_nearest_is_named_and_all_are_listed(self, name, hint):
        with pytest.raises(UsageError) as caught:
            find(TABLE, name, "thing")
        hint = f" Did you mean '{hint}'?" if hint else ""
        expected = f"unknown thing '{name}'.{hint} Known: full, prob, aft-full, ETTh1."
        assert str(caught.value) == expected

    @pytest.mark.parametrize(
        ("name", "key"),
        [("prob", "prob"), (" PROB ", "prob"), ("aft_full", "aft-full"), ("etth1", "ETTh1")],
    )
    def test_spellings(self, name, key):
        assert find(TABLE, name, "thing") == (key, TABLE[key])

    def test_the_first_that_fits_ends_the_search(self):
        class Table(dict):
            def __iter__(self):
                yield "prob"
                pytest.fail("what other packages offer was read")

        assert find(Table(prob=1), "Prob", "thing") == ("prob", 1)


class TestModelReference:
    def test_parts(self):
        for text, parts in {
            "runs:/" + "a" * 32 + "/b": {"run": "a" * 32, "part": "b"},
            "models:/m-" + "0" * 32: {"model": "m-" + "0" * 32},
            "models:/sales@champion": {"name": "sales", "alias": "champion"},
            "sales/7": {"name": "sales", "version": "7"},
        }.items():
            assert {key: part for key, part in model_reference(text).items() if part} == parts

    @pytest.mark.parametrize("text", ["", "a/b", "../x", "a b", "a@b@c", "sales/1/2", "-x"])
    def test_what_names_no_model(self, text):
        with pytest.raises(UsageError, match="names no model: expected a bundle's folder"):
            model_reference(text)


class Thing:
    def __init__(
        self,
        place: int,
        *,
        factor: int = 5,
        rate: float = 0.5,
        kind: Literal["a", "b"] = "a",
        layers: int | tuple[int, ...] = 2,
    ) -> None: ...


def test_the_constructor_is_the_schema_of_its_options():
    model = option_model(Thing, "thing")
    assert model().model_dump() == {"factor": 5, "rate": 0.5, "kind": "a", "layers": 2}
    given = model(factor=7, rate=1, kind="b", layers=(1, 2))
    assert given.model_dump() == {"factor": 7, "rate": 1.0, "kind": "b", "layers": (1, 2)}
    wrong = {"place": 1}, {"facotr": 7}, {"factor": "7"}, {"factor": True}, {"factor": 7.0}
    wrong += {"rate": float("inf")}, {"rate": "0.5"}, {"kind": "c"}, {"layers": (1, "2")}
    for options in wrong:
        with pytest.raises(ValidationError):
            model(**options)


@pytest.mark.parametrize("table", [ATTENTIONS, SKELETONS])
def test_every_option_of_every_class_has_a_default_that_it_accepts(table):
    for name, kind in table.items():
        model = option_model(kind, name)
        assert model().model_dump().keys() == model.model_fields.keys()
