"""How often Python looks for reference cycles, of which rlallocd makes hardly any."""

import gc
from typing import Final

_NEW_OBJECTS: Final = 100_000


def collect_rarely() -> None:
    """Let Python look for them only after 100,000 new objects; by default it looks after 700.

    On a large site, one cycle of rlallocd makes as many objects that stay: records of jobs. By default, Python went
    through all objects of the process many times in such a cycle (docs/results/scale.md).
    """
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
