"""Nice decay: rlalloc takes back what it added to a job's nice while the job waits, so that no job starves.

The first half is pure; ``NiceDecay`` reads the store and calls slurmctld. There is no journal: the nice that is due
follows from a job's decision and its wait, rlalloc only ever lowers it, and what failed is due again in the next
round. docs/admin/urgency.md has the rules for people.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from rlalloc.config import Config
from rlalloc.store import JobHistory, Store
from rlalloc.urgency import nice_left, steps_taken
from rlallocd.process.interval import Interval
from rlallocd.slurm import CommandDied, JobRecord, Slurm, UpdateRefused
from rlallocd.submissions.job_tag import has_note, read_tag
from rlallocd.transactions.journal_entries import added_nice
from rlallocd.transactions.verification import AddedNice

_log = logging.getLogger(__name__)

CALLS_PER_ROUND: Final = 20
"""The most updates in one round; jobs whose nice becomes the same number share one."""
TRIES: Final = 3
"""How often the same nice is set for a job that does not get it: a plugin of the site may forbid it."""

JobKey = tuple[int, int]
"""Job id and submit second, as in ``Candidate.key``."""


class Added(msgspec.Struct, frozen=True):
    """What was added to a job's nice, and the wait [s] within which it decays to 0."""

    nice: AddedNice
    patience_s: float


class NiceUpdate(msgspec.Struct, frozen=True):
    """Jobs whose nice becomes the same number."""

    nice: int
    jobs: tuple[JobRecord, ...]


def added_by(history: JobHistory) -> Added | None:
    """What a job's decisions added to its nice; None if nothing, or while an update is not finished."""
    if history.is_open:
        return None
    patience_s = {decision.id: decision.patience_s for decision in history.decisions}
    for application in reversed(history.applications):
        nice, patience = added_nice(application), patience_s.get(application.decision_id)
        if application.state == "begun" and nice is not None and patience is not None:
            return Added(nice, patience)
    return None


def nice_due(job: JobRecord, added: Added, now_s: float, *, give_back: bool) -> int | None:
    """The lower nice that is due to a pending job now, or None. A nice that somebody else has set stays.

    The wait begins when the job becomes eligible. A requeued job has had its wait: it gets its own nice back.
    """
    if not added.nice.is_in(job):
        return None
    waited_s = now_s - max(job.submitted_s, job.begin_s)
    over = give_back or job.restarts > 0
    left = 0 if over else nice_left(added.nice.added, steps_taken(waited_s, added.patience_s))
    nice = added.nice.own + left
    return nice if nice < job.nice else None


def updates_for(due: Mapping[int, int], jobs: Sequence[JobRecord], most_jobs: int) -> list[NiceUpdate]:
    """Group jobs by the nice that is due to each, by job id; the job that has waited longest comes first.

    An update has ``most_jobs`` at most.
    """
    groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.submitted_s):
        if job.job_id in due:
            groups[due[job.job_id]].append(job)
    updates = [
        NiceUpdate(nice, tuple(group[first : first + most_jobs]))
        for nice, group in groups.items()
        for first in range(0, len(group), most_jobs)
    ]
    return sorted(updates, key=lambda update: update.jobs[0].submitted_s)


class NiceDecay:
    """Lowers nices every ``redecision.every_s``.

    Counts jobs whose nice was lowered (``nice_decay_lowered``) and those that keep it nevertheless (``…_stuck``).
    """

    def __init__(
        self,
        slurm: Slurm,
        store: Store,
        counters: Counter[str],
        *,
        progress: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``progress`` is called after each update; ``clock`` [s] paces the rounds."""
        self._slurm = slurm
        self._store = store
        self._counters = counters
        self._progress = progress
        self._last_round = Interval(clock)
        self._added: dict[JobKey, Added | None] = {}
        self._tries: Counter[tuple[JobKey, int]] = Counter()

    def decay(self, jobs: Sequence[JobRecord], config: Config, now_s: float, open_jobs: Collection[int]) -> None:
        """Set what is due. ``open_jobs`` have an unfinished update. Raises StoreError, SlurmUnavailable."""
        if not self._last_round.passed(config.redecision.every_s):
            return
        self._last_round.restart()
        pending = [job for job in jobs if _may_have_ours(job) and job.job_id not in open_jobs]
        self._learn(pending)
        self._set(pending, {job.job_id: _is_over(job, config) for job in pending}, now_s, CALLS_PER_ROUND)

    def give_back(self, jobs: Sequence[JobRecord], now_s: float) -> None:
        """Give all pending jobs their own nice back: the daemon stops. Raises StoreError, SlurmUnavailable."""
        pending = [job for job in jobs if _may_have_ours(job)]
        self._learn(pending)
        self._set(pending, {job.job_id: True for job in pending}, now_s, len(pending))

    def _learn(self, pending: Sequence[JobRecord]) -> None:
        """What was added does not change any more, so the store is asked once per job."""
        keys = {_key(job) for job in pending}
        self._added = {key: added for key, added in self._added.items() if key in keys}
        self._tries = Counter({tried: count for tried, count in self._tries.items() if tried[0] in keys})
        histories = self._store.histories(keys - self._added.keys())
        self._added |= {key: added_by(history) for key, history in histories.items() if not history.is_open}

    def _set(self, pending: Sequence[JobRecord], over: Mapping[int, bool], now_s: float, calls: int) -> None:
        due = {
            job.job_id: nice
            for job in pending
            if (added := self._added.get(_key(job))) is not None
            and (nice := nice_due(job, added, now_s, give_back=over[job.job_id])) is not None
            and self._tries[_key(job), nice] < TRIES
        }
        for update in updates_for(due, pending, self._slurm.most_jobs)[:calls]:
            try:
                self._slurm.set_nice([job.job_id for job in update.jobs], update.nice)
            except (UpdateRefused, CommandDied) as err:  # one has started, for example
                _log.info("cannot set nice %d for all of %d jobs: %s", update.nice, len(update.jobs), err)
            self._progress()
            for job in update.jobs:
                self._note(job, update.nice)

    def _note(self, job: JobRecord, nice: int) -> None:
        _log.info("job %d: nice %d → %d", job.job_id, job.nice, nice, extra={"job_id": job.job_id})
        self._tries[_key(job), nice] += 1
        self._counters["nice_decay_lowered"] += 1
        if self._tries[_key(job), nice] == TRIES:
            self._counters["nice_decay_stuck"] += 1
            _log.error(
                "job %d keeps nice %d: does the site's slurm_job_modify forbid %d?", job.job_id, job.nice, nice
            )


def _key(job: JobRecord) -> JobKey:
    return job.job_id, job.submitted_s


def _may_have_ours(job: JobRecord) -> bool:
    return job.pending and not job.array_job_id and has_note(job.admin_comment)


def _is_over(job: JobRecord, config: Config) -> bool:
    """Whether urgency does not count any more for a job: switched off, or its rule does not enforce."""
    tag = read_tag(job.admin_comment)
    rule = config.rule(tag.rule) if tag is not None else None
    return not config.urgency.nice_band or rule is None or config.mode_of(rule) != "enforce"
