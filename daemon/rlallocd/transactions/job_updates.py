"""The calls that change jobs in slurmctld: one update a job, one reading a batch, and releases of many jobs each.

A refusal is an answer: what a job is by now shows in the next reading. A sign of life follows each call, for each may
take as long as its time limit.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from rlallocd.process.uptime import uptime_s
from rlallocd.slurm import CommandDied, JobChanged, JobRecord, Slurm, UpdatePlan, UpdateRefused

_log = logging.getLogger(__name__)

BATCH: Final = 100
"""Jobs that are updated, then read back in one call and let go: a burst is let go batch by batch."""

_Item = TypeVar("_Item")


class UpdateAnswer(NamedTuple):
    """Of one update: ``refusal`` is why it was refused, or empty. It is not ``answered`` if scontrol died.

    ``changed``: it was refused because the job may have changed since it was read, and nothing of it was done.
    """

    answered: bool
    refusal: str = ""
    changed: bool = False


class JobUpdates:
    """``progress`` is called after each call of Slurm's. Inside ``together``, updates share a process.

    ``read_s`` is when the last reading began (seconds of uptime).
    """

    def __init__(self, slurm: Slurm, progress: Callable[[], None]) -> None:
        self._slurm = slurm
        self._progress = progress
        self.together = slurm.together
        self.read_s: float | None = None

    def update(self, plan: UpdatePlan) -> UpdateAnswer:
        """Send one update; the read-back shows its result. Raises SlurmUnavailable.

        If slurmctld does not answer, nothing more is sent in this cycle: it may still carry the update out. If only
        scontrol died, this job alone waits for the next cycle.
        """
        try:
            self._slurm.update(plan)
        except JobChanged as err:
            _log.info(
                "job %d: update not carried out: the job may have changed since it was read",
                plan.job_id,
                extra={"job_id": plan.job_id},
            )
            return UpdateAnswer(answered=True, refusal=str(err), changed=True)
        except UpdateRefused as err:
            _log.warning("job %d: update refused: %s", plan.job_id, err, extra={"job_id": plan.job_id})
            return UpdateAnswer(answered=True, refusal=str(err))
        except CommandDied as err:
            _log.warning(
                "job %d: the next cycle reads what became of its update: %s",
                plan.job_id,
                err,
                extra={"job_id": plan.job_id},
            )
            return UpdateAnswer(answered=False)
        finally:
            self._progress()
        return UpdateAnswer(answered=True)

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """The jobs that slurmctld still knows, by id. Raises SlurmError."""
        self.read_s = uptime_s()
        try:
            return self._slurm.read_back(job_ids)
        finally:
            self._progress()

    def never_runs(self, jobs: Sequence[JobRecord]) -> dict[int, str]:
        """Those of some pending jobs that slurmctld could not place, with its words; none where it is not asked."""
        if not jobs:
            return {}
        try:
            return self._slurm.never_runs(jobs)
        finally:
            self._progress()

    def begin(self, jobs: Sequence[tuple[int, float]]) -> bool:
        """Let jobs go, many in one call except those with a later begin time of their own; whether all went."""
        now_s = time.time()
        at_once = [job_id for job_id, begin_s in jobs if begin_s <= now_s]
        all_went = True
        while at_once:
            most = self._slurm.most_jobs
            all_went &= self._begin_at(at_once[:most], 0.0)
            at_once = at_once[most:]
        for job_id, begin_s in jobs:
            if begin_s > now_s:
                all_went &= self._begin_at([job_id], begin_s)
        return all_went

    def release(self, job: JobRecord) -> bool:
        """End the hold of tasks; returns whether to try again if they are still held. Raises SlurmUnavailable.

        With an array's own job id, scontrol would release all its tasks, whoever holds them.
        """
        named = UpdatePlan(job_id=job.job_id, fields=(), tasks="" if job.is_own_task else job.array_tasks)
        if job.is_split and not (job.is_own_task or job.array_tasks):
            _log.warning("job %d stays held: Slurm does not say which of its tasks wait", job.job_id)
            return False
        try:
            self._slurm.release(named.target)
        except (UpdateRefused, CommandDied) as err:
            _log.warning("job %s stays held: %s", named.target, err, extra={"job_id": job.job_id})
            return True
        else:
            _log.info(
                "job %s is released: slurmctld held it for its size", named.target, extra={"job_id": job.job_id}
            )
            return False
        finally:
            self._progress()

    def _begin_at(self, job_ids: Sequence[int], begin_s: float) -> bool:
        """Begin jobs. One that was cancelled or started meanwhile is no error: the next reading shows it."""
        try:
            self._slurm.begin(job_ids, begin_s)
        except (UpdateRefused, CommandDied) as err:
            _log.info("cannot let all of %d jobs go: %s", len(job_ids), err)
            return False
        finally:
            self._progress()
        return True


def in_batches(items: Iterable[_Item]) -> list[list[_Item]]:
    """Items in the portions in which jobs are updated and read back."""
    every = list(items)
    return [every[first : first + BATCH] for first in range(0, len(every), BATCH)]
