"""How long a running job is expected to go on: what ``rlalloc explain`` says until the job has ended."""

import time
from collections.abc import Sequence
from pathlib import Path

from rlalloc.errors import RlallocError
from rlalloc.local_times import duration
from rlalloc.run_time import remaining_quantiles_s
from rlalloc.store.job_story import Chapter
from rlalloc.store.submissions import submission_of
from rlalloc_cli.own_jobs import settings_for_me
from rlallocd.slurm import Commands, submitted_job


def how_long_on(story: Sequence[Chapter], path: Path) -> str:
    """What is expected of a job that runs; empty of another, and where Slurm does not say since when it runs.

    ``path`` is the configuration's.
    """
    chapter = next((each for each in story if each.decision.id == story[-1].in_force), story[-1])
    decision = chapter.decision
    if chapter.outcome is not None or decision.run_time is None:
        return ""
    try:
        job = submitted_job(Commands(settings_for_me(path).slurm.command_timeout_s), decision.job_id)
    except RlallocError:  # what is known without Slurm is shown all the same
        return ""
    if job is None or job.state != "RUNNING" or not job.started_s:
        return ""
    submissions = {int(each.decision.submitted_s): each.decision.user for each in story}
    if submission_of(job.submitted_s, job.user, submissions) != int(decision.submitted_s):
        return ""
    return remaining_words(chapter, time.time() - job.started_s)


def remaining_words(chapter: Chapter, elapsed_s: float) -> str:
    """What is expected of a job that has run for ``elapsed_s``, in the size of this chapter's decision."""
    decision = chapter.decision
    if decision.run_time is None:
        return ""
    resized = decision.allocation is not None and any(each.state == "begun" for each in chapter.applications)
    size = decision.allocation if resized and decision.allocation is not None else decision.request
    slowdown = decision.slowdown.median if resized and decision.slowdown is not None else 1.0
    low, median, high = map(
        duration, remaining_quantiles_s(size.time_limit_s, elapsed_s, decision.run_time, slowdown)
    )
    return f"runs for {duration(elapsed_s)}, expected to go on for {median}, 80% between {low} and {high}"
