import pytest

from forecaster.base.errors import UsageError
from forecaster.config.flags import names, numbers, parse, seconds


def test_texts_are_read_or_named_with_their_option():
    assert numbers("24, 168") == [24, 168]
    assert names("wind, price a day ahead,") == ["wind", "price a day ahead"]
    texts = ("90", "90s", "5m", "1.5h", "0.5")
    assert [seconds(text) for text in texts] == [90, 90, 300, 5400, 0.5]
    wrong = [(numbers, each) for each in ("", "24,", "1.5", "0", "-3", "x", "²")]
    wrong += [(seconds, each) for each in ("", "m", "-5m", "0s", "5d", "1h30m", "1e3", "inf")]
    for read, text in wrong:
        with pytest.raises(UsageError, match=f"^--option: expected .*, got '{text}'$"):
            parse("--option", read, text)
