"""What is believed of a job of which nothing is known.

Fitted to 44 families of measured points by ``make research RESEARCH_ARGS="speed-model --data DIR"``, which prints
these figures (docs/results/speed-model.md): Pollux (Qiao et al., OSDI 2021; petuum/adaptdl, Apache-2.0), Gavel
(Narayanan et al., OSDI 2020; stanford-futuredata/gavel, MIT), MPT (mosaicml/llm-foundry, Apache-2.0) and MLPerf
Training v4.0 (mlcommons/training_results_v4.0, Apache-2.0).
"""

from typing import Final

import numpy as np

from rlalloc.speed.speed_belief import SpeedBelief

MEAN: Final = (-1.58, -2.03, -1.58, -2.28, -0.38, 1.75)
SPREAD: Final = (1.63, 2.08, 1.73, 2.28, 2.47, 1.49)
"""Means and standard deviations between families, in the order of ``step_time.PARAMETERS``."""

PRIOR_BELIEF: Final = SpeedBelief(np.array(MEAN), np.diag(np.square(SPREAD)))
