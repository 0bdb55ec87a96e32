import pytest

from forecaster.base.errors import Stopped


@pytest.mark.parametrize(("number", "status"), [(2, 130), (15, 143)])
def test_a_signal_is_no_exception_that_could_be_swallowed(number, status):
    stopped = Stopped(number)
    assert stopped.exit_code == status
    assert not isinstance(stopped, Exception)
