"""Which decision an outcome belongs to."""

import msgspec
import pytest

from rlalloc.config import ObjectiveSection
from rlalloc.job import Shares
from rlalloc.store import Application, ApplicationState, Decision, JobHistory
from rlallocd.decisions.decisions import executed_shares
from rlallocd.outcomes.outcomes import outcomes_of
from rlallocd.slurm import AccountingRecord
from tests.core.test_store import APPLICATION, DECISION, SIZE
from tests.plugin_failures import no_plugin_fails

AGAIN = msgspec.structs.replace(
    DECISION,
    id="d2",
    decided_s=DECISION.decided_s + 600,
    shares=Shares(0.5, 0.5, 0.5),
    dominant_share_allocated=0.125,
)
ENDED = AccountingRecord(
    job_id=7,
    part="",
    state="COMPLETED",
    exit_code="0:0",
    submitted_s=1000,
    eligible_s=1001,
    started_s=int(AGAIN.decided_s) + 10,
    ended_s=int(AGAIN.decided_s) + 110,
    nodes=1,
    cpus=32,
    gpus=2,
    mem_mib=1024,
    max_rss_mib=None,
    consumed_energy_j=None,
)


def _applied(number: int, decision: Decision, state: ApplicationState) -> Application:
    return msgspec.structs.replace(APPLICATION, id=number, decision_id=decision.id, state=state)


def _twice_decided(first: ApplicationState, second: ApplicationState) -> JobHistory:
    return JobHistory(
        decisions=(DECISION, AGAIN),
        applications=(_applied(1, DECISION, first), _applied(2, AGAIN, second)),
    )


def test_the_outcome_belongs_to_the_decision_in_force() -> None:
    (outcome,) = outcomes_of([_twice_decided("begun", "begun")], [ENDED], ObjectiveSection(), no_plugin_fails)
    assert (outcome.decision_id, outcome.executed_shares) == ("d2", AGAIN.shares)
    (earlier,) = outcomes_of([_twice_decided("begun", "restored")], [ENDED], ObjectiveSection(), no_plugin_fails)
    assert (earlier.decision_id, earlier.executed_shares) == ("d1", DECISION.shares)
    # The wait that counts is the one after the decision: ten minutes more for the first.
    assert outcome.reward is not None
    assert earlier.reward is not None
    assert outcome.reward > earlier.reward


@pytest.mark.parametrize("changed", [{"gpus_per_node": 4}, {"cpus_per_task": 16}, {"mem_mib_per_node": 512}])
def test_a_job_that_ran_as_submitted_after_all_is_no_resized_one(changed: dict[str, int]) -> None:
    """A slurmctld that was killed had forgotten the update."""
    request = msgspec.structs.replace(SIZE, gpus_per_node=8)
    decided = msgspec.structs.replace(request, **changed)
    decision = msgspec.structs.replace(DECISION, request=request, allocation=decided)
    job = JobHistory(decisions=(decision,), applications=(_applied(1, decision, "begun"),))
    for size in (decided, request):
        held = msgspec.structs.replace(
            ENDED, nodes=size.nodes, cpus=size.cpus, gpus=size.gpus, mem_mib=float(size.mem_mib)
        )
        (outcome,) = outcomes_of([job], [held], ObjectiveSection(), no_plugin_fails)
        as_decided = executed_shares(decision, applied=True), executed_shares(decision, applied=False)
        assert outcome.executed_shares == as_decided[size == request]
        assert as_decided[0] != as_decided[1]


def test_an_urgency_that_did_not_count_was_the_fullest() -> None:
    """The job kept its place, whatever its policy had answered."""
    plain = msgspec.structs.replace(DECISION, nice=None, patience_s=None)
    job = JobHistory(decisions=(plain,), applications=(_applied(1, plain, "begun"),))
    (outcome,) = outcomes_of([job], [ENDED], ObjectiveSection(), no_plugin_fails)
    assert plain.shares is not None
    assert plain.shares.urgency < 1.0
    assert outcome.executed_shares == msgspec.structs.replace(plain.shares, urgency=1.0)


def test_where_nothing_was_applied_it_is_the_first_with_the_request() -> None:
    (outcome,) = outcomes_of([_twice_decided("left", "lost")], [ENDED], ObjectiveSection(), no_plugin_fails)
    assert outcome.decision_id == "d1"
    assert outcome.executed_shares != DECISION.shares


def test_jobs_that_share_an_id_are_told_apart() -> None:
    other = msgspec.structs.replace(DECISION, id="d0", submitted_s=10, request=SIZE)
    jobs = [JobHistory(decisions=(decision,), applications=()) for decision in (other, DECISION)]
    found = outcomes_of(jobs, [ENDED], ObjectiveSection(), no_plugin_fails)
    assert [outcome.decision_id for outcome in found] == ["d1"]
