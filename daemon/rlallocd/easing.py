"""What was added to jobs' nice falls while they wait, so that none starves, and is given back where rlalloc ends.

The first half is pure; ``Easing`` reads the store and calls slurmctld. No journal: what a job is to have follows from
its decision and its wait, a nice only ever falls, and what was not done is due again at the next look.
docs/admin/urgency.md has the rules for people.
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
from rlallocd.apply import BATCH, added_nice
from rlallocd.findings import AddedNice
from rlallocd.interval import Interval
from rlallocd.slurm import JobRecord, Slurm, UpdateRefused
from rlallocd.tag import has_note, read_tag

_log = logging.getLogger(__name__)

CALLS_A_LOOK: Final = 20
"""The most updates of one look: jobs whose nice falls to the same number share one."""
TRIES: Final = 3
"""How often the same nice is set for a job that then does not have it: its site's plugins may forbid it."""

JobKey = tuple[int, int]
"""Job id and submit second, as in ``Candidate.key``."""


class Added(msgspec.Struct, frozen=True):
    """What was added to a job's nice, and the wait [s] in which it falls to nothing."""

    nice: AddedNice
    patience_s: float


class Fall(msgspec.Struct, frozen=True):
    """Jobs whose nice is to become the same number."""

    nice: int
    jobs: tuple[JobRecord, ...]


def added_by(history: JobHistory) -> Added | None:
    """What a job's decisions added to its nice; None where nothing was, or an update has not come to its end."""
    if history.is_open:
        return None
    patience_s = {decision.id: decision.patience_s for decision in history.decisions}
    for application in reversed(history.applications):
        nice, patience = added_nice(application), patience_s.get(application.decision_id)
        if application.state == "begun" and nice is not None and patience is not None:
            return Added(nice, patience)
    return None


def nice_due(job: JobRecord, added: Added, now_s: float, *, give_back: bool) -> int | None:
    """The lower nice that a waiting job is to have by now, or None. One that others have set is theirs and stays.

    It waits since it became eligible. A requeued job has its turn: nothing of what was added is left.
    """
    if not added.nice.is_in(job):
        return None
    waited_s = now_s - max(job.submitted_s, job.begin_s)
    over = give_back or job.restarts > 0
    left = 0 if over else nice_left(added.nice.added, steps_taken(waited_s, added.patience_s))
    nice = added.nice.own + left
    return nice if nice < job.nice else None


def falls_of(due: Mapping[int, int], jobs: Sequence[JobRecord]) -> list[Fall]:
    """Group jobs by the nice that is due to each, by job id; what has waited longest first."""
    groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.submitted_s):
        if job.job_id in due:
            groups[due[job.job_id]].append(job)
    falls = [
        Fall(nice, tuple(group[first : first + BATCH]))
        for nice, group in groups.items()
        for first in range(0, len(group), BATCH)
    ]
    return sorted(falls, key=lambda fall: fall.jobs[0].submitted_s)


class Easing:
    """Lets nices fall, every ``waiting.every_s``. Counts ``waiting_eased`` jobs, and ``waiting_stuck`` ones."""

    def __init__(
        self,
        slurm: Slurm,
        store: Store,
        counters: Counter[str],
        *,
        progress: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``progress`` is called after each update; ``clock`` [s] paces the looks."""
        self._slurm = slurm
        self._store = store
        self._counters = counters
        self._progress = progress
        self._looked = Interval(clock)
        self._added: dict[JobKey, Added | None] = {}
        self._tries: Counter[tuple[JobKey, int]] = Counter()

    def ease(self, jobs: Sequence[JobRecord], config: Config, now_s: float, open_jobs: Collection[int]) -> None:
        """Set what is due. ``open_jobs`` have an update that is not finished. Raises StoreError, SlurmUnavailable."""
        if not self._looked.passed(config.waiting.every_s):
            return
        self._looked.restart()
        waiting = [job for job in jobs if _may_have_ours(job) and job.job_id not in open_jobs]
        self._learn(waiting)
        self._set(waiting, {job.job_id: _is_over(job, config) for job in waiting}, now_s, CALLS_A_LOOK)

    def give_back(self, jobs: Sequence[JobRecord], now_s: float) -> None:
        """Give all waiting jobs their own nice: nobody will look at them. Raises StoreError, SlurmUnavailable."""
        waiting = [job for job in jobs if _may_have_ours(job)]
        self._learn(waiting)
        self._set(waiting, {job.job_id: True for job in waiting}, now_s, len(waiting))

    def _learn(self, waiting: Sequence[JobRecord]) -> None:
        """What was added does not change any more, so it is asked for once a job."""
        keys = {_key(job) for job in waiting}
        self._added = {key: added for key, added in self._added.items() if key in keys}
        self._tries = Counter({tried: count for tried, count in self._tries.items() if tried[0] in keys})
        histories = self._store.histories(keys - self._added.keys())
        self._added |= {key: added_by(history) for key, history in histories.items() if not history.is_open}

    def _set(self, waiting: Sequence[JobRecord], over: Mapping[int, bool], now_s: float, calls: int) -> None:
        due = {
            job.job_id: nice
            for job in waiting
            if (added := self._added.get(_key(job))) is not None
            and (nice := nice_due(job, added, now_s, give_back=over[job.job_id])) is not None
            and self._tries[_key(job), nice] < TRIES
        }
        for fall in falls_of(due, waiting)[:calls]:
            try:
                self._slurm.set_nice([job.job_id for job in fall.jobs], fall.nice)
            except UpdateRefused as err:  # one that has started or was cancelled meanwhile
                _log.info("not all of %d jobs got nice %d: %s", len(fall.jobs), fall.nice, err)
            self._progress()
            for job in fall.jobs:
                self._note(job, fall.nice)

    def _note(self, job: JobRecord, nice: int) -> None:
        _log.info("job %d: nice %d → %d", job.job_id, job.nice, nice, extra={"job_id": job.job_id})
        self._tries[_key(job), nice] += 1
        self._counters["waiting_eased"] += 1
        if self._tries[_key(job), nice] == TRIES:
            self._counters["waiting_stuck"] += 1
            _log.error("job %d keeps nice %d: is there a plugin that forbids %d?", job.job_id, job.nice, nice)


def _key(job: JobRecord) -> JobKey:
    return job.job_id, job.submitted_s


def _may_have_ours(job: JobRecord) -> bool:
    return job.pending and not job.array_job_id and has_note(job.admin_comment)


def _is_over(job: JobRecord, config: Config) -> bool:
    """Whether urgency does not count any more for a job: switched off, or its rule does not enforce."""
    tag = read_tag(job.admin_comment)
    rule = config.rule(tag.rule) if tag is not None else None
    return not config.urgency.nice_band or rule is None or config.mode_of(rule) != "enforce"
