"""Whether a job was harmed: what sacct and the job itself say, against what its user asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from slurm_testbed.waiting import stretched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.systemd.systemd_container import Container
    from tests.systemd.week_jobs import Ended

GRACE_S: Final = 60
"""grace_s of the shipped configuration: a job may wait for rlalloc so long, and no longer."""
_CLOCKS_S: Final = 2.0
"""sbatch, the plugin and slurmctld read the clock one after the other."""


def harmed(container: Container, ended: Sequence[Ended], usual: Sequence[Ended], *, resizing: bool) -> list[str]:
    """Say of each job what is not as without rlalloc; `usual` are the jobs of the same kinds before it came."""
    before = {each.kind.name: each for each in usual}
    problems = []
    runs = [each.job_id for each in ended]
    for each in ended:
        told = list(_of_job(each, before[each.kind.name], resizing=resizing))
        if runs.count(each.job_id) > 1:
            told.append("was requeued")
        if each.kind.launched and each.ran:
            told += _of_environment(container, each)
        if each.kind.after:
            earlier = (
                other
                for other in ended
                if other.kind.name == each.kind.after and int(other.job_id) < int(each.job_id)
            )
            first = max(earlier, key=lambda other: int(other.job_id))
            if each.ran and each.started_s is not None and each.started_s < first.ended_s:
                told.append(f"began before job {first.job_id}, on which it depends, had ended")
        problems += [f"job {each.job_id} ({each.kind.name}) {problem}" for problem in told]
    return problems


def latest_release_s(ended: Sequence[Ended]) -> int:
    """The longest time [s] until a job was eligible, without the time that its user asked for."""
    return max((_held_back_s(each) for each in ended), default=0)


def _held_back_s(each: Ended) -> int:
    """How long something else than the user's own conditions kept a job from being eligible."""
    if not each.ran or each.eligible_s is None or each.kind.after:
        return 0
    return each.eligible_s - each.submitted_s - each.kind.begin_s


def _of_job(each: Ended, before: Ended, *, resizing: bool) -> Iterator[str]:
    """Its end, its size, its limit and its times."""
    kind = each.kind
    if (each.state, each.exit_code) != kind.end:
        yield f"ended as {each.state} {each.exit_code}, not as {kind.end}"
    if not each.ran:
        return
    if each.waited_s < kind.begin_s - _CLOCKS_S:
        yield f"began {each.waited_s} s after its submission, before its --begin"
    # Its begin time and the grace time overlap: it is eligible at the later of the two.
    late_s = _held_back_s(each) + kind.begin_s - max(kind.begin_s, GRACE_S)
    if late_s > stretched(_CLOCKS_S):
        yield f"became eligible {late_s} s after its grace time"
    allowed = {kind.request, *(kind.gpus if resizing else ())}
    if each.gpus not in allowed:
        yield f"ran with {each.gpus} GPUs, allowed are {sorted(allowed)}"
        return
    yield from _of_shares(each, before, trimming=resizing)
    if each.gpus == kind.request:
        if each.limit_min != before.limit_min:
            yield f"had a limit of {each.limit_min} minutes, without rlalloc {before.limit_min}"
    elif each.gpus < kind.request and int(each.limit_min) < int(before.limit_min):
        yield f"had a limit of {each.limit_min} minutes, less than {before.limit_min}, on fewer GPUs"


def _of_shares(each: Ended, before: Ended, *, trimming: bool) -> Iterator[str]:
    """Its CPUs and its memory: as many a GPU as its user asked for, or, if trimmed, as few as its user allows."""
    kind = each.kind
    others = [
        {name: amount for name, amount in held.items() if name not in ("cpu", "mem", "billing")}
        for held in (each.tres, before.tres)
    ]
    if each.gpus == kind.request and others[0] != others[1]:
        yield f"held {each.tres}, without rlalloc {before.tres}"
    if not kind.request:
        amounts = (each.cpus, each.mem_mib), (before.cpus, before.mem_mib)
        if amounts[0] != amounts[1]:
            yield f"held {each.tres}, without rlalloc {before.tres}"
        return
    held = each.gpus / kind.request
    for name, amount, asked, least in (
        ("CPUs", each.cpus, kind.asked_cpus, kind.least_cpus_per_gpu * each.gpus * trimming),
        ("MiB", each.mem_mib, kind.asked_mib, 1024 * kind.least_gib_per_gpu * each.gpus * trimming),
    ):
        if not (least or asked * held) <= amount <= asked * held:
            yield f"held {amount} {name} with {each.gpus} GPUs; its user asked for {asked} with {kind.request}"


def _of_environment(container: Container, each: Ended) -> Iterator[str]:
    """What its program saw, once."""
    path = f"/home/{each.kind.user}/seen-{each.job_id}"
    seen = [json.loads(line) for line in container.run("cat", path, check=False).stdout.splitlines()]
    if seen != [{"gpus": each.gpus, "cpus": int(each.tres["cpu"])}]:
        yield f"saw {seen}, and sacct says {each.tres}"
