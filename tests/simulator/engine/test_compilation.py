"""What is compiled has a wrapper for Python only where Python calls it."""

import pytest

from rlalloc_simulator.engine.event_loop import wake
from tests.simulator.engine.by_hand import job, simulator, size


def test_python_cannot_call_what_has_no_wrapper_for_it() -> None:
    with pytest.raises(TypeError, match=r"function wake .* is for compiled code alone: decorate it with"):
        wake(simulator([job(0.0, size(1))]).world)
