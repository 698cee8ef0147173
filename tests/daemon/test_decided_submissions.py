"""A requeued job is known by the submission under which it was decided. Pure."""

import msgspec
import pytest

from rlalloc.store import JobKey
from rlallocd.submissions.decided_submissions import DecidedSubmissions

from .test_redecision_rules import pending_job

REQUEUED = pending_job(7, restarts=1, submitted_s=500)


def by_the_same_user(*keys: JobKey) -> DecidedSubmissions:
    return DecidedSubmissions(dict.fromkeys(keys, REQUEUED.user))


@pytest.mark.parametrize(
    ("decided", "submitted_s"),
    [
        ([(7, 100)], 100),
        ([(7, 50), (7, 100), (7, 900)], 100),
        ([(7, 500), (7, 100)], 500),
        ([(7, 900)], 500),
        ([(8, 100)], 500),
        ([], 500),
    ],
    ids=["decided before", "the latest of several", "under this very time", "later only", "another", "never decided"],
)
def test_a_requeued_job_has_the_time_under_which_it_was_decided(decided: list[JobKey], submitted_s: int) -> None:
    (job,) = by_the_same_user(*decided).as_first_submitted([REQUEUED])
    assert job == msgspec.structs.replace(REQUEUED, submitted_s=submitted_s)
    assert (job is REQUEUED) == (submitted_s == 500)


def test_a_requeued_job_is_not_taken_for_that_of_another_user_with_the_same_id() -> None:
    """Slurm uses ids again, at once if slurmctld has lost its state."""
    decided = DecidedSubmissions({(7, 100): REQUEUED.user, (7, 200): "somebody else"})
    assert decided.as_first_submitted([REQUEUED])[0].submitted_s == 100
    decided = DecidedSubmissions({(7, 200): "somebody else"})
    assert decided.as_first_submitted([REQUEUED])[0] is REQUEUED


def test_of_an_array_only_the_tasks_that_were_requeued_have_the_arrays_time() -> None:
    again = msgspec.structs.replace(REQUEUED, job_id=9, array_job_id=7)
    whole = pending_job(7, submitted_s=100, array_job_id=7)
    assert by_the_same_user((7, 100)).as_first_submitted([whole, again]) == (
        whole,
        msgspec.structs.replace(again, submitted_s=100),
    )


def test_a_job_that_is_not_ours_or_was_not_requeued_stays_as_it_is() -> None:
    """A later job may have the id of a decided one."""
    jobs = [msgspec.structs.replace(REQUEUED, admin_comment=""), msgspec.structs.replace(REQUEUED, restarts=0)]
    for job in jobs:
        assert by_the_same_user((7, 100)).as_first_submitted([job])[0] is job


def test_the_same_record_gives_the_same_object() -> None:
    """What is kept of a job by its record is not worked out again in each cycle."""
    decided = by_the_same_user((7, 100))
    (first,) = decided.as_first_submitted([REQUEUED])
    assert decided.as_first_submitted([REQUEUED])[0] is first
    decided.update({(7, 200): REQUEUED.user})
    assert decided.as_first_submitted([REQUEUED])[0].submitted_s == 200
    renewed = msgspec.structs.replace(REQUEUED, reason="Resources", priority=1)
    assert decided.as_first_submitted([renewed])[0].priority == 1


def test_the_keys_are_a_collection() -> None:
    decided = by_the_same_user((7, 100), (7, 200))
    assert sorted(decided) == [(7, 100), (7, 200)]
    assert len(decided) == 2
    assert (7, 200) in decided
    assert (7, 300) not in decided
    assert (8, 100) not in decided
    assert len(list(decided)) == 2
