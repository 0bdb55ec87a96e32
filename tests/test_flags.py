import pytest

from forecaster.config import RunConfig
from forecaster.errors import UsageError
from forecaster.flags import FLAGS, as_keywords, names, numbers, option, parse, seconds, steps


def test_every_path_is_that_of_one_value():
    values = RunConfig().flat()
    paths = [flag.path for flag in FLAGS.values()]
    assert set(paths) <= set(values)
    assert len(set(paths)) == len(paths)


def test_help_is_a_sentence():
    assert all(flag.help.endswith(".") for flag in FLAGS.values() if "cycles" not in flag.help)


def test_a_flag_is_typed_with_hyphens():
    assert option("past_covariates") == "--past-covariates"


def test_numbers_have_commas_between():
    assert numbers("24, 168") == [24, 168]
    for text in ("", "24,", "1.5", "0", "-3", "x"):
        with pytest.raises(
            UsageError, match=r"^--season: expected comma-separated numbers from 1, such as 96,336"
        ):
            parse("--season", numbers, text)


def test_names_have_commas_between():
    assert names("wind, price a day ahead") == ["wind", "price a day ahead"]


def test_steps_are_a_number_cycles_are_not():
    assert [steps(text) for text in ("504", "21 cycles", "-5", "²")] == [
        504,
        "21 cycles",
        "-5",
        "²",
    ]


def test_a_time_has_a_unit_or_is_in_seconds():
    texts = ("90", "90s", "5m", "1.5h", "0.5")
    assert [seconds(text) for text in texts] == [90, 90, 300, 5400, 0.5]
    for text in ("", "m", "-5m", "0s", "5d", "1h30m", "1e3", "inf"):
        with pytest.raises(
            UsageError, match=r"^--time-limit: expected seconds above 0, or a time such as"
        ):
            parse("--time-limit", seconds, text)


@pytest.mark.parametrize(
    ("option", "parameter"),
    [
        ("--policy sort orders the rows", 'policy="sort" orders the rows'),
        ("name it with --freq, and --lookback.", "name it with freq, and lookback."),
        ("that fits: --horizon 12.", "that fits: horizon=12."),
        ("--missing -9999 takes it", 'missing=["-9999"] takes it'),
        ("--id region,state makes", 'id="region,state" makes'),
        ("--id names the columns", "id names the columns"),
        ("--stamps day-first", 'options={"data.stamps": "day-first"}'),
        ("--features M", 'options={"data.features": "M"}'),
        ("name it with --decimal", 'name it with options["data.decimal"]'),
        ("(--future FILE)", "(future=...)"),
        ("3 fit: --cutoffs 3", "3 fit: cutoffs=3"),
        ("--set train.batch=8 takes", 'options={"train.batch": 8} takes'),
        ("by --set window.past=auto.", 'by options={"window.past": "auto"}.'),
        ("--set train.checkpointing=true", 'options={"train.checkpointing": True}'),
        ("--set KEY=VALUE such as", "--set KEY=VALUE such as"),
        ("--resume auto goes on", "--resume auto goes on"),
        ("a -- b, 1--2", "a -- b, 1--2"),
    ],
)
def test_options_are_spelled_as_parameters(option, parameter):
    names = {"policy", "freq", "lookback", "horizon", "missing", "id", "future", "cutoffs"}
    assert as_keywords(option, names) == parameter
