"""How far the engine deviates from itself when events come a little earlier or later: what no simulator can know.

A full site amplifies small differences: if two jobs that end within a second of each other swap, a third gets another
node, and everything after it changes. The real site has such differences in each run (the delays of sbatch, slurmd
and slurmctld vary), so no engine can be closer to one run than another run of the same workload.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc.heuristics import Heuristic
from rlalloc_simulator.workloads import Header, WorkloadJob
from rlalloc_validation.job_comparison import figures_of, pairs_of
from rlalloc_validation.recorded_run import Run
from rlalloc_validation.simulated_run import simulate, simulate_at
from rlalloc_validation.validation_settings import Mode, ValidationSettings

MOVED_BY_S: Final = 0.5
"""Submissions are moved by up to so much, either way."""
TIMES: Final = 5


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The engine with moved submissions against the engine without: the median over ``TIMES`` of each figure."""

    mode: Mode
    wait_error_s: float
    jct_error: float
    rank: float


def spread_of(
    header: Header,
    jobs: Sequence[WorkloadJob],
    settings: ValidationSettings,
    real: Run,
    policy: Heuristic,
    launch_s: float,
) -> Spread:
    """Run the workload of ``real`` with submissions as they were, and ``TIMES`` with them moved by ``MOVED_BY_S``."""
    plain = simulate(header, jobs, settings, real, policy, launch_s)
    found = []
    submitted_s = {job.number: job.submitted_s for job in real.jobs}
    for seed in range(TIMES):
        other = simulate_at(header, jobs, settings, moved(submitted_s, seed), real.mode, policy, launch_s)
        found.append(figures_of(pairs_of(plain, other)))
    return Spread(
        mode=real.mode,
        wait_error_s=float(np.median([each.wait_error_s[0] for each in found])),
        jct_error=float(np.median([abs(each.jct_error) for each in found])),
        rank=float(np.median([each.rank for each in found])),
    )


def moved(submitted_s: Mapping[int, float], seed: int) -> dict[int, float]:
    """The same submissions, each moved by up to ``MOVED_BY_S``."""
    random = np.random.default_rng(seed)
    return {number: time_s + float(random.uniform(-MOVED_BY_S, MOVED_BY_S)) for number, time_s in submitted_s.items()}
