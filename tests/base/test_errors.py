import inspect
import re

import pytest

from forecaster.base import errors
from forecaster.base.errors import ForecasterError, Stopped

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, ForecasterError)
}


def test_the_tree_is_drawn_as_it_is():
    drawn, branch = {}, {}
    for indent, name, code in re.findall(r"^([│├└─ ]*)(\w+)\s+(\d+)  ", errors.__doc__, re.M):
        depth = len(indent) // 4
        branch[depth] = name
        drawn[name] = (branch.get(depth - 1), int(code))
    assert drawn.pop("Stopped") == (None, 130)
    assert drawn == {
        name: (kind.__base__.__name__ if kind is not ForecasterError else None, kind.exit_code)
        for name, kind in CLASSES.items()
    }


@pytest.mark.parametrize(("number", "status"), [(2, 130), (15, 143)])
def test_a_signal_is_no_exception_that_could_be_swallowed(number, status):
    stopped = Stopped(number)
    assert stopped.exit_code == status
    assert not isinstance(stopped, Exception)
