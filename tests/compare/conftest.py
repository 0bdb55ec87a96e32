import os

import pytest

from tests import small


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A working directory of its own, where the data set `small` is known."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name.startswith(("FORECASTER_", "MLFLOW_TRACKING", "MLFLOW_REGISTRY")):
                patch.delenv(name)
        patch.chdir(folder)
        small.install(folder, patch)
        yield folder
