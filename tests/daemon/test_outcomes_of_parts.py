"""Outcomes of what Slurm runs in several parts: arrays, and jobs that were requeued. Pure."""

import msgspec
import pytest

from rlalloc.config import ObjectiveSection
from rlalloc.job import Allocation
from rlalloc.store import Decision, JobHistory
from rlallocd.outcomes.outcomes import outcomes_of
from rlallocd.slurm import AccountingRecord
from rlallocd.slurm.accounting import read_accounting
from tests.plugin_failures import no_plugin_fails

DECISION = Decision(
    id="d",
    job_id=7,
    submitted_s=100.0,
    decided_s=100.0,
    user="alice",
    account="llm",
    partition="gpu",
    job_name="a",
    job_class="train",
    rule="llm",
    mode="enforce",
    reason="",
    request=Allocation(
        nodes=1, gpus_per_node=2, tasks_per_node=1, cpus_per_task=4, mem_mib_per_node=1000, time_limit_s=600
    ),
    queued=0,
    dominant_share_requested=0.1,
    reference_s=100.0,
)
JOB = JobHistory(decisions=(DECISION,), applications=())
TASK = AccountingRecord(
    job_id=7,
    part="_1",
    state="COMPLETED",
    exit_code="0:0",
    submitted_s=100,
    eligible_s=100,
    started_s=110,
    ended_s=210,
    nodes=1,
    cpus=4,
    gpus=2,
    mem_mib=1000,
    max_rss_mib=300.0,
    consumed_energy_j=None,
)


def _task(**changes: object) -> AccountingRecord:
    return msgspec.structs.replace(TASK, **changes)


def _outcomes(*records: AccountingRecord) -> tuple[object, ...]:
    return outcomes_of([JOB], records, ObjectiveSection(), no_plugin_fails)


def test_an_array_has_one_outcome_once_all_its_tasks_have_ended() -> None:
    second = _task(part="_2", started_s=300, ended_s=500, max_rss_mib=500.0, consumed_energy_j=5.0)
    assert _outcomes(TASK, second, _task(part="_[3-9]", state="PENDING", started_s=None, ended_s=None)) == ()
    (alone,) = outcomes_of([JOB], [TASK], ObjectiveSection(), no_plugin_fails)
    (late,) = outcomes_of([JOB], [second], ObjectiveSection(), no_plugin_fails)
    (both,) = outcomes_of([JOB], [TASK, second], ObjectiveSection(), no_plugin_fails)
    assert (both.started_s, both.ended_s, both.gpus, both.max_rss_mib) == (110, 500, 2, 500.0)
    assert both.consumed_energy_j == 5.0
    assert alone.reward is not None
    assert late.reward is not None
    assert both.reward == pytest.approx((alone.reward + late.reward) / 2)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["COMPLETED", "FAILED", "OUT_OF_MEMORY"], "OUT_OF_MEMORY"),
        (["COMPLETED", "CANCELLED", "COMPLETED"], "CANCELLED"),
        (["TIMEOUT", "FAILED"], "TIMEOUT"),
    ],
)
def test_the_state_of_an_array_is_the_one_that_tells_most(states: list[str], state: str) -> None:
    (found,) = outcomes_of(
        [JOB],
        [_task(part=f"_{number}", state=each) for number, each in enumerate(states)],
        ObjectiveSection(),
        no_plugin_fails,
    )
    assert found.state == state


@pytest.mark.parametrize("state", ["REQUEUED", "PREEMPTED", "NODE_FAIL"])
def test_of_a_requeued_job_the_last_run_counts(state: str) -> None:
    """It has no reward: its first run and Slurm's delay of a requeue are no wait that its size has cost."""
    first = _task(part="", state=state)
    assert _outcomes(first, _task(part="", submitted_s=210, state="PENDING", started_s=None, ended_s=None)) == ()
    (found,) = outcomes_of(
        [JOB],
        [first, _task(part="", submitted_s=210, started_s=400, ended_s=450)],
        ObjectiveSection(),
        no_plugin_fails,
    )
    assert (found.state, found.started_s, found.ended_s, found.reward) == ("COMPLETED", 400, 450, None)


def test_gpus_that_slurm_does_not_account_are_those_of_the_size() -> None:
    """AccountingStorageTRES lacks gres/gpu: a run would seem to hold no GPUs, and its reward would count none."""
    (accounted,), (found,) = _outcomes(_task(part="")), _outcomes(_task(part="", gpus=0))
    assert found == accounted
    never_ran = _task(part="", state="CANCELLED", nodes=0, gpus=0, cpus=0, mem_mib=0.0)
    (found,) = outcomes_of([JOB], [never_ran], ObjectiveSection(), no_plugin_fails)
    assert found.gpus == 0


def test_a_job_that_gives_nodes_back_while_it_runs_has_one_outcome_without_a_reward() -> None:
    """Slurm begins another record, submitted at that moment. Its run time is that of no single size."""
    first = _task(part="", state="RESIZING", ended_s=150)
    goes_on = _task(part="", submitted_s=150, eligible_s=150, started_s=150, ended_s=None, state="RUNNING", gpus=1)
    assert _outcomes(first) == _outcomes(first, goes_on) == ()
    ended = msgspec.structs.replace(goes_on, state="COMPLETED", ended_s=450)
    (found,) = outcomes_of([JOB], [first, ended], ObjectiveSection(), no_plugin_fails)
    assert (found.state, found.eligible_s, found.started_s, found.ended_s) == ("COMPLETED", 100, 110, 450)
    assert (found.gpus, found.reward) == (first.gpus, None)


def test_a_later_job_of_the_same_id_is_another() -> None:
    (found,) = outcomes_of(
        [JOB],
        [_task(part=""), _task(part="", submitted_s=9000, ended_s=9100)],
        ObjectiveSection(),
        no_plugin_fails,
    )
    assert found.ended_s == 210


def test_sacct_names_the_parts() -> None:
    rest = "\x1f".join(["COMPLETED", "0:0", "100", "100", "110", "210", "cpu=1,node=1,gres/gpu=1,mem=5M", "", ""])
    text = "\n".join(f"{name}\x1f{rest}" for name in ("7_1", "7_1.batch", "7_[2-9%4]", "8+0", "8+1", "9", "9.0"))
    assert [(record.job_id, record.part) for record in read_accounting(text)] == [
        (7, "_1"),
        (7, "_[2-9%4]"),
        (8, "+0"),
        (8, "+1"),
        (9, ""),
    ]
