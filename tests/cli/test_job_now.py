"""What ``rlalloc explain`` says of a job that runs, or of another one with its id."""

import time

import msgspec
import pytest

from rlalloc.run_time import RunTimeEstimate
from rlalloc.store.job_story import Chapter
from rlalloc_cli.job_now import how_it_runs, is_another, remaining_words
from rlallocd.slurm import SubmittedJob
from tests.core.test_store import APPLICATION, DECISION, OUTCOME

KNOWN = RunTimeEstimate(600.0, 1000.0, 4000.0, "a test")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        # As requested: the median has passed. The odds become 11/9, 3 and 19: 1000 s x odds ^ (ln 4 / ln 9).
        ("restored", "runs for 0:16:40, expected to go on for 0:16:40, 80% between 0:02:15 and 1:30:09"),
        # In a size that takes 1.6 times as long the median is 1,600 s, and lies ahead.
        ("begun", "runs for 0:16:40, expected to go on for 0:14:16, 80% between 0:02:48 and 1:39:39"),
    ],
)
def test_a_running_job_is_expected_to_go_on(state: str, words: str) -> None:
    request = msgspec.structs.replace(DECISION.request, time_limit_s=0)
    assert DECISION.allocation is not None
    allocation = msgspec.structs.replace(DECISION.allocation, time_limit_s=0)
    decision = msgspec.structs.replace(DECISION, request=request, allocation=allocation, run_time=KNOWN)
    application = msgspec.structs.replace(APPLICATION, state=state)
    chapter = Chapter(decision, (application,), None, decision.id, {}, {})
    assert remaining_words(chapter, 1000.0) == words
    unknown = msgspec.structs.replace(chapter, decision=msgspec.structs.replace(decision, run_time=None))
    assert remaining_words(unknown, 1000.0) == ""


def _running(user: str, submitted_after_s: int, admin_comment: str = "") -> SubmittedJob:
    return SubmittedJob(
        job_id=7, user=user, account="", partition="", state="RUNNING",
        submitted_s=int(DECISION.submitted_s) + submitted_after_s, started_s=int(time.time()) - 10,
        gpus=0, is_interactive=False, admin_comment=admin_comment, comment="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("user", "submitted_after_s", "is_told"),
    [(DECISION.user, 0, True), (DECISION.user, 500, True), ("bob", 500, False), (DECISION.user, -5, False)],
    ids=["never requeued", "requeued", "a later job of this id", "an earlier job of this id"],
)
def test_it_is_told_of_the_same_job_also_after_a_requeue(user: str, submitted_after_s: int, *, is_told: bool) -> None:
    """Slurm gives a requeued job another submit time."""
    decision = msgspec.structs.replace(DECISION, run_time=KNOWN)
    chapter = Chapter(decision, (), None, decision.id, {}, {})
    assert bool(how_it_runs([chapter], _running(user, submitted_after_s))) == is_told


@pytest.mark.parametrize(("gpus", "in_vain"), [(4, True), (2, False), (3, False)])
def test_a_size_that_slurmctld_forgot_is_told_while_the_job_runs(
    gpus: int, monkeypatch: pytest.MonkeyPatch, *, in_vain: bool
) -> None:
    """Four GPUs were asked for, and two decided, for which the job is expected to take longer."""
    monkeypatch.setattr(time, "time", lambda: 2000.5)
    begun = msgspec.structs.replace(APPLICATION, state="begun")
    decision = msgspec.structs.replace(DECISION, run_time=KNOWN)
    chapter = Chapter(decision, (begun,), None, decision.id, {}, {})
    job = msgspec.structs.replace(_running(DECISION.user, 0), held=(1, 32, gpus, 1024.0))
    said = how_it_runs([chapter], job)
    elapsed_s = 2000.5 - job.started_s
    assert said.startswith("as submitted: slurmctld had forgotten the decided size") == in_vain
    assert said.endswith(remaining_words(chapter, elapsed_s, as_submitted=in_vain))
    assert remaining_words(chapter, elapsed_s) != remaining_words(chapter, elapsed_s, as_submitted=True)


@pytest.mark.parametrize(
    ("user", "after_s", "state", "comment", "is_new"),
    [
        ("bob", 500, None, "", True),
        (DECISION.user, 500, None, "", False),
        (DECISION.user, 500, "COMPLETED", "", True),
        (DECISION.user, 500, "NODE_FAIL", "", False),
        (DECISION.user, 500, "COMPLETED", "rlalloc:v=1;rlalloc-decision:d1", False),
        (DECISION.user, 50, "COMPLETED", "", False),
        ("bob", -5, "COMPLETED", "", False),
    ],
    ids=["bob's", "requeued", "ended", "node failed", "requeued later", "before its end", "not in slurmdbd yet"],
)
def test_an_id_that_slurm_used_again(
    user: str, after_s: int, state: str | None, comment: str, *, is_new: bool
) -> None:
    """The outcome's end is 100 s after the first job's submission."""
    outcome = None if state is None else msgspec.structs.replace(OUTCOME, state=state)
    chapter = Chapter(DECISION, (), outcome, DECISION.id, {}, {})
    assert is_another(_running(user, after_s, comment), [chapter]) == is_new
    assert not is_another(None, [chapter])
