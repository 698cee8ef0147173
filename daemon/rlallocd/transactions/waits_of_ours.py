"""Jobs that wait for what only the size explains that rlalloc gave them: they get their requests back.

Slurm says why a job waits. For a limit, or where no node can ever hold the job, its word is enough. Where it says
that resources or nodes are not there, the nodes are looked at: the job's request fits some that it may use, the
decided size does not. A larger node has gone down, for example, or somebody has reserved nodes for a time that only
the longer time limit reaches.

A size that takes more than the request, or longer, is given to a job that can start at once, and so is a type of GPU.
Slurm may see that in another way: another job came first, or backfill keeps what is free for a job ahead. After a
scheduling interval in which the request would have fitted what is free, and the decided size did not or was longer,
the job gets its request back. So does a job for which Slurm finds no nodes although its request fits nodes that are
free and not reserved: its user may have made a change that conflicts with the decided size. Where its fields show
such a change, it does not wait for the interval. A job with a type gets its request back after any such interval: it
may then start on the first GPUs that are free.

Where somebody has changed a job's CPUs so that those of a node's tasks are not those of the node, the job gets its
request back whatever it waits for, and if it is held, too. If the tasks ask for fewer than the node is to have, Slurm
may find no node. If they ask for more, the job starts with fewer (22.05, 24.11), and only the TaskProlog keeps its
srun from waiting for the others.

slurmctld holds a job that no node can hold: BadConstraints, with priority 0. An update of the job ends this hold. But
once a task held in this way waits for others of its array, slurmctld shows the hold as an administrator's
(job_independent, then _job_runnable_test1). The cycle before tells them apart: if slurmctld holds the task, it was
not held then, or for BadConstraints. Such a task also gets its request back, and is then released.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rlalloc.job import Allocation
from rlalloc.store import Store
from rlallocd.decisions.decisions import Snapshot
from rlallocd.decisions.type_choices import as_submitted
from rlallocd.limits import SiteView, is_of_a_size, may_be_ours
from rlallocd.slurm import JobRecord, RequestFields
from rlallocd.submissions.job_tag import read_tag
from rlallocd.transactions.transactions import Applier
from rlallocd.transactions.verification import (
    CPUS_THAT_COME_BACK,
    contradictions,
    has_conflicting_cpus,
    has_part_of,
    has_size,
    lacks_cpus,
)

_IN_QUEUE: Final = frozenset({"Resources", "Priority"})
_FOR_NODES: Final = frozenset({*_IN_QUEUE, "ReqNodeNotAvail", "PartitionConfig", "Reservation"})
"""slurmctld may also say ``Reservation`` of a job that names no reservation, if others have reserved its nodes
(ESLURM_RESERVATION_BUSY, select_nodes in node_scheduler.c)."""
_HELD: Final = "JobHeldAdmin"
_HELD_BY_SLURM: Final = "BadConstraints"
JobKey = tuple[int, int]
"""Job id and submit second. The id is that which sbatch printed, except for tasks of arrays that have their own."""


_MOST_IN_A_CYCLE: Final = 500
"""Jobs that get their requests back at once: new jobs wait meanwhile, and their grace is short."""
_TRIED_AGAIN_AFTER_S: Final = 600.0
_Seen = tuple[bool, int, str, str, RequestFields]


class _Sizes(NamedTuple):
    """What a job's user submitted, and what rlalloc made of it."""

    asked: Allocation
    applied: Allocation
    was_taken_back: bool = False
    """The journal says so; slurmctld may have forgotten it, if it was killed."""


class WaitsOfOurs:
    """Looks at all pending jobs in each cycle, however long ago they were let go.

    What was decided for a job is read from the store once, and a job that waits for nodes is looked at again only
    where the nodes or reservations have changed.
    """

    def __init__(self, store: Store, applier: Applier) -> None:
        self._store = store
        self._applier = applier
        self._sizes: dict[JobKey, _Sizes | None] = {}
        self._fits: dict[JobKey, object] = {}
        self._passed_over_since_s: dict[JobKey, float] = {}
        self._free: dict[int, bool] = {}
        """For each pending job of the last cycle: whether only slurmctld can hold it now for its CPUs per task."""
        self._to_release: set[JobKey] = set()
        self._stays: dict[JobKey, tuple[float, _Seen]] = {}
        """Jobs that could not be taken back: until when they are left, unless what was seen of them changes."""

    def forget(self, jobs: Collection[JobKey]) -> None:
        """Read again what was decided for these jobs: there is a new decision."""
        for key in jobs:
            self._sizes.pop(key, None)
            self._fits.pop(key, None)
            self._passed_over_since_s.pop(key, None)
            self._stays.pop(key, None)

    def give_back(self, snapshot: Snapshot, interval_s: float) -> None:
        """Give jobs their requests back that wait by our doing. Raises SlurmError, StoreError.

        ``interval_s`` is for how long a job may be passed over that its request might have started.
        """
        self._release(snapshot.jobs)
        waiting = self._waiting(snapshot.jobs)
        held_by_slurm = {key for key, job in waiting.items() if job.array_job_id and self._is_held_by_slurm(job)}
        self._free = {
            job.job_id: _is_free(job) or self._is_held_by_slurm(job) for job in snapshot.jobs if job.pending
        }
        self._read_sizes(waiting)
        resized = [
            (key, job, sizes)
            for key, job in waiting.items()
            if (sizes := self._sizes[key]) is not None and _has_ours(job, sizes)
        ]
        self._passed_over_since_s = {
            key: self._passed_over_since_s.get(key, snapshot.taken_s)
            for key, job, sizes in resized
            if _is_passed_over(job, sizes, snapshot.site)
        }
        left = {key for key, job, _ in resized if self._is_left(key, job, snapshot.taken_s)}
        tried = [each for each in resized if each[0] not in left]
        by_us = self._by_our_doing(tried, snapshot.site, interval_s) if tried else ()
        found = dict(itertools.islice(by_us, _MOST_IN_A_CYCLE))
        if not found:
            return
        decided_as = {key: _decided_as(waiting[key]) for key in found}
        histories = self._store.histories(set(decided_as.values()))
        self._to_release |= held_by_slurm & found.keys()  # before: the restoration may be finished in a later cycle
        entries = self._applier.take_back_all(
            [(key[0], histories[decided_as[key]], why) for key, why in found.items() if decided_as[key] in histories]
        )
        taken_back = {entry.job_id for entry in entries}
        self.forget([key for key in found if key[0] in taken_back])
        again_s = snapshot.taken_s + _TRIED_AGAIN_AFTER_S
        self._stays |= {key: (again_s, _seen(waiting[key])) for key in found if key[0] not in taken_back}

    def _release(self, jobs: Sequence[JobRecord]) -> None:
        """Release the jobs that slurmctld holds for a size that they no longer have."""
        unfinished = self._applier.open_jobs
        held = {(job.job_id, job.submitted_s): job for job in jobs if job.pending and job.reason == _HELD}
        self._to_release &= held.keys()
        for key in sorted(self._to_release):
            is_back = key[0] not in unfinished and not lacks_cpus(held[key])
            if is_back and not self._applier.release(held[key]):
                self._to_release.discard(key)

    def _waiting(self, jobs: Sequence[JobRecord]) -> dict[JobKey, JobRecord]:
        unfinished = self._applier.open_jobs
        return {
            (job.job_id, job.submitted_s): job
            for job in jobs
            if job.pending
            and (job.reason in _FOR_NODES or is_of_a_size(job.reason) or has_conflicting_cpus(job))
            and unfinished.isdisjoint((job.job_id, job.base_id))
            and read_tag(job.admin_comment) is not None
        }

    def _is_held_by_slurm(self, job: JobRecord) -> bool:
        """Whether slurmctld holds a task that no node can hold, with the reason of an administrator's hold."""
        was_free = self._free.get(job.job_id, self._free.get(job.base_id, False))
        return job.reason == _HELD and lacks_cpus(job) and was_free

    def _is_left(self, key: JobKey, job: JobRecord, now_s: float) -> bool:
        """Whether a job like this could not be taken back before, so that its size is not ours alone."""
        again_s, seen = self._stays.get(key, (0.0, None))
        return now_s < again_s and seen == _seen(job)

    def _read_sizes(self, waiting: Mapping[JobKey, JobRecord]) -> None:
        for key in self._sizes.keys() - waiting.keys():
            self._sizes.pop(key)
            self._fits.pop(key, None)
            self._stays.pop(key, None)
        new = [key for key in waiting if key not in self._sizes]
        if not new:
            return
        self._sizes |= dict.fromkeys(new)
        decided_as = [(key, _decided_as(waiting[key])) for key in new]
        decided = {
            (job.job_id, int(job.submitted_s)): job
            for job in self._store.sizes.of([job_id for _, (job_id, _) in decided_as])
        }
        for key, base in decided_as:
            if (job := decided.get(base)) is None:
                continue
            applied = job.applied
            taken_back = applied is None and any(undone.state == "restored" for undone in job.undone)
            if taken_back or (waiting[key].is_own_task and job.mode == "enforce"):
                applied = job.decided  # its own fields tell whether it has this size
            if applied is not None and applied != job.asked:
                self._sizes[key] = _Sizes(job.asked, applied, taken_back)

    def _by_our_doing(
        self, resized: Sequence[tuple[JobKey, JobRecord, _Sizes]], site: SiteView, interval_s: float
    ) -> Iterator[tuple[JobKey, str]]:
        for key, job, sizes in resized:
            if may_be_ours(job.reason, sizes.asked, sizes.applied):
                yield key, f"it waits for {job.reason}"
            elif has_conflicting_cpus(job):
                yield key, "its CPUs were changed and do not go with its size"
            elif job.reason in _FOR_NODES and (why := self._why_no_nodes(key, job, sizes, site)):
                yield key, f"it waits for {job.reason}: {why}; its request would fit"
            elif (since_s := self._passed_over_since_s.get(key)) is not None and (
                site.now_s - since_s > interval_s or _conflicts(job, sizes)
            ):
                chosen = sizes.applied.gpu_type
                passed = "its request fits what is free"
                if chosen is not None:
                    passed = f"it did not start on {chosen.name} at once"
                yield key, f"it waits for {job.reason}, and {passed}"

    def _why_no_nodes(self, key: JobKey, job: JobRecord, sizes: _Sizes, site: SiteView) -> str:
        """Why no nodes hold the decided size though some hold the request; an empty string otherwise."""
        open_nodes = site.open_nodes
        seen = open_nodes.state_for(sizes.asked), open_nodes.state_for(sizes.applied)
        if self._fits.get(key) == seen:
            return ""
        why = open_nodes.why_not(job, sizes.applied)
        if why and not open_nodes.why_not(as_submitted(job, sizes.applied), sizes.asked):
            return why
        self._fits[key] = seen
        return ""


def _decided_as(job: JobRecord) -> JobKey:
    """The key under which a job was decided: an array is one decision."""
    return job.base_id, job.submitted_s


def _seen(job: JobRecord) -> _Seen:
    """What decides whether a job can be taken back, and why it is to be."""
    return is_of_a_size(job.reason), job.time_limit_s, job.excluded_nodes, job.required_nodes, job.fields


def _has_ours(job: JobRecord, sizes: _Sizes) -> bool:
    """Whether a job still has the size that it was given, where the journal alone does not tell."""
    if job.is_own_task:
        return has_size(job, sizes.applied) or has_part_of(job, sizes.asked, sizes.applied)
    return not sizes.was_taken_back or has_size(job, sizes.applied)


def _is_free(job: JobRecord) -> bool:
    """Whether nobody holds a pending job whose tasks have enough CPUs, or only slurmctld does."""
    return job.reason == _HELD_BY_SLURM or not (job.held or lacks_cpus(job))


def _is_passed_over(job: JobRecord, sizes: _Sizes, site: SiteView) -> bool:
    """Whether a job waits in the queue though its request fits what is free, in a size that does not or is longer.

    A job for which Slurm finds no nodes is passed over in any size, unless its request would meet a reservation, too.
    One for which a type was chosen was to start at once, and may be passed over at any moment. A requeued job that
    Slurm passes over for others keeps its size as long as some nodes can hold it.
    """
    if sizes.applied.gpu_type is not None:
        return True
    in_queue = job.reason in _IN_QUEUE
    if job.restarts and in_queue:
        return False
    if job.reason not in _FOR_NODES or (in_queue and not _asks_for_more(sizes.asked, sizes.applied)):
        return False
    free = site.free_parts
    if not in_queue:
        reserved = site.open_nodes.reserved_until(site.now_s + sizes.asked.time_limit_s)
        return not next(free.unfit(job, sizes.asked, reserved), "")
    if next(free.unfit(job, sizes.asked), ""):
        return False
    longer = sizes.applied.time_limit_s > sizes.asked.time_limit_s
    return longer or bool(next(free.unfit(job, sizes.applied), ""))


def _conflicts(job: JobRecord, sizes: _Sizes) -> bool:
    """Whether Slurm finds no nodes for a job whose CPUs, and nothing else, somebody has changed since its update.

    An update that Slurm refuses may change them, too: ``NumNodes=2`` for one task leaves NumCPUs doubled.
    """
    if job.reason in _IN_QUEUE:
        return False
    changed = contradictions(job, sizes.applied).keys()
    return bool(changed) and changed <= CPUS_THAT_COME_BACK


def _asks_for_more(asked: Allocation, applied: Allocation) -> bool:
    """Whether the applied size takes more of anything, time included."""
    counts = (
        (each.nodes, each.gpus_per_node, each.cpus_per_node, each.mem_mib_per_node, each.time_limit_s)
        for each in (asked, applied)
    )
    return any(more > less for less, more in zip(*counts, strict=True))
