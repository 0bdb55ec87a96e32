import json
from dataclasses import replace

import pytest

from forecaster.plan.schema import Schema
from tests.bundles import unsaved


@pytest.mark.parametrize("limits", [[["0", None]], [[0, None]] * 2, [[0]]])
def test_limits_that_cannot_be_are_an_error(limits):
    schema = unsaved(targets=("load",)).schema
    state = json.loads(json.dumps(replace(schema, limits=((0.0, None),)).to_dict()))
    assert Schema.from_dict(state).limits == ((0.0, None),)
    with pytest.raises(ValueError, match=r"limits|unpack"):
        Schema.from_dict({**state, "limits": limits})
