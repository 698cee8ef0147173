"""What the simulator predicts for a workload, before any run with rlalloc."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from rlalloc.heuristics import Heuristic
from rlalloc_simulator.workloads import Header, WorkloadJob
from rlalloc_validation.chaos import TIMES, moved
from rlalloc_validation.simulated_run import simulate_at
from rlalloc_validation.validate import shipped_policy
from rlalloc_validation.validation_settings import Mode, ValidationSettings
from slurm_gain.gain_plan import SIZED

BEGINS_S: Final = 3660.0
"""On the engine's clock: a minute into an hour, so that submissions can be moved either way."""


def policies() -> dict[Mode, Heuristic | None]:
    """What decides in each mode: exactly what the agent answers there. Raises PolicyError."""
    return {"off": None, **dict.fromkeys(SIZED, shipped_policy())}


def predictions_s(
    header: Header,
    jobs: Sequence[WorkloadJob],
    settings: ValidationSettings,
    deciding: Mapping[Mode, Heuristic | None],
    launch_s: float,
) -> dict[Mode, tuple[float, ...]]:
    """Return mean JCT [s] by mode in each of TIMES runs, submissions being those of the workload's file.

    Each run has its submissions moved by up to half a second, since a real site's delays are not known
    beforehand. The mean of the runs is the prediction. ``launch_s`` is what a node needs to launch a job.
    """
    planned_s = {job.id: BEGINS_S + job.submit_s for job in jobs}
    return {
        mode: tuple(
            fmean(
                job.jct_s
                for job in simulate_at(header, jobs, settings, moved(planned_s, seed), mode, policy, launch_s).jobs
            )
            for seed in range(TIMES)
        )
        for mode, policy in deciding.items()
    }
