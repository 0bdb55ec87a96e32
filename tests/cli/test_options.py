import pytest

from forecaster.cli.options import numbers
from forecaster.errors import UsageError


def test_numbers_have_commas_between():
    assert numbers("--season", "24, 168") == [24, 168]
    for text in ("", "24,", "1.5", "0", "-3", "x"):
        with pytest.raises(UsageError, match=r"--season wants numbers with commas, such as 96,336"):
            numbers("--season", text)
