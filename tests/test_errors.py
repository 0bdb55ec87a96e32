import forecaster
from forecaster import errors
from forecaster.base.errors import DataError
from forecaster.client import Client


def test_users_import_what_they_need_from_the_top():
    assert errors.DataError is DataError
    assert forecaster.Client is Client
