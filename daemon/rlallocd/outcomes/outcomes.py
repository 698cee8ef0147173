"""Outcomes of decided jobs: sacct's records joined with decisions, and their rewards."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from rlalloc.config import ObjectiveSection
from rlalloc.errors import PluginError
from rlalloc.job import Allocation
from rlalloc.past_job import ENDED_STATES
from rlalloc.store import Decision, JobHistory, Outcome
from rlallocd.decisions.decisions import executed_shares
from rlallocd.outcomes.ends_of_ours import our_doing
from rlallocd.outcomes.outcome_costs import costs_of_run, mean_costs, reward_of
from rlallocd.slurm import AccountingRecord

_DEPENDS_ON_SIZE: Final = frozenset({"COMPLETED", "TIMEOUT", "OUT_OF_MEMORY"})
"""States that depend on the decision. A cancelled job, or one whose program failed, says nothing about it, unless
that was our doing (``rlallocd.outcomes.ends_of_ours``)."""
_KILLED_FOR_ITS_SIZE: Final = frozenset({"TIMEOUT", "OUT_OF_MEMORY"})
RUN_AGAIN: Final = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})
"""States in slurmdbd of a run after which the job went back into the queue."""
_CHANGES_SIZE: Final = "RESIZING"
"""State in slurmdbd of a run that goes on in another record, because its user gave nodes back (scontrol update)."""


def outcomes_of(
    jobs: Iterable[JobHistory],
    records: Sequence[AccountingRecord],
    objective: ObjectiveSection,
    plugin_failed: Callable[[PluginError], None],
) -> tuple[Outcome, ...]:
    """Outcomes of those ``jobs`` that have ended; the last run counts where a job was requeued.

    A job's outcome belongs to the decision in force when it started.

    An array has one decision and so one outcome, once all its tasks have ended: from the first start to the last end,
    the size of one task, the largest memory peak of any, the energy of all, the mean of the tasks' costs, and the
    state that depends most on the size (else the first that is not COMPLETED).

    What a requeued job's earlier runs cost is no cost of its size: it has no reward.

    ``plugin_failed`` is called where a plug-in's term fails; its value is then unknown.
    """
    by_job: defaultdict[int, list[AccountingRecord]] = defaultdict(list)
    for record in records:
        by_job[record.job_id].append(record)
    found = []
    for job in jobs:
        decision = job.in_force
        runs = _last_runs(by_job[decision.job_id], int(decision.submitted_s))
        parts = [_with_gpus(run, job.size) for run in runs]
        if parts and all(part.state in ENDED_STATES and part.ended_s is not None for part in parts):
            # slurmctld may have forgotten an update (docs/explanation/transactions.md).
            in_vain = all(decision.was_in_vain(part.nodes, part.cpus, part.gpus, part.mem_mib) for part in parts)
            found.append(_outcome(decision, parts, objective, plugin_failed, applied=job.applied and not in_vain))
    return tuple(found)


def _last_runs(records: Sequence[AccountingRecord], submitted_s: int) -> list[AccountingRecord]:
    """The last run of each part of the job that was submitted then; Slurm may have used its id for others, too.

    A requeue leaves a record behind that says so, and makes a new one, submitted at that moment. The same happens
    when a user gives nodes of a running job back. The size at the job's start counts then.
    """
    runs: dict[str, AccountingRecord] = {}
    for record in sorted(records, key=lambda record: record.submitted_s):
        before = runs.get(record.part)
        if before is not None and before.state == _CHANGES_SIZE:
            runs[record.part] = _going_on(before, record)
        elif before is not None and before.state in RUN_AGAIN:
            runs[record.part] = msgspec.structs.replace(record, ran_before=True)
        elif record.submitted_s == submitted_s:
            runs[record.part] = record
    return list(runs.values())


def _with_gpus(run: AccountingRecord, size: Allocation) -> AccountingRecord:
    """The same run with the GPUs of its ``size`` where it held nodes and Slurm accounts no GPUs (or shards)."""
    return run if run.gpus or not run.nodes else msgspec.structs.replace(run, gpus=size.gpus)


def _going_on(before: AccountingRecord, record: AccountingRecord) -> AccountingRecord:
    """A run that changed its size, as one record: its first size and times, and the end of the later record."""
    return msgspec.structs.replace(
        record,
        eligible_s=before.eligible_s,
        started_s=before.started_s,
        nodes=before.nodes,
        cpus=before.cpus,
        gpus=before.gpus,
        mem_mib=before.mem_mib,
        changed_size=True,
    )


def _outcome(
    decision: Decision,
    parts: Sequence[AccountingRecord],
    objective: ObjectiveSection,
    plugin_failed: Callable[[PluginError], None],
    *,
    applied: bool,
) -> Outcome:
    ours = {part.part: None if part.changed_size else our_doing(decision, part, applied=applied) for part in parts}
    worst = max(
        parts,
        key=lambda part: (
            ours[part.part] is not None,
            part.state in _KILLED_FOR_ITS_SIZE,
            part.state != "COMPLETED",
        ),
    )
    telling = [
        part
        for part in parts
        if not (part.changed_size or part.ran_before) and (part.state in _DEPENDS_ON_SIZE or ours[part.part])
    ]
    costs = mean_costs(
        [
            known
            for part in telling
            if (known := costs_of_run(decision, part, objective, plugin_failed, ours[part.part], applied=applied))
            is not None
        ]
    )
    return Outcome(
        decision_id=decision.id,
        state=worst.state,
        exit_code=worst.exit_code,
        eligible_s=_least(part.eligible_s for part in parts),
        started_s=_least(part.started_s for part in parts),
        ended_s=max(part.ended_s or 0 for part in parts),
        nodes=max(part.nodes for part in parts),
        gpus=max(part.gpus for part in parts),
        cpus=max(part.cpus for part in parts),
        mem_mib=max(part.mem_mib for part in parts),
        max_rss_mib=max((part.max_rss_mib for part in parts if part.max_rss_mib is not None), default=None),
        consumed_energy_j=_sum(part.consumed_energy_j for part in parts),
        executed_shares=executed_shares(decision, applied=applied),
        reward=reward_of(costs, objective) if costs is not None else None,
        cpu_s_used=_sum(part.cpu_s_used for part in parts),
        mem_mib_used=max((part.mem_mib_used for part in parts if part.mem_mib_used is not None), default=None),
        costs=costs,
        our_doing=ours[worst.part],
    )


def _least(times_s: Iterable[int | None]) -> int | None:
    return min((time_s for time_s in times_s if time_s is not None), default=None)


def _sum(energies_j: Iterable[float | None]) -> float | None:
    known = [energy_j for energy_j in energies_j if energy_j is not None]
    return sum(known) if known else None
