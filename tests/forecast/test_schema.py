import json
import subprocess
import sys
from dataclasses import replace

import pytest

from forecaster.forecast.schema import Schema
from tests.bundles import unsaved


def test_what_reads_and_writes_forecasts_loads_no_torch():
    program = "import sys, forecaster.forecast.predictor, forecaster.datasets.reader\n"
    program += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("limits", [[["0", None]], [[0, None]] * 2, [[0]]])
def test_limits_that_cannot_be_are_an_error(limits):
    schema = unsaved(targets=("load",)).schema
    state = json.loads(json.dumps(replace(schema, limits=((0.0, None),)).to_dict()))
    assert Schema.from_dict(state).limits == ((0.0, None),)
    with pytest.raises(ValueError, match=r"limits|unpack"):
        Schema.from_dict({**state, "limits": limits})
