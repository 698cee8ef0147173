"""Whether doctor, status, metrics, report and explain say what sacct says, and what was done to the site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurm_testbed import wait_until
from tests.systemd import debian_slurm
from tests.systemd.short_training import short_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.systemd.week_jobs import Ended, Kind
    from tests.systemd.week_site import Week

MODES: Final = ("off", "shadow", "enforce")
_TOLD_IN_FULL: Final = ("range", "follows", "counted", "off", "no-llm")
_TRAINED: Final = ("failed", "kept", "promoted")


def decided(week: Week) -> int:
    """How many jobs the daemon says it has decided since its start."""
    found = week.metrics()
    return round(sum(value for name, value in found.items() if name.startswith("rlallocd_decided_total{")))


def to_decide(kinds: Iterable[Kind]) -> int:
    """How many of these jobs rlalloc has to decide: those that nobody cancels may come to their decision, or not."""
    return sum(kind.covered and not kind.cancelled for kind in kinds)


def all_is_well(week: Week, mode: str, *, warned: frozenset[str] = frozenset()) -> None:
    """Nothing is wrong on the site, and all three say so; doctor warns of these things and no others."""
    debian_slurm.wait_for(week.container, "rlalloc", "status", expect="last cycle 0:00:0")
    levels = week.doctor()
    assert {what: level for what, level in levels.items() if level != "OK"} == dict.fromkeys(warned, "WARN"), levels
    status, screen = week.status()
    assert status == 0, screen
    assert screen.startswith(f"mode    {mode}"), screen
    metrics = week.metrics_of_now()
    assert [name for name in MODES if metrics[f'rlallocd_mode{{mode="{name}"}}']] == [mode]
    assert metrics["rlallocd_open_applications"] == 0
    assert metrics["rlallocd_agent_up"] == metrics["rlallocd_configuration_in_force"] == 1
    checks = {name: value for name, value in metrics.items() if name.startswith("rlallocd_check_level{")}
    assert {name: value for name, value in checks.items() if value} == {
        f'rlallocd_check_level{{check="{what}"}}': 1 for what in warned
    }
    found = f"warns of {', '.join(sorted(warned))}" if warned else f"all {len(levels)} lines OK"
    week.note(f"- doctor: {found}; status: exit 0, mode {mode}; metrics: mode {mode}, {len(checks)} checks")


def report_is_true(week: Week, ended: Sequence[Ended], *, forgotten: bool = False) -> None:
    """Each run of `rlalloc report` has the end, the times and the size that sacct has.

    Where the store was replaced by an older one, it has `forgotten` what a job was before it was resized.
    """
    runs = week.report()
    for each in ended:
        if not each.ran:
            continue  # never eligible: sacct shows it only to those who know its id
        run = runs[each.job_id]
        assert (run["user"], run["state"], run["exit_code"]) == (each.kind.user, each.state, each.exit_code), run
        assert (run["submit_s"], run["start_s"], run["end_s"]) == (each.submitted_s, each.started_s, each.ended_s), (
            run
        )
        assert each.started_s is not None
        assert (run["run_s"], run["wait_s"]) == (each.ended_s - each.started_s, each.waited_s), run
        held = run["held"]
        assert (held["gpus"], held["cpus"], held["mem_mib"]) == (each.gpus, each.cpus, each.mem_mib), run
        assert held["limit_s"] == 60 * int(each.limit_min), run
        assert (run["result"] == "changed") == (run["applied"] is not None), run
        if not forgotten or run["result"] == "changed":
            asked = run["asked"]
            wanted = each.kind.request, each.kind.asked_cpus, each.kind.asked_mib
            assert (asked["gpus"], asked["cpus"], asked["mem_mib"]) == wanted, run
            assert not each.another_size or run["result"] == "changed", run
    seconds = sum(each.gpus * (each.ended_s - (each.started_s or 0)) for each in ended if each.ran)
    week.note(f"- report: {len(ended)} jobs and tasks, {seconds} GPU-seconds, each as sacct has it")


def stories_are_true(week: Week, ended: Sequence[Ended], mode: str) -> None:
    """What rlalloc explains to a job's user, and to nobody else."""
    for each in ended:
        if each.kind.name not in _TOLD_IN_FULL:
            continue
        story = week.explain(each.job_id, each.kind.user)
        assert bool(story) == each.kind.covered, (each, story)
        for chapter in story:
            assert chapter["decision"]["mode"] == mode
    others = next(each for each in ended if each.kind.user == "ada" and each.kind.covered)
    assert week.explain(others.job_id, "bob") == []


def something_is_wrong(week: Week, what: set[str]) -> None:
    """Doctor fails one of these things, status ends with 1."""
    failed, (status, screen) = week.failures(), week.status()
    assert failed & what, failed
    assert status == 1, screen
    week.note(f"- doctor failed {', '.join(sorted(failed))}; status ended with {status}")


def slurmctld_is_down(week: Week) -> None:
    """Doctor says so at once, status and the metrics when the daemon's cycles fail."""
    failed = week.failures()
    assert "slurmctld" in failed, failed
    debian_slurm.wait_for(week.container, "sh", "-c", "rlalloc status; test $? = 1", limit_s=180)
    wait_until(
        lambda: week.metrics()["rlallocd_failed_cycles_total"] > 0, what="a failed cycle", timeout_s=180, interval_s=1
    )
    errors = week.metrics()["rlallocd_failed_cycles_total"]
    week.note(
        f"- while slurmctld is down: doctor failed {', '.join(sorted(failed))}; status ended with 1; "
        f"metrics: {errors:.0f} cycles that Slurm ended early"
    )


def just_booted(week: Week) -> None:
    """Doctor and status at once: whatever they say, the exit status is that of the worst, each with its remedy."""
    levels, (status, _) = week.doctor(), week.status()
    worse = ", ".join(f"{level} for {what}" for what, level in levels.items() if level != "OK")
    week.note(f"- right after the boot: doctor said {worse or 'OK for all'}; status ended with {status}")


def train_at_night(week: Week) -> None:
    """The timer trains; doctor, metrics and the agent say what it came to."""
    with short_training(week.container):
        came_to = week.train_by_the_timer(limit_s=600)
    assert not came_to["failed"], came_to
    assert week.doctor()["training"] == "OK"
    metrics = week.metrics()
    result = "promoted" if came_to["promoted"] else "kept"
    said = [name for name in _TRAINED if metrics.get(f'rlallocd_training_last_result{{result="{name}"}}')]
    assert said == [result], metrics
    if came_to["promoted"]:
        current = _current_version(week)
        debian_slurm.wait_for(week.container, "rlalloc", "doctor", "--json", expect=f"serves {current}")
    week.note(f"- the night's training, by its timer: {result}; {came_to['verdict']}")


def _current_version(week: Week) -> str:
    """The version in use, by the link that makes it so."""
    path = "/var/lib/rlalloc/policies/current"
    told: Any = week.container.run("readlink", path).stdout.strip()
    return str(told).rpartition("/")[2]


def version_in_all_places(week: Week, version: str) -> None:
    """The command, the daemon's status and its metrics tell the same version."""
    assert week.container.run("rlalloc", "--version").stdout.split()[1] == version
    debian_slurm.wait_for(week.container, "rlalloc", "status", expect=f"version {version}")
    assert week.metrics()[f'rlallocd_build_info{{version="{version}"}}'] == 1
    week.note(f"- version {version}, by the command, status and metrics")
