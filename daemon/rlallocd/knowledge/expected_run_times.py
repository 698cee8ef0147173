"""Estimates of how long the jobs in the queue run, each made once, when the job is first seen."""

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from rlalloc.config import HistorySection
from rlalloc.history.pseudonyms import Pseudonyms
from rlalloc.job import Allocation
from rlalloc.past_job import PastJob
from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.store import Store
from rlalloc.view import slowdown
from rlallocd.knowledge.known_run_times import KnownRunTime, KnownRunTimes
from rlallocd.knowledge.known_usage import as_past_job
from rlallocd.slurm import JobRecord
from rlallocd.submissions.job_tag import read_tag, was_resized

_log = logging.getLogger(__name__)

JobKey = tuple[int, int]
"""The id that sbatch printed, and the submit second."""
MOST_KEPT: Final = 200_000
"""Where more jobs are in the queue, only the limits of those beyond are known."""


class Predictor(Protocol):
    """What estimates run times (``rlallocd.knowledge.site_predictor``)."""

    def learn(self, now_s: float) -> bool:
        """Look for what is new; whether anything is known, so that it is worth asking. May raise any error."""
        ...

    def estimate(self, jobs: Sequence[JobFacts], now_s: float) -> Sequence[RunTimeEstimate | None]:
        """Return an estimate for each job, in their order; None where only the limit is known."""
        ...

    def runs(self, job_id: str, facts: JobFacts, started_s: float) -> None:
        """Note that a job runs, or a task of an array."""
        ...

    def still_running(self, job_ids: Collection[str]) -> None:
        """Note that of those that ran, only these run on."""
        ...

    def knows_older(self, now_s: float) -> bool:
        """Continue reading if older past jobs have come. Returns whether they are known now. May raise any error."""
        ...

    @property
    def all_read(self) -> bool:
        """Whether all past jobs are known: the oldest are read first."""
        ...


class _FirstSeen(msgspec.Struct, frozen=True):
    """What a job asked for, and what was expected of it then."""

    request: Allocation
    facts: JobFacts
    estimate: RunTimeEstimate | None


class _Known(NamedTuple):
    """What was said of a record in the last snapshot. ``by`` is None where nothing is expected of it."""

    record: JobRecord
    key: JobKey
    by: _FirstSeen | None
    run_time: KnownRunTime | None


class ExpectedRunTimes:
    """Estimates for the jobs of each snapshot, ours or not, pending or running, from what was known at first sight.

    ``named`` gives a job the names under which past jobs are kept (``rlalloc.history.pseudonyms``).
    """

    def __init__(
        self,
        predictor: Predictor,
        store: Store,
        counters: Counter[str],
        named: Callable[[PastJob], PastJob] = lambda job: job,
    ) -> None:
        self._predictor = predictor
        self._store = store
        self._counters = counters
        self._named = named
        self._seen: dict[JobKey, _FirstSeen] = {}
        self._known: dict[int, _Known] = {}

    def of(self, jobs: Sequence[JobRecord], now_s: float) -> KnownRunTimes:
        """Return what is known of the run times of a snapshot's jobs; what has left the queue is forgotten.

        Where the predictor or the store fails, only the limits of new jobs are known until the next snapshot.
        """
        if not self._predictor.all_read:
            self._seen.clear()  # what was estimated from the oldest past jobs
        live = list(self._live(jobs))
        self._seen = {each.key: seen for each in live if (seen := self._seen.get(each.key)) is not None}
        if len(self._seen) < len(live):
            new = {each.key: each.record for each in live if each.key not in self._seen}
            self._estimate(dict(itertools.islice(new.items(), MOST_KEPT - len(self._seen))), now_s)
        self._known = {each.record.job_id: self._told(each) for each in live}
        for each in self._known.values():
            if each.by is not None and each.record.running:
                self._predictor.runs(str(each.record.job_id), each.by.facts, float(each.record.started_s))
        self._predictor.still_running({str(each.record.job_id) for each in live if each.record.running})
        return KnownRunTimes({job_id: each.run_time for job_id, each in self._known.items() if each.run_time})

    def take_up_older(self, now_s: float) -> None:
        """Estimate all jobs again once past jobs are known that are older than those known before."""
        try:
            if self._predictor.knows_older(now_s):
                self._seen.clear()
        except Exception as err:  # noqa: BLE001 (as in _estimate)
            self._counters["run_times_unknown"] += 1
            _log.warning("cannot take up earlier past jobs yet: %s", err)

    def _live(self, jobs: Sequence[JobRecord]) -> Iterator[_Known]:
        """Those that wait or run, with what was said of the same records before."""
        for job in jobs:
            known = self._known.get(job.job_id)
            if known is not None and known.record is job:
                yield known
            elif job.pending or job.running:
                yield _Known(job, _key(job), None, None)

    def _told(self, known: _Known) -> _Known:
        """The same record with what is expected of it now; the same object where that has not changed."""
        seen = self._seen.get(known.key)
        if seen is known.by:
            return known
        if seen is None or seen.estimate is None:
            return known._replace(by=seen, run_time=None)
        job = known.record
        as_asked = (job.gpus, job.cpus) == (seen.request.gpus, seen.request.cpus)
        slower = 1.0 if as_asked else slowdown(seen.request, _size(job))
        return known._replace(by=seen, run_time=KnownRunTime(seen.estimate, slower))

    def _estimate(self, jobs: Mapping[JobKey, JobRecord], now_s: float) -> None:
        if not jobs:
            return
        try:
            if not self._predictor.learn(now_s):
                return
            requests = {key: _size(job) for key, job in jobs.items()} | self._originals(jobs)
            facts = [self._named(as_past_job(job, requests[key])) for key, job in jobs.items()]
            estimates = self._predictor.estimate(facts, now_s)
        except Exception as err:  # noqa: BLE001 (an estimate is never worth a cycle, and LightGBM may fail in any way)
            self._counters["run_times_unknown"] += len(jobs)
            _log.warning("cannot estimate the run times of %d jobs, only their limits are known: %s", len(jobs), err)
            return
        for key, of_job, estimate in zip(jobs, facts, estimates, strict=True):
            if estimate is not None:  # else it is asked for again: something may have been learned by then
                self._seen[key] = _FirstSeen(requests[key], of_job, estimate)

    def _originals(self, jobs: Mapping[JobKey, JobRecord]) -> dict[JobKey, Allocation]:
        """Return what those jobs asked for that had another size of ours when they were first seen."""
        resized = [key for key, job in jobs.items() if read_tag(job.admin_comment) and was_resized(job.admin_comment)]
        return {key: history.request for key, history in self._store.histories(resized).items()} if resized else {}


def named_by(section: HistorySection) -> Callable[[PastJob], PastJob]:
    """Return what gives a job the names under which past jobs are kept."""
    if not section.pseudonymize:
        return lambda job: job
    # Made at the first use: a wrong key file is to cost estimates only.
    pseudonyms = functools.cache(Pseudonyms)
    return lambda job: pseudonyms(section.key_file).of(job)


def _key(job: JobRecord) -> JobKey:
    return job.base_id, job.submitted_s


def _size(job: JobRecord) -> Allocation:
    """What it asks for or holds, as if on one node: all that is needed are totals."""
    return Allocation(
        nodes=1,
        gpus_per_node=job.gpus,
        tasks_per_node=1,
        cpus_per_task=max(1, job.cpus),
        mem_mib_per_node=round(job.mem_mib),
        time_limit_s=job.time_limit_s,
    )
