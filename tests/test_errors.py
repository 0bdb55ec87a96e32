import pytest

import forecaster
from forecaster import errors
from forecaster.base.errors import DataError
from forecaster.client import Client
from forecaster.estimator import Forecaster


def test_users_import_what_they_need_from_the_top():
    assert errors.DataError is DataError
    assert (forecaster.Client, forecaster.Forecaster) == (Client, Forecaster)
    with pytest.raises(AttributeError, match="forcaster"):
        forecaster.forcaster  # noqa: B018
