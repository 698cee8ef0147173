"""Which waiting jobs are decided again, when, and whether it pays: functions of values."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.config import RedecisionSection
from rlalloc.job import Allocation, ChosenType, JobView
from rlalloc.observation import SCHEMA_ID, encode
from rlalloc.store import Application, ApplicationState, Decision, JobHistory
from rlalloc.view import ClusterView
from rlallocd.decisions.redecision_rules import (
    Situation,
    changed_enough,
    is_new,
    situation_at,
    situation_in,
    starts_within_s,
    takes_more,
    why_not_redecided,
)
from rlallocd.slurm import JobRecord
from rlallocd.submissions.candidates import find_redecision_candidates

from .test_request_sizes_and_tags import ENFORCE, JOB

NOW_S = 10_000.0
SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
SECTION = RedecisionSection()
EIGHT = Allocation(
    nodes=1, gpus_per_node=8, tasks_per_node=1, cpus_per_task=32, mem_mib_per_node=80_000, time_limit_s=600
)


def _size(gpus: int) -> Allocation:
    return msgspec.structs.replace(EIGHT, gpus_per_node=gpus, cpus_per_task=4 * gpus, mem_mib_per_node=10_000 * gpus)


def pending_job(job_id: int, size: Allocation = EIGHT, **changes: object) -> JobRecord:
    """A pending job with our tag that was let go and waits for its turn."""
    record = msgspec.structs.replace(
        JOB,
        job_id=job_id,
        reason="Priority",
        begin_s=1001,
        nodes=size.nodes,
        tasks=size.nodes * size.tasks_per_node,
        cpus=size.cpus,
        gpus=size.gpus,
        mem_mib=float(size.mem_mib),
        time_limit_s=size.time_limit_s,
    )
    return msgspec.structs.replace(record, **changes)


def _view(*free_gpus: int, ahead: int = 0, behind: int = 0, freed_in_s: float = 5000.0) -> ClusterView:
    free = np.array([(gpus, 64, 512_000) for gpus in free_gpus], dtype=np.float64)
    return ClusterView(
        time_s=NOW_S,
        shape=SHAPE,
        free=free,
        totals=np.array([8, 64, 512_000], dtype=np.float64) * len(free_gpus),
        releases=np.array([(freed_in_s, 8 * len(free_gpus), 0, 0)], dtype=np.float64),
        queued=np.full((ahead, 2), (8.0, 264.0)),
        behind=behind,
    )


def _decision(number: int, **changes: object) -> Decision:
    decision = Decision(
        id=f"d{number}",
        job_id=7,
        submitted_s=1000,
        decided_s=1000.0 + number,
        user="alice",
        account="llm",
        partition="gpu",
        job_name="a",
        job_class="train",
        rule="llm",
        mode="enforce",
        reason="",
        request=EIGHT,
        bounds=bounds_for(EIGHT, Directives(gpus=(1, 8)), SiteBounds(), SHAPE),
    )
    return msgspec.structs.replace(decision, **changes)


def _applied(number: int, size: Allocation, state: ApplicationState = "begun") -> Application:
    return Application(
        id=number,
        decision_id=f"d{number}",
        job_id=7,
        state=state,
        original=EIGHT,
        intended=size,
        begin_s=0,
        begins=number == 1,
        detail="",
        changed_s=1000.0 + number,
    )


def _history(*applications: Application) -> JobHistory:
    decisions = tuple(_decision(number) for number in range(1, max([1, *(each.id for each in applications)]) + 1))
    return JobHistory(decisions=decisions, applications=applications)


def decision_for(job: JobRecord) -> Decision:
    """A first decision for a job, as if it was taken when it came in."""
    return _decision(1, job_id=job.job_id, submitted_s=float(job.submitted_s), partition=job.partition)


def test_a_history_tells_the_size_in_force_and_those_that_were_had() -> None:
    as_submitted = _history()
    assert (as_submitted.size, as_submitted.sizes_had, as_submitted.further_updates) == (EIGHT, (EIGHT,), 0)
    resized = _history(_applied(1, _size(4)), _applied(2, _size(2)))
    assert (resized.size, resized.sizes_had, resized.further_updates) == (_size(2), (_size(4), _size(2)), 1)
    assert (resized.in_force.id, resized.request) == ("d2", EIGHT)


def test_an_update_that_was_taken_back_is_not_in_force_but_counts() -> None:
    history = _history(_applied(1, _size(4)), _applied(2, _size(2), "restored"))
    assert (history.size, history.in_force.id, history.further_updates) == (_size(4), "d1", 1)
    assert not is_new(_size(2), history)


def test_no_size_comes_back_that_was_left() -> None:
    history = _history(_applied(1, _size(4)), _applied(2, _size(2)))
    assert not is_new(_size(4), history)
    assert not is_new(msgspec.structs.replace(_size(4), cpus_per_task=8), history)  # the same GPUs as before
    assert not is_new(_size(2), history)
    assert is_new(msgspec.structs.replace(_size(2), cpus_per_task=4), history)  # only other CPUs
    assert is_new(_size(1), history)
    assert is_new(EIGHT, history)  # asked for, but never waited in


def test_no_type_of_gpu_comes_back_that_was_given_up() -> None:
    """However much faster it is by now than what Slurm would give the job."""
    typed = msgspec.structs.replace(EIGHT, gpu_type=ChosenType("a100", "v1", "", 2.0, 1.2))
    assert is_new(typed, _history())
    lost = _history(_applied(1, typed, "restored"))
    assert not is_new(msgspec.structs.replace(EIGHT, gpu_type=ChosenType("a100", "v[1-2]", "", 1.9, 1.1)), lost)
    assert is_new(msgspec.structs.replace(EIGHT, gpu_type=ChosenType("h100", "v1", "", 2.0, 1.2)), lost)


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        (Situation(32, 10, 20), False),
        (Situation(40, 10, 20), True),  # nodes came
        (Situation(32, 12, 20), False),
        (Situation(32, 14, 20), True),
        (Situation(32, 10, 19), False),
        (Situation(32, 10, 18), True),
        (Situation(32, 6, 20), True),
    ],
)
def test_it_is_asked_again_only_when_enough_has_changed(now: Situation, changed: bool) -> None:
    assert changed_enough(Situation(32, 10, 20), now, 0.1) is changed


def test_a_small_site_needs_a_whole_gpu_or_job_to_change() -> None:
    then = Situation(4, 2, 1)
    assert not changed_enough(then, then, 0.1)
    assert changed_enough(then, Situation(4, 3, 1), 0.1)
    assert changed_enough(then, Situation(4, 2, 0), 0.1)
    assert changed_enough(None, then, 0.1)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=128), st.integers(0, 50))
def test_the_situation_of_a_decision_is_read_from_what_the_policy_saw(free: list[int], ahead: int) -> None:
    view = _view(*free, ahead=ahead)
    job = JobView("train", EIGHT, bounds_for(EIGHT, Directives(), SiteBounds(), SHAPE), 0.0, 0)
    decision = _decision(
        1, observation=encode(job, view).features.tobytes(), observation_schema=SCHEMA_ID, queued=view.crowd
    )
    assert situation_at(decision) == situation_in(view)
    assert situation_at(_decision(1)) is None


def test_a_waiting_job_is_asked_about() -> None:
    assert why_not_redecided(pending_job(7), _history(), SECTION, NOW_S) == ""


@pytest.mark.parametrize(
    ("job", "history", "why"),
    [
        (pending_job(7, is_array=True), _history(), "an array is decided once"),
        (pending_job(7, cpus=16), _history(), "somebody else changed it: cpus_per_task"),
        (pending_job(7), _history(_applied(1, EIGHT, "intended")), "is not finished"),
        (pending_job(7, started_s=int(NOW_S) + 50), _history(), "expects to start it soon"),
        (
            pending_job(7),
            _history(*(_applied(number, EIGHT, "restored") for number in range(1, 5))),
            "updated 3 times",
        ),
        (
            pending_job(7),
            JobHistory(decisions=(_decision(1, bounds=None),), applications=()),
            "it was skipped",
        ),
    ],
)
def test_others_are_left_alone(job: JobRecord, history: JobHistory, why: str) -> None:
    assert why in why_not_redecided(job, history, SECTION, NOW_S)


def test_one_that_slurm_can_start_as_it_is_keeps_its_size() -> None:
    why = why_not_redecided(pending_job(7), _history(), SECTION, NOW_S, fits_at_head=True)
    assert why == "it is at the head of the queue and fits"


def test_an_estimate_that_has_passed_does_not_keep_a_job_from_being_asked_about() -> None:
    late = pending_job(7, started_s=int(NOW_S) - 5)
    assert why_not_redecided(late, _history(), SECTION, NOW_S) == ""


@pytest.mark.parametrize("field", ["nodes", "gpus_per_node", "cpus_per_task", "mem_mib_per_node"])
def test_more_of_anything_is_more(field: str) -> None:
    more = msgspec.structs.replace(_size(4), **{field: getattr(_size(4), field) + 1})
    assert takes_more(more, _size(4))
    assert not takes_more(_size(4), more)
    assert not takes_more(msgspec.structs.replace(_size(4), time_limit_s=9999), _size(4))


def test_slurms_estimate_of_a_start_counts_while_it_lies_ahead() -> None:
    assert starts_within_s(pending_job(7, started_s=int(NOW_S) + 100), NOW_S) == 100
    assert starts_within_s(pending_job(7, started_s=int(NOW_S) - 1), NOW_S) is None
    assert starts_within_s(pending_job(7, started_s=0), NOW_S) is None


def test_waiting_jobs_are_found_in_the_order_of_the_queue() -> None:
    jobs = [
        pending_job(1, priority=5),
        pending_job(2, priority=9),
        pending_job(3, priority=5),
        pending_job(4, reason="Dependency"),
        pending_job(5, reason="AssocGrpGRES"),
        pending_job(6, begin_s=int(NOW_S) + 60),
        pending_job(8, admin_comment=""),
        pending_job(9, state="RUNNING"),
        pending_job(10, priority=0),
    ]
    found = find_redecision_candidates(jobs, ENFORCE, NOW_S)
    assert [candidate.job.job_id for candidate in found] == [2, 1, 3]
    assert all(candidate.begun for candidate in found)
    assert not any(candidate.deferred_by_us for candidate in found)


def test_jobs_that_slurm_does_not_reach_are_in_nobodys_way() -> None:
    """One user has more jobs in front than are looked at, and Slurm tries only the first of them."""
    jobs = [pending_job(number, priority=9000 - number, user="alice") for number in range(1, 400)]
    jobs.append(pending_job(400, priority=1, user="bob"))
    found = find_redecision_candidates(jobs, ENFORCE, NOW_S, lambda job: job.job_id in (1, 400))
    assert [candidate.job.job_id for candidate in found] == [1, 400]
