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

A job that somebody has moved into a reservation gets its request back at once: like all jobs in a reservation, it
runs as submitted.

Where somebody has changed a job's CPUs so that those of a node's tasks are not those of the node, the job gets its
request back whatever it waits for, and if it is held, too. If the tasks ask for fewer than the node is to have, Slurm
may find no node. If they ask for more, the job starts with fewer (22.05, 24.11), and only the TaskProlog keeps its
srun from waiting for the missing CPUs.

slurmctld holds a job that no node can hold: BadConstraints, with priority 0. An update of the job ends this hold. But
once a task held in this way waits for others of its array, slurmctld shows the hold as an administrator's
(job_independent, then _job_runnable_test1). The cycle before tells them apart: if slurmctld holds the task, it was
not held then, or for BadConstraints. Such a task also gets its request back, and is then released.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from rlalloc.job import Allocation
from rlalloc.late_decisions import asks_for_more
from rlalloc.store import Store
from rlallocd.cluster.node_pools import NodePools, asked_by, free_parts
from rlallocd.decisions.decisions import Snapshot
from rlallocd.decisions.type_choices import as_submitted
from rlallocd.limits import SiteView, is_of_a_size, may_be_ours
from rlallocd.slurm import JobRecord, NodeRecord, RequestFields
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
    asks_for_more: bool
    """Whether the applied size takes more of anything, time included."""
    was_taken_back: bool = False
    """The journal says so; slurmctld may have forgotten it, if it was killed."""


class _Kind(msgspec.Struct, eq=False, weakref=True):
    """Jobs that wait alike: for the same reason, with the same sizes, and for the same nodes."""

    job: JobRecord
    """One of them."""
    sizes: _Sizes
    passed_over: bool = False
    no_nodes: str = ""
    """Why no nodes hold the decided size though some hold the request."""
    seen: object = None
    """The state of nodes and reservations when nodes were last looked for."""

    def look_at(self, site: SiteView, free: NodePools) -> None:
        """Find out whether such jobs are passed over now, and whether there are nodes for them."""
        job, sizes, open_nodes = self.job, self.sizes, site.open_nodes
        self.passed_over = _is_passed_over(job, sizes, site, free)
        seen = open_nodes.state_for(sizes.asked), open_nodes.state_for(sizes.applied)
        if job.reason in _FOR_NODES and seen != self.seen:
            why = open_nodes.why_not(job, sizes.applied)
            fits_as_asked = why and not open_nodes.why_not(as_submitted(job, sizes.applied), sizes.asked)
            self.no_nodes, self.seen = why if fits_as_asked else "", seen


class _Waiting(msgspec.Struct):
    """A job that may wait by our doing, and what was found since it began to wait, or since its last decision.

    ``kind`` is None if the job does not have a size of ours.
    """

    job: JobRecord
    sizes: _Sizes | None = None
    kind: _Kind | None = None
    why: str = ""
    """Why the job is to get its request back whatever nodes there are; empty if it is not."""
    passed_over_since_s: float | None = None
    stays: tuple[float, _Seen] | None = None
    """If the job could not be taken back: until when it is left alone, unless what was seen of it changes."""

    def is_left(self, now_s: float) -> bool:
        """Whether a job like this could not be taken back before, so that its size is not ours alone."""
        return self.stays is not None and now_s < self.stays[0] and self.stays[1] == _seen(self.job)


class WaitsOfOurs:
    """Looks at all pending jobs in each cycle, however long ago they were let go.

    What was decided for a job is read from the store once. What follows from the job's record is computed again
    only if the record has changed. What follows from the nodes is computed once for all jobs that wait alike.
    """

    def __init__(self, store: Store, applier: Applier) -> None:
        self._store = store
        self._applier = applier
        self._waiting: dict[int, _Waiting] = {}
        self._kinds: WeakValueDictionary[tuple[object, ...], _Kind] = WeakValueDictionary()
        self._pending: dict[int, JobRecord] = {}
        """The pending jobs of the last cycle."""
        self._held_by_slurm: set[int] = set()
        """Those of the pending jobs that only slurmctld held, for their CPUs per task."""
        self._to_release: set[JobKey] = set()
        self._nodes: tuple[NodeRecord, ...] = ()
        self._free = free_parts(())

    def forget(self, jobs: Collection[JobKey]) -> None:
        """Read again what was decided for these jobs: there is a new decision."""
        for job_id, _ in jobs:
            self._waiting.pop(job_id, None)

    def give_back(self, snapshot: Snapshot, interval_s: float) -> None:
        """Give jobs their requests back that wait by our doing. Raises SlurmError, StoreError.

        ``interval_s`` is for how long a job may be passed over that its request might have started.
        """
        now_s = snapshot.taken_s
        pending = {job.job_id: job for job in snapshot.jobs if job.pending}
        self._release(pending.values())
        self._held_by_slurm = {
            job_id for job_id, job in pending.items() if job.reason == _HELD and self._is_held_by_slurm(job)
        }
        self._pending = pending
        self._waiting = self._look_at(pending)
        if self._kinds and snapshot.nodes is not self._nodes:  # nodes are not read in each cycle
            self._nodes, self._free = snapshot.nodes, free_parts(snapshot.nodes)
        for kind in self._kinds.values():
            kind.look_at(snapshot.site, self._free)
        for each in self._waiting.values():
            if each.kind is None or not each.kind.passed_over:
                each.passed_over_since_s = None
            elif each.passed_over_since_s is None:
                each.passed_over_since_s = now_s
        found = list(itertools.islice(self._by_our_doing(now_s, interval_s), _MOST_IN_A_CYCLE))
        if not found:
            return
        histories = self._store.histories({_decided_as(each.job) for each, _ in found})
        self._to_release |= {  # before: the restoration may be finished in a later cycle
            (each.job.job_id, each.job.submitted_s)
            for each, _ in found
            if each.job.array_job_id and each.job.job_id in self._held_by_slurm
        }
        entries = self._applier.take_back_all(
            [
                (each.job.job_id, histories[base], why)
                for each, why in found
                if (base := _decided_as(each.job)) in histories
            ]
        )
        taken_back = {entry.job_id for entry in entries}
        again_s = now_s + _TRIED_AGAIN_AFTER_S
        for each, _ in found:
            if each.job.job_id in taken_back:
                del self._waiting[each.job.job_id]
            else:
                each.stays = again_s, _seen(each.job)

    def _release(self, pending: Iterable[JobRecord]) -> None:
        """Release the jobs that slurmctld holds for a size that they no longer have."""
        if not self._to_release:
            return
        unfinished = self._applier.open_jobs
        held = {(job.job_id, job.submitted_s): job for job in pending if job.reason == _HELD}
        self._to_release &= held.keys()
        for key in sorted(self._to_release):
            is_back = key[0] not in unfinished and not lacks_cpus(held[key])
            if is_back and not self._applier.release(held[key]):
                self._to_release.discard(key)

    def _is_held_by_slurm(self, job: JobRecord) -> bool:
        """Whether slurmctld itself holds a job with the reason of an administrator's hold, as no node can hold it."""
        before = self._pending.get(job.job_id, self._pending.get(job.base_id))
        was_free = before is not None and (_is_free(before) or before.job_id in self._held_by_slurm)
        return was_free and lacks_cpus(job)

    def _look_at(self, pending: Mapping[int, JobRecord]) -> dict[int, _Waiting]:
        """The jobs that may wait by our doing, as they are now."""
        unfinished = self._applier.open_jobs
        waiting, new = {}, []
        for job_id, job in pending.items():
            if not unfinished.isdisjoint((job_id, job.base_id)):
                continue
            each = self._waiting.get(job_id)
            if each is None or each.job != job:
                if not _may_wait_by_our_doing(job):
                    continue
                if each is None or each.job.submitted_s != job.submitted_s:
                    each = _Waiting(job)
                    new.append(each)
                else:
                    self._see(each, job)
            waiting[job_id] = each
        self._read_sizes(new)
        return waiting

    def _see(self, each: _Waiting, job: JobRecord) -> None:
        """Find out what follows from the record of a job."""
        each.job, each.kind, sizes = job, None, each.sizes
        if sizes is None or not _has_ours(job, sizes):
            return
        each.why = _why_at_once(job, sizes)
        alike = job.reason, job.restarts > 0, job.partition, asked_by(job), job.required_nodes, sizes
        each.kind = self._kinds.get(alike)
        if each.kind is None:
            self._kinds[alike] = each.kind = _Kind(job, sizes)

    def _read_sizes(self, new: Sequence[_Waiting]) -> None:
        if not new:
            return
        decided = {
            (job.job_id, int(job.submitted_s)): job
            for job in self._store.sizes.of([each.job.base_id for each in new])
        }
        for each in new:
            if (job := decided.get(_decided_as(each.job))) is None:
                continue
            applied = job.applied
            taken_back = applied is None and any(undone.state == "restored" for undone in job.undone)
            if taken_back or (each.job.is_own_task and job.mode == "enforce"):
                applied = job.decided  # its own fields tell whether it has this size
            if applied is not None and applied != job.asked:
                each.sizes = _Sizes(job.asked, applied, asks_for_more(job.asked, applied), taken_back)
                self._see(each, each.job)

    def _by_our_doing(self, now_s: float, interval_s: float) -> Iterator[tuple[_Waiting, str]]:
        for each in self._waiting.values():
            job, kind, since_s = each.job, each.kind, each.passed_over_since_s
            if kind is None or each.is_left(now_s):
                continue
            if each.why:
                yield each, each.why
            elif kind.no_nodes:
                yield each, f"it waits for {job.reason}: {kind.no_nodes}; its request would fit"
            elif since_s is not None and (now_s - since_s > interval_s or _conflicts(job, kind.sizes)):
                chosen = kind.sizes.applied.gpu_type
                passed = "its request fits what is free"
                if chosen is not None:
                    passed = f"it did not start on {chosen.name} at once"
                yield each, f"it waits for {job.reason}, and {passed}"


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


def _may_wait_by_our_doing(job: JobRecord) -> bool:
    may_be = job.reason in _FOR_NODES or is_of_a_size(job.reason) or has_conflicting_cpus(job) or job.reservation
    return bool(may_be) and read_tag(job.admin_comment) is not None


def _why_at_once(job: JobRecord, sizes: _Sizes) -> str:
    """Why a job is to get its request back whatever nodes there are; an empty string otherwise."""
    if may_be_ours(job.reason, sizes.asked, sizes.applied):
        return f"it waits for {job.reason}"
    if job.reservation:
        return f"it was moved into reservation {job.reservation}, whose jobs run as submitted"
    return "its CPUs were changed and do not go with its size" if has_conflicting_cpus(job) else ""


def _is_passed_over(job: JobRecord, sizes: _Sizes, site: SiteView, free: NodePools) -> bool:
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
    if job.reason not in _FOR_NODES or (in_queue and not sizes.asks_for_more):
        return False
    if not in_queue:
        reserved = site.open_nodes.reserved_until(site.now_s + sizes.asked.time_limit_s)
        return free.fits(job, sizes.asked, reserved)
    longer = sizes.applied.time_limit_s > sizes.asked.time_limit_s
    return free.fits(job, sizes.asked) and (longer or not free.fits(job, sizes.applied))


def _conflicts(job: JobRecord, sizes: _Sizes) -> bool:
    """Whether Slurm finds no nodes for a job whose CPUs, and nothing else, somebody has changed since its update.

    An update that Slurm refuses may change them, too: ``NumNodes=2`` for one task leaves NumCPUs doubled.
    """
    if job.reason in _IN_QUEUE:
        return False
    changed = contradictions(job, sizes.applied).keys()
    return bool(changed) and changed <= CPUS_THAT_COME_BACK
