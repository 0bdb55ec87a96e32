import pytest

from tests import small


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A separate working directory, where the data set `small` is known."""
    with small.at_home(tmp_path_factory.mktemp("home")) as folder:
        yield folder
