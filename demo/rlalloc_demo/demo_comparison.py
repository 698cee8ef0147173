"""Phases 1 and 2: the same workload in shadow mode and enforced."""

from collections.abc import Sequence

import msgspec

from rlalloc.job import Mode
from rlalloc.store import Decision
from rlalloc_demo import checks
from rlalloc_demo.checks import Check
from rlalloc_demo.demo_measures import Ran, joined
from rlalloc_demo.demo_site import Place
from rlalloc_demo.demo_workload import Entry, Submitted
from rlalloc_demo.follow import accounted, decisions_of, ended, first_decisions_of, follow, jobs_of
from rlalloc_demo.screen import Screen


class Run(msgspec.Struct, frozen=True):
    """One workload that has ended, with what rlalloc decided."""

    jobs: list[Ran]
    decisions: dict[int, Decision]
    checks: list[Check]


def run_workload(place: Place, screen: Screen, entries: Sequence[Entry], mode: Mode) -> Run:
    """Submit a workload, wait until all jobs have ended and are accounted for, and check the result."""
    submitted = follow(place, screen, entries, ended)
    jobs = joined(submitted, accounted(place, screen, submitted))
    decisions = decisions_of(place, submitted)
    found = [
        checks.completed(mode, jobs, place),
        checks.ordinary_untouched(mode, jobs, decisions, jobs_of(place, submitted)),
        checks.all_decided(mode, jobs, decisions),
        checks.seen_soon(mode, jobs, first_decisions_of(place, submitted)),
    ]
    if mode == "shadow":
        found.append(checks.as_submitted(mode, jobs, decisions))
    else:
        found.append(checks.got_what_was_decided(mode, jobs, decisions, place))
    found.append(_trained_for_real(place, submitted, mode))
    return Run(jobs, decisions, found)


def interesting_job(place: Place, shadow: Run, enforced: Run) -> int:
    """Return the resized job that gained most over the same job in the shadow run."""
    gains = {
        after.record.job_id: before.jct_s - after.jct_s
        for before, after in zip(shadow.jobs, enforced.jobs, strict=True)
        if (decision := enforced.decisions.get(after.record.job_id)) is not None
        and checks.was_resized(decision, place)
        and decision.allocation is not None
        and decision.allocation.gpus != decision.request.gpus
    }
    return max(gains, key=lambda job_id: gains[job_id], default=enforced.jobs[0].record.job_id)


def _trained_for_real(place: Place, submitted: Sequence[Submitted], mode: Mode) -> Check:
    """The job that really trains: its loss went down, on as many processes as it had GPUs."""
    statement = f"{mode}: torchrun trained a small GPT (torch, gloo), a process for each GPU given"
    job = next((each for each in submitted if each.entry.script == "gpt.sbatch"), None)
    if job is None:
        return Check(statement, holds=False, detail="workload.yaml has no gpt.sbatch")
    steps = [line for line in place.output_of(job.job_id, job.entry.user).splitlines() if line.startswith("step ")]
    if len(steps) < 2:
        return Check(statement, holds=False, detail=f"job {job.job_id} printed no steps")
    first, last = (" ".join(line.split()) for line in (steps[0], steps[-1]))
    return Check(statement, holds=True, detail=f"job {job.job_id}: {first} … {last}")
