"""What became of decided jobs: sacct's records joined with decisions, and their reward."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rlalloc.heuristics import PriceConstants
from rlalloc.reward import Consequence, reward
from rlalloc.store import Application, Decision, JobHistory, Outcome
from rlallocd.decide import executed_shares
from rlallocd.slurm import AccountingRecord

ENDED: Final = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"),
        *("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
    }
)
_TELLS_OF_THE_SIZE: Final = frozenset({"COMPLETED", "TIMEOUT", "OUT_OF_MEMORY"})
"""States that say something of the decision. A job that its user cancelled or whose program failed does not."""
_KILLED_FOR_ITS_SIZE: Final = frozenset({"TIMEOUT", "OUT_OF_MEMORY"})
_RUN_AGAIN: Final = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})
"""What slurmdbd keeps of a run after which the job went back into the queue."""


def outcomes_of(
    decisions: Sequence[Decision],
    applications: Mapping[str, Sequence[Application]],
    records: Sequence[AccountingRecord],
    price: PriceConstants,
) -> tuple[Outcome, ...]:
    """Outcomes of jobs that have ended; the last run counts where a job was requeued.

    ``decisions`` are all those of each job, oldest first. Its outcome belongs to the one in force when it started.

    An array has one decision and so one outcome, once all its tasks have ended: from the first start to the last end,
    the size of one task, the largest memory peak of any, the energy of all, the mean of the tasks' rewards, and the
    state that tells most of the size (else the first that is not COMPLETED).
    """
    by_job: defaultdict[int, list[AccountingRecord]] = defaultdict(list)
    for record in records:
        by_job[record.job_id].append(record)
    found = []
    for decision in _in_force(decisions, applications):
        parts = _last_runs(by_job[decision.job_id], int(decision.submitted_s))
        if parts and all(part.state in ENDED and part.ended_s is not None for part in parts):
            applied = any(application.state == "begun" for application in applications.get(decision.id, ()))
            found.append(_outcome(decision, parts, price, applied=applied))
    return tuple(found)


def _last_runs(records: Sequence[AccountingRecord], submitted_s: int) -> list[AccountingRecord]:
    """The last run of each part of the job that was submitted then; Slurm may have used its id for others, too.

    A requeue leaves a record behind that says so, and makes a new one, submitted at that moment.
    """
    runs: dict[str, AccountingRecord] = {}
    for record in sorted(records, key=lambda record: record.submitted_s):
        before = runs.get(record.part)
        if record.submitted_s == submitted_s or (before is not None and before.state in _RUN_AGAIN):
            runs[record.part] = record
    return list(runs.values())


def _in_force(decisions: Sequence[Decision], applications: Mapping[str, Sequence[Application]]) -> Iterator[Decision]:
    jobs: defaultdict[tuple[int, float], list[Decision]] = defaultdict(list)
    for decision in decisions:
        jobs[decision.job_id, decision.submitted_s].append(decision)
    for mine in jobs.values():
        journal = sorted((each for one in mine for each in applications.get(one.id, ())), key=lambda each: each.id)
        yield JobHistory(decisions=tuple(mine), applications=tuple(journal)).in_force


def _outcome(
    decision: Decision, parts: Sequence[AccountingRecord], price: PriceConstants, *, applied: bool
) -> Outcome:
    worst = max(parts, key=lambda part: (part.state in _KILLED_FOR_ITS_SIZE, part.state != "COMPLETED"))
    rewards = [value for part in parts if (value := _reward(decision, part, price, applied=applied)) is not None]
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
        reward=sum(rewards) / len(rewards) if rewards else None,
    )


def _least(times_s: Iterable[int | None]) -> int | None:
    return min((time_s for time_s in times_s if time_s is not None), default=None)


def _sum(energies_j: Iterable[float | None]) -> float | None:
    known = [energy_j for energy_j in energies_j if energy_j is not None]
    return sum(known) if known else None


def _reward(decision: Decision, record: AccountingRecord, price: PriceConstants, *, applied: bool) -> float | None:
    share = decision.dominant_share_allocated if applied else decision.dominant_share_requested
    if (
        record.state not in _TELLS_OF_THE_SIZE
        or record.started_s is None
        or record.ended_s is None
        or share is None
        or decision.queued is None
        or decision.reference_s is None
    ):
        return None
    consequence = Consequence(
        state=record.state,
        wait_s=max(0.0, record.started_s - decision.decided_s),
        run_time_s=record.ended_s - record.started_s,
        dominant_share=share,
        queued=decision.queued,
        reference_s=decision.reference_s,
    )
    return reward(consequence, price)
