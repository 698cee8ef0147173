"""What became of decided jobs: sacct's records joined with decisions, and their reward."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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


def outcomes_of(
    decisions: Sequence[Decision],
    applications: Mapping[str, Sequence[Application]],
    records: Sequence[AccountingRecord],
    price: PriceConstants,
) -> tuple[Outcome, ...]:
    """Outcomes of jobs that have ended; the last record counts where a job was requeued.

    ``decisions`` are all those of each job, oldest first. Its outcome belongs to the one in force when it started.
    """
    ended = {(record.job_id, record.submitted_s): record for record in records if record.state in ENDED}
    found = []
    for decision in _in_force(decisions, applications):
        record = ended.get((decision.job_id, int(decision.submitted_s)))
        if record is not None and record.ended_s is not None:
            applied = any(application.state == "begun" for application in applications.get(decision.id, ()))
            found.append(_outcome(decision, record, record.ended_s, price, applied=applied))
    return tuple(found)


def _in_force(decisions: Sequence[Decision], applications: Mapping[str, Sequence[Application]]) -> Iterator[Decision]:
    jobs: defaultdict[tuple[int, float], list[Decision]] = defaultdict(list)
    for decision in decisions:
        jobs[decision.job_id, decision.submitted_s].append(decision)
    for mine in jobs.values():
        journal = sorted((each for one in mine for each in applications.get(one.id, ())), key=lambda each: each.id)
        yield JobHistory(decisions=tuple(mine), applications=tuple(journal)).in_force


def _outcome(
    decision: Decision, record: AccountingRecord, ended_s: float, price: PriceConstants, *, applied: bool
) -> Outcome:
    return Outcome(
        decision_id=decision.id,
        state=record.state,
        exit_code=record.exit_code,
        eligible_s=record.eligible_s,
        started_s=record.started_s,
        ended_s=ended_s,
        nodes=record.nodes,
        gpus=record.gpus,
        cpus=record.cpus,
        mem_mib=record.mem_mib,
        max_rss_mib=record.max_rss_mib,
        consumed_energy_j=record.consumed_energy_j,
        executed_shares=executed_shares(decision, applied=applied),
        reward=_reward(decision, record, ended_s, price, applied=applied),
    )


def _reward(
    decision: Decision, record: AccountingRecord, ended_s: float, price: PriceConstants, *, applied: bool
) -> float | None:
    share = decision.dominant_share_allocated if applied else decision.dominant_share_requested
    if (
        record.state not in _TELLS_OF_THE_SIZE
        or record.started_s is None
        or share is None
        or decision.queued is None
        or decision.reference_s is None
    ):
        return None
    consequence = Consequence(
        state=record.state,
        wait_s=max(0.0, record.started_s - decision.decided_s),
        run_time_s=ended_s - record.started_s,
        dominant_share=share,
        queued=decision.queued,
        reference_s=decision.reference_s,
    )
    return reward(consequence, price)
