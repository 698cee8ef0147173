"""Two runs of one workload, job by job: how far apart waits, ends and the order of starts are. Pure functions."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_validation.recorded_run import RanJob, Run
from rlalloc_validation.validation_settings import Mode, ValidationError

Reals = NDArray[np.float64]

INTERVALS: Final = 2.0
"""The most that the median wait may be off, in intervals of backfill."""
JCT_TOLERANCE: Final = 0.03
LEAST_RANK_CORRELATION: Final = 0.98


class Pair(msgspec.Struct, frozen=True):
    """One job on the real site and in the engine."""

    real: RanJob
    simulated: RanJob

    @property
    def wait_error_s(self) -> float:
        """How much longer it waited in the engine."""
        return self.simulated.wait_s - self.real.wait_s

    @property
    def same_size(self) -> bool:
        """Whether it had the same GPUs, CPUs, memory and time limit in both."""
        return self.real.size == self.simulated.size


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How two runs of ``jobs`` jobs differ; times in seconds, the mean of each run first that of the real one.

    ``wait_error_s``  median and 90th percentile of each job's absolute difference
    ``jct_error``     the engine's mean JCT over the real one's, less 1
    ``rank``          Spearman's rank correlation of the starts
    """

    jobs: int
    wait_s: tuple[float, float]
    wait_error_s: tuple[float, float]
    jct_s: tuple[float, float]
    jct_error: float
    end_error_s: float
    rank: float
    other_state: int
    other_size: int

    def missed(self, interval_s: float) -> tuple[str, ...]:
        """Which targets were missed, in words; none if all were met."""
        said = {
            f"median error of the wait {self.wait_error_s[0]:.1f} s, at most {INTERVALS * interval_s:g} s": (
                self.wait_error_s[0] < INTERVALS * interval_s
            ),
            f"mean JCT {self.jct_error:+.1%}, at most ±{JCT_TOLERANCE:.0%}": abs(self.jct_error) <= JCT_TOLERANCE,
            f"rank correlation {self.rank:.3f}, above {LEAST_RANK_CORRELATION}": self.rank > LEAST_RANK_CORRELATION,
        }
        return tuple(text for text, met in said.items() if not met)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: both runs, and what they differ in."""

    mode: Mode
    real: Run
    simulated: Run
    figures: Figures

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each job in both, in the workload's order."""
        return pairs_of(self.real, self.simulated)


def compare(real: Run, simulated: Run) -> Compared:
    """Compare two runs of one workload. Raises ValidationError where they are not of the same jobs."""
    return Compared(mode=real.mode, real=real, simulated=simulated, figures=figures_of(pairs_of(real, simulated)))


def pairs_of(real: Run, simulated: Run) -> tuple[Pair, ...]:
    """Each job in both runs, in the workload's order. Raises ValidationError where they are not of the same jobs."""
    engine = {job.number: job for job in simulated.jobs}
    if engine.keys() != {job.number for job in real.jobs}:
        raise ValidationError("the two runs are not of the same workload: run both again from one folder")
    return tuple(Pair(job, engine[job.number]) for job in sorted(real.jobs, key=lambda job: job.number))


def figures_of(pairs: Sequence[Pair]) -> Figures:
    """The figures of at least one job. Where a job never started its end stands for its start."""
    waits = _both([(pair.real.wait_s, pair.simulated.wait_s) for pair in pairs])
    jcts = _both([(pair.real.jct_s, pair.simulated.jct_s) for pair in pairs])
    starts = _both([(_start_s(pair.real), _start_s(pair.simulated)) for pair in pairs])
    ends = _both([(pair.real.ended_s, pair.simulated.ended_s) for pair in pairs])
    errors = np.abs(waits[1] - waits[0])
    return Figures(
        jobs=len(pairs),
        wait_s=_means(waits),
        wait_error_s=(float(np.median(errors)), float(np.quantile(errors, 0.9))),
        jct_s=_means(jcts),
        jct_error=float(jcts[1].mean() / jcts[0].mean()) - 1.0,
        end_error_s=float(np.median(np.abs(ends[1] - ends[0]))),
        rank=rank_correlation(starts[0], starts[1]),
        other_state=sum(pair.real.state != pair.simulated.state for pair in pairs),
        other_size=sum(not pair.same_size for pair in pairs),
    )


def rank_correlation(one: Reals, other: Reals) -> float:
    """Spearman's: Pearson's correlation of ranks, equal values sharing the mean of theirs; NaN if all are."""
    ranks = [_ranks(values) for values in (one, other)]
    deviations = [each - each.mean() for each in ranks]
    scale = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum()) / scale if scale else float("nan")


def _ranks(values: Reals) -> Reals:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Reals = (last - (counts - 1) / 2.0)[places]
    return ranks


def _start_s(job: RanJob) -> float:
    return job.ended_s if job.started_s is None else job.started_s


def _both(values: Sequence[tuple[float, float]]) -> Reals:
    return np.array(values, dtype=np.float64).reshape(-1, 2).T


def _means(values: Reals) -> tuple[float, float]:
    return float(values[0].mean()), float(values[1].mean())
