"""What ``rlalloc explain`` says of a job that runs."""

import time
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config
from rlalloc.run_time import RunTimeEstimate
from rlalloc.store.job_story import Chapter
from rlalloc_cli.running_job import how_long_on, remaining_words
from rlallocd.slurm import SubmittedJob
from tests.core.test_store import APPLICATION, DECISION

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


@pytest.mark.parametrize(
    ("user", "submitted_after_s", "is_told"),
    [(DECISION.user, 0, True), (DECISION.user, 500, True), ("bob", 500, False), (DECISION.user, -5, False)],
    ids=["never requeued", "requeued", "a later job of this id", "an earlier job of this id"],
)
def test_it_is_told_of_the_same_job_also_after_a_requeue(
    monkeypatch: pytest.MonkeyPatch, user: str, submitted_after_s: int, *, is_told: bool
) -> None:
    """Slurm gives a requeued job another submit time."""
    running = SubmittedJob(
        job_id=7, user=user, account="", partition="", state="RUNNING",
        submitted_s=int(DECISION.submitted_s) + submitted_after_s, started_s=int(time.time()) - 10,
        gpus=0, is_interactive=False, admin_comment="", comment="",
    )  # fmt: skip
    monkeypatch.setattr("rlalloc_cli.running_job.settings_for_me", lambda _: Config())
    monkeypatch.setattr("rlalloc_cli.running_job.submitted_job", lambda *_: running)
    decision = msgspec.structs.replace(DECISION, run_time=KNOWN)
    chapter = Chapter(decision, (), None, decision.id, {}, {})
    assert bool(how_long_on([chapter], Path("unused"))) == is_told
