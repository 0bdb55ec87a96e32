"""Answers about several series are cut, joined, and written."""

from dataclasses import replace

import numpy as np
import pandas as pd

from forecaster.datasets.reading import Reading
from forecaster.forecast.answer import Answer, by_code
from forecaster.forecast.notices import Notice, NoticeCode
from forecaster.forecast.question import Form, concatenate

READING = Reading(time="when", targets=("y", "z"), freq="D", timezone="UTC")
FORM = Form(READING, ("y", "z"), 3, 3, 1, 2)


def answer(count=3, flat=False):
    """Values 1000 s + 100 t + 10 k of series s, step t and target k, and 1 more for each level."""
    values = 1000.0 * np.arange(count)[:, None, None] + 100.0 * np.arange(2)[:, None]
    values = values + 10 * np.arange(2)
    return Answer(
        FORM,
        pd.date_range("2026-01-04", periods=count, freq="D", unit="us"),
        ["a", None, "c"][:count],
        values,
        values[..., None] + [-1, 1],
        (0.1, 0.9),
        [flat] * count,
        [
            Notice(NoticeCode.FIRST_STEP, "far", 2),
            Notice(NoticeCode.HISTORY_CUT, "cut", 1),
            Notice(NoticeCode.COVERAGE, "narrow"),
        ],
    )


def test_parts_are_the_whole_again():
    whole = answer()
    parts = [whole[:1], whole[1:]]
    assert [[notice.place for notice in part.notices] for part in parts] == [[None], [1, 0, None]]
    again = concatenate(parts)
    assert again.to_json()["predictions"] == whole.to_json()["predictions"]
    pd.testing.assert_frame_equal(again.to_frame(""), whole.to_frame(""))
    assert whole[:] is whole
    assert concatenate([whole]) is whole


def test_levels_between_those_of_the_model_are_interpolated():
    whole = answer()
    some = whole.at((0.9,), 1, [Notice(NoticeCode.LOST_TO_FLOOR, "lost")])
    assert some.forecasts.shape == (3, 1, 2)
    np.testing.assert_array_equal(some.quantiles[..., 0], whole.quantiles[:, :1, :, 1])
    assert some.notices[0].code == "lost_to_floor"
    half = whole.at((0.3, 0.5), 2).quantiles - whole.forecasts[..., None]
    np.testing.assert_allclose(half, np.broadcast_to([-0.5, 0], half.shape), atol=1e-9)
    assert whole.at((), None).quantiles.shape[-1] == 0


def test_what_is_written():
    """First what was done with each series, then what concerns all, then each forecast."""
    document = answer(3).to_json()
    assert document["warnings"] == ["inputs[1]: cut", "narrow", "inputs[2]: far"]
    assert document["predictions"][1] == {
        "item_id": None, "start": "2026-01-05T00:00:00+00:00", "freq": "D", "columns": ("y", "z"),
        "mean": [[1000, 1010], [1100, 1110]],
        "quantiles": {"0.1": [[999, 1009], [1099, 1109]], "0.9": [[1001, 1011], [1101, 1111]]},
    }  # fmt: skip
    flat = answer(3, flat=True)[:1].to_json(apart=False)
    assert flat["predictions"][0]["mean"] == [0, 100]
    assert flat["predictions"][0]["quantiles"]["0.9"] == [1, 101]
    assert flat["notices"] == [{"code": "coverage", "input": None, "text": "narrow"}]
    alone = replace(answer(1), items=[None], notices=())
    assert alone.to_csv().splitlines()[:2] == [
        "when,y,y 0.1,y 0.9,z,z 0.1,z 0.9",
        "2026-01-04T00:00:00+00:00,0.0,-1.0,1.0,10.0,9.0,11.0",
    ]


def test_one_sentence_for_each_code():
    far, odd = NoticeCode.FIRST_STEP, NoticeCode.COVERAGE
    notices = [Notice(far, far, 0), Notice(odd, odd), *(Notice(far, far, n) for n in (1, 2, 0))]
    sentences = [*by_code([*notices, Notice(odd, odd)], ["a", "b", "c"])]
    assert sentences == ["series 'a': first_step; likewise 'b', 'c'", "coverage"]
    assert [notice.code for notice in sentences] == ["first_step", "coverage"]
    assert [*by_code([Notice(far, far, 0)], [""])] == [far], "a series without a name"
