import pytest

from forecaster.datasets.reader import read
from tests.datasets.reader.test_files import TABLE


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What is read of TABLE in the plainest form."""
    file = tmp_path_factory.mktemp("plain") / "sales.csv"
    TABLE.to_csv(file, index=False)
    return read(str(file))
