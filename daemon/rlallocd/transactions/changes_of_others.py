"""What others changed of a job between our update and our reading of it. A restoration keeps it as far as possible.

Pure functions. A field is somebody else's if its value is neither what we sent nor what the request had before. A
restoration leaves such a field out. It cannot keep:

- NumNodes, NumTasks, TasksPerNode and NumCPUs: Slurm changes one together with another, and an update that it refuses
  half-way leaves values in them that nobody asked for.
- A value between ours and the request's: a site's job_submit plugin may have made it from ours, and the job would
  have less than it asked for.
- CPUs per task, unless there are more than in the request and in our size, and scontrol can repeat the request in its
  own terms.
- GPUs per node, if the request does not name them so.

All changes of others are taken as one intention: if one of them cannot be kept, none is, and the whole request comes
back.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from rlalloc.store import Application
from rlallocd.cluster.node_demands import names_in
from rlallocd.slurm import JobRecord, UpdatePlan
from rlallocd.transactions.journal_entries import added_nice, record_before, restoration_of, taking_back
from rlallocd.transactions.update_plans import clears_node_list, has_own_terms
from rlallocd.transactions.verification import (
    Verification,
    changed_by_others,
    has_size,
    has_type,
    verify_pending,
    verify_started,
)


class _Term(NamedTuple):
    """One value of a request: its fields in scontrol, its fields in the record, and the totals that follow."""

    sent: tuple[str, ...]
    fields: tuple[str, ...]
    totals: tuple[str, ...]


_MEMORY: Final = _Term(
    ("MinMemoryNode", "MinMemoryCPU"), ("mem_mib_per_node", "mem_mib_per_cpu", "mem_mib_per_gpu"), ("mem_mib",)
)
_TERMS: Final = {
    "CPUs per node": _Term(("MinCPUsNode",), ("min_cpus_per_node",), ("cpus",)),
    "CPUs per task": _Term(("CPUsPerTask",), ("cpus_per_task",), ("cpus",)),
    "MiB per node": _MEMORY,
    "MiB per CPU": _MEMORY,
    "GPUs per node": _Term(
        ("TresPerNode", "TresPerJob", "TresPerTask", "TresPerSocket"), ("tres_per_node", "gpus_per_node"), ("gpus",)
    ),
}
"""By the names of verification. Those of scontrol that others need not have changed are cleared by then."""


class Kept(NamedTuple):
    """What a restoration leaves as others set it: in words (``text``), and the fields of scontrol that are left out.

    ``record`` is what the job is to be afterwards: Slurm's record from before the update, with these changes.
    """

    text: str
    unsent: tuple[str, ...]
    record: JobRecord

    def left_out_of(self, plan: UpdatePlan) -> UpdatePlan:
        """The restoration ``plan`` of a whole request, without what is kept, with the NumCPUs that follow from it."""
        cpus = ("NumCPUs", str(self.record.fields.min_cpus))
        fields = (cpus if field[0] == cpus[0] and "MinCPUsNode" in self.unsent else field for field in plan.fields)
        return msgspec.structs.replace(plan, fields=tuple(fields)).without(*self.unsent)


def kept_changes(application: Application, job: JobRecord) -> Kept | None:
    """What to keep of a job that was read just now. None if nothing is kept: then the whole request comes back."""
    before = record_before(application)
    if before is None or not before.fields.reported or application.intended == application.original:
        return None
    if job.unread:  # its fields say nothing
        return None
    changed = changed_by_others(job, application.original, application.intended, before)
    if _is_raised(job, changed):
        del changed["CPUs"]
    if not all(_may_stay(name, value, others, before) for name, (value, others) in changed.items()):
        return None
    text = [f"{name} {value:.12g}" for name, (value, _) in changed.items()]
    terms = [_TERMS[name] for name in changed]
    unsent = [each for term in terms for each in term.sent]
    record = _with_changes(before, job, terms)
    if _others_excluded(application, job, before):
        text.append(f"excluded nodes {job.excluded_nodes or 'none'}")
        unsent.append("ExcNodeList")
        record = msgspec.structs.replace(record, excluded_nodes=job.excluded_nodes)
    if _others_required(application, job, before):
        text.append(f"required nodes {job.required_nodes or 'any'}")
        unsent.append("ReqNodeList")
    return Kept(", ".join(text), tuple(unsent), record) if unsent else None


def taking_back_kept(job: JobRecord, begun: Sequence[Application], why: str) -> Application | None:
    """The entry that takes back all updates of a job that was read just now (``taking_back``).

    Also where others have changed its size, if that can be kept; None if it cannot.
    """
    if (entry := taking_back(job, begun, why)) is not None:
        return entry
    entry = restoration_of(begun, why)
    return entry if kept_changes(entry, job) is not None else _keeping_least_cpus(entry, job)


def _keeping_least_cpus(entry: Application, job: JobRecord) -> Application | None:
    """An entry that sends a MinCPUsNode of others with the request, if they have changed nothing else.

    ``kept_changes`` keeps none between ours and the request's; here it was set after our size had been verified, so
    no plugin has made it from ours.
    """
    before, asked, ours = record_before(entry), job.fields, entry.intended
    own = msgspec.structs.replace(asked, min_cpus_per_node=ours.cpus_per_node, min_cpus=ours.cpus)
    as_applied = msgspec.structs.replace(job, fields=own, cpus=ours.cpus)
    if before is None or not has_own_terms(before) or not has_size(as_applied, ours):
        return None
    if asked.min_cpus != asked.min_cpus_per_node * asked.min_nodes:
        return None
    kept = _with_changes(before, job, [_TERMS["CPUs per node"]])
    return msgspec.structs.replace(entry, record=msgspec.json.encode(kept).decode())


def verify_kept(job: JobRecord, application: Application, kept: Kept) -> Verification:
    """Whether a pending job is as submitted, except for what is kept."""
    nice = added_nice(application)
    return verify_pending(job, application.original, application.intended, kept.record, nice)


def verify_kept_as_started(job: JobRecord, application: Application) -> Verification:
    """Likewise for a job that runs or has run. Where only a type was chosen, the nodes that it leaves out tell."""
    kept = kept_changes(application, job)
    before = record_before(application) if kept is None else kept.record
    found = verify_started(job, application.original, application.intended, before)
    if found.verdict == "as decided" and not has_type(job, application.intended):
        return Verification("as submitted", "")
    return found


def _may_stay(name: str, value: float, others: tuple[float, ...], before: JobRecord) -> bool:
    """Whether a restoration can keep a value that others set. ``others`` are those of our size and the request."""
    if name not in _TERMS or min(others) <= value <= max(others):
        return False
    if name == "CPUs per task":
        return value > max(others) and has_own_terms(before)
    if name == "GPUs per node":
        asked = before.fields
        return value > 0 and has_own_terms(before) and not (asked.tres_per_job or asked.tres_per_task)
    return True


def _is_raised(job: JobRecord, changed: Mapping[str, tuple[float, tuple[float, ...]]]) -> bool:
    """Whether Slurm itself raised NumCPUs to the least that a MinCPUsNode of others needs (seen on 22.05)."""
    if not {"CPUs", "CPUs per node"} <= changed.keys():
        return False
    return job.fields.min_cpus == job.fields.min_cpus_per_node * job.fields.min_nodes


def _with_changes(before: JobRecord, job: JobRecord, terms: list[_Term]) -> JobRecord:
    """The record ``before``, with these terms of the job as they are now, and the totals that follow from them."""
    names = {name for term in terms for name in term.fields}
    totals = {name for term in terms for name in term.totals}
    if "cpus" in totals and job.fields.mem_mib_per_cpu:
        totals.add("mem_mib")
    fields = {name: getattr(job.fields, name) for name in names}
    if "min_cpus_per_node" in fields:  # Slurm raises NumCPUs to what all nodes need at least
        fields["min_cpus"] = max(before.fields.min_cpus, job.fields.min_cpus_per_node * before.fields.min_nodes)
    return msgspec.structs.replace(
        before,
        fields=msgspec.structs.replace(before.fields, **fields),
        **{name: getattr(job, name) for name in totals},
    )


def _others_excluded(application: Application, job: JobRecord, before: JobRecord) -> bool:
    """Whether others set the excluded nodes: then the list has none of the nodes that we added for a type of GPU."""
    chosen = application.intended.gpu_type
    if chosen is None:
        return False
    now, ours, own = (names_in(nodes) for nodes in (job.excluded_nodes, chosen.excluded_nodes, before.excluded_nodes))
    if now is None or ours is None or own is None:
        return False
    return now != own and now.isdisjoint(ours - own)


def _others_required(application: Application, job: JobRecord, before: JobRecord) -> bool:
    """Whether others set the required nodes of a job whose request also names some."""
    if not before.required_nodes:
        return False
    sent = "" if clears_node_list(before, application.intended) else before.required_nodes
    return names_in(job.required_nodes) not in (names_in(sent), names_in(before.required_nodes))
