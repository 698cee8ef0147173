"""What policies believe of scaling where the truth is drawn from one table: the prior that never saw that table.

``make research RESEARCH_ARGS="speed-model --data DIR"`` prints these figures.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from rlalloc.speed.speed_belief import SpeedBelief

_WITHOUT: Final[Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "pollux": ((-1.88, -2.52, -2.05, -1.52, -0.19, 1.84), (1.37, 1.89, 1.51, 1.78, 2.28, 1.48)),
    "gavel": ((-1.98, -2.15, -1.87, -3.04, 0.09, 1.89), (1.95, 2.21, 1.89, 1.71, 1.91, 1.42)),
    "mpt": ((-1.48, -1.89, -1.42, -2.3, -0.8, 1.99), (1.69, 2.16, 1.92, 2.66, 2.97, 1.44)),
    "mlperf": ((-0.93, -1.47, -0.89, -2.21, -0.65, 1.0), (1.37, 1.79, 1.34, 2.36, 2.64, 1.5)),
}
"""Means and standard deviations between families, in the order of ``step_time.PARAMETERS``."""
PRIORS_WITHOUT: Final[Mapping[str, SpeedBelief]] = {
    table: SpeedBelief(np.array(mean), np.diag(np.square(spread))) for table, (mean, spread) in _WITHOUT.items()
}
