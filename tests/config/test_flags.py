import pytest

from forecaster.base.errors import UsageError
from forecaster.config.flags import FLAGS, names, numbers, parse, seconds
from forecaster.config.run_config import RunConfig


def test_every_path_is_that_of_one_value():
    values = RunConfig().flat()
    paths = [flag.path for flag in FLAGS.values()]
    assert set(paths) <= set(values)
    assert len(set(paths)) == len(paths)


def test_help_is_a_sentence():
    assert all(flag.help.endswith(".") for flag in FLAGS.values() if "cycles" not in flag.help)


def test_numbers_have_commas_between():
    assert numbers("24, 168") == [24, 168]
    for text in ("", "24,", "1.5", "0", "-3", "x"):
        with pytest.raises(
            UsageError, match=r"^--season: expected comma-separated numbers from 1, such as 96,336"
        ):
            parse("--season", numbers, text)


def test_names_have_commas_between():
    assert names("wind, price a day ahead,") == ["wind", "price a day ahead"]


def test_a_time_has_a_unit_or_is_in_seconds():
    texts = ("90", "90s", "5m", "1.5h", "0.5")
    assert [seconds(text) for text in texts] == [90, 90, 300, 5400, 0.5]
    for text in ("", "m", "-5m", "0s", "5d", "1h30m", "1e3", "inf"):
        with pytest.raises(
            UsageError, match=r"^--time-limit: expected seconds above 0, or a time such as"
        ):
            parse("--time-limit", seconds, text)
