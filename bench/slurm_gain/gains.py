"""Mean JCT by policy, and how much less than as submitted that is: on the real site and predicted. Pure functions."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

import msgspec

from rlalloc_validation.recorded_run import Run
from rlalloc_validation.validation_settings import Mode, ValidationError
from slurm_gain.gain_plan import BEFORE, WorkloadName

Side = Literal["real", "predicted"]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, one seed, one mode.

    ``jct_s``            mean JCT by sacct, seconds
    ``predictions_s``    the simulator's, of several runs; their mean is the prediction
    ``resized``          jobs that had another size than as submitted
    ``ended_otherwise``  jobs that did not end in the state in which they ended as submitted
    ``updates``          of waiting jobs that rlalloc sent
    ``machine_load``     of the machine, over the last minute of the run
    """

    jct_s: float
    predictions_s: tuple[float, ...]
    resized: int
    ended_otherwise: int
    machine_load: float
    updates: int = 0

    def on(self, side: Side) -> float:
        """Mean JCT [s] on one side."""
        return self.jct_s if side == "real" else fmean(self.predictions_s)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One workload with one seed, by mode."""

    workload: WorkloadName
    seed: int
    jobs: int
    taken: Mapping[Mode, Taken]

    def ratio(self, mode: Mode, side: Side, to: Mode = BEFORE) -> float:
        """Mean JCT in ``mode`` over that in mode ``to``; below 1 is a gain."""
        return self.taken[mode].on(side) / self.taken[to].on(side)


class Spread(msgspec.Struct, frozen=True):
    """Geometric mean of some ratios, the least and the largest of them."""

    mean: float
    least: float
    largest: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.least:.3f} to {self.largest:.3f})"


def measured_of(
    workload: WorkloadName, seed: int, runs: Mapping[Mode, Run], predictions_s: Mapping[Mode, tuple[float, ...]]
) -> Measured:
    """Join real runs and predictions. Raises ValidationError where the runs are not of the same jobs."""
    before = {job.number: job for job in runs[BEFORE].jobs}
    for run in runs.values():
        if {job.number for job in run.jobs} != before.keys():
            raise ValidationError(f"{workload}-{seed}: mode {run.mode} ran other jobs: remove its file, run again")
    return Measured(
        workload=workload,
        seed=seed,
        jobs=len(before),
        taken={
            mode: Taken(
                jct_s=fmean(job.jct_s for job in run.jobs),
                predictions_s=predictions_s[mode],
                resized=sum(job.size != before[job.number].size for job in run.jobs),
                ended_otherwise=sum(job.state != before[job.number].state for job in run.jobs),
                machine_load=run.load_of_machine[0],
                updates=run.updates,
            )
            for mode, run in runs.items()
        },
    )


def spread(measured: Sequence[Measured], mode: Mode, side: Side, to: Mode = BEFORE) -> Spread:
    """How the ratio varies over the seeds of a workload; at least one."""
    ratios = [each.ratio(mode, side, to) for each in measured]
    return Spread(math.exp(fmean(math.log(ratio) for ratio in ratios)), min(ratios), max(ratios))
