"""What Slurm has of a job now: whether it is still the job that was decided, and how it runs."""

import time
from collections.abc import Sequence
from pathlib import Path

from rlalloc.errors import RlallocError
from rlalloc.local_times import duration, local_time
from rlalloc.run_time import remaining_quantiles_s
from rlalloc.store.job_story import Chapter
from rlalloc_cli.explain import in_vain_words
from rlalloc_cli.own_jobs import settings_for_me
from rlallocd.outcomes.outcomes import RUN_AGAIN
from rlallocd.slurm import Commands, SubmittedJob, submitted_job
from rlallocd.submissions.job_tag import has_note


def job_now(job_id: int, path: Path) -> SubmittedJob | None:
    """The latest job of this id. ``path`` is the configuration's.

    None where Slurm does not show it: what is known without Slurm is shown all the same.
    """
    try:
        return submitted_job(Commands(settings_for_me(path).slurm.command_timeout_s), job_id)
    except RlallocError:
        return None


def is_another(job: SubmittedJob | None, story: Sequence[Chapter]) -> bool:
    """Whether Slurm has used the id again, for a ``job`` on which there is no decision.

    A requeue also gives a job a later submit time. It leaves the user and our note, and the job had not ended.
    """
    latest = story[-1].decision
    if job is None or job.submitted_s <= int(latest.submitted_s) or has_note(job.admin_comment):
        return False
    outcomes = (each.outcome for each in story if each.decision.submitted_s == latest.submitted_s)
    has_ended = any(
        each is not None and each.ended_s <= job.submitted_s and each.state not in RUN_AGAIN for each in outcomes
    )
    return has_ended or job.user != latest.user


def earlier_words(story: Sequence[Chapter]) -> str:
    """That an earlier job had this id; empty where none was decided."""
    if not story:
        return ""
    return f"; an earlier job with this id was decided at {local_time(story[-1].decision.decided_s)}: --json shows it"


def how_it_runs(story: Sequence[Chapter], job: SubmittedJob | None) -> str:
    """That the job runs as submitted in spite of its decision, and how long it is expected to go on.

    Empty of a job that does not run, and where Slurm does not say since when it runs.
    """
    chapter = next((each for each in story if each.decision.id == story[-1].in_force), story[-1])
    if chapter.outcome is not None or job is None or job.state != "RUNNING" or not job.started_s:
        return ""
    if job.submitted_s < int(chapter.decision.submitted_s) or is_another(job, story):
        return ""
    in_vain = in_vain_words(chapter, *job.held)
    expected = remaining_words(chapter, time.time() - job.started_s, as_submitted=in_vain != "")
    return "; ".join(filter(None, (in_vain, expected)))


def remaining_words(chapter: Chapter, elapsed_s: float, *, as_submitted: bool = False) -> str:
    """What is expected of a job that has run for ``elapsed_s``, in the decided size if it has it."""
    decision = chapter.decision
    if decision.run_time is None:
        return ""
    begun = any(each.state == "begun" for each in chapter.applications)
    resized = decision.allocation is not None and begun and not as_submitted
    size = decision.allocation if resized and decision.allocation is not None else decision.request
    slowdown = decision.slowdown.median if resized and decision.slowdown is not None else 1.0
    low, median, high = map(
        duration, remaining_quantiles_s(size.time_limit_s, elapsed_s, decision.run_time, slowdown)
    )
    return f"runs for {duration(elapsed_s)}, expected to go on for {median}, 80% between {low} and {high}"
