"""rlalloc.lua refuses an update of rlallocd's if others have changed the job since rlallocd read it."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlallocd.submissions.job_tag import with_reading

from .lua_slurm import PLUGIN, literal

TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=1795236700;user_begin=0;ask="
NOTED = f"{TAG};rlalloc-decision:42"
ROOT, OWNER, OTHER = 0, 1000, 1001
RESETS_AGE = 2**21
UNSET = {
    "begin_time": 0,
    "bitflags": 0,
    **dict.fromkeys(("min_nodes", "max_nodes", "num_tasks", "min_cpus", "time_limit", "nice"), 2**32 - 2),
    **dict.fromkeys(("ntasks_per_node", "cpus_per_task", "pn_min_cpus", "shared"), 2**16 - 2),
}
STALE, BUSY = "116", "11"


class Update(NamedTuple):
    """What comes to slurmctld, from whom, and when (seconds of uptime)."""

    fields: Mapping[str, Any]
    uid: int
    at_s: float
    job_id: int = 7
    tag: str | None = TAG
    more_of_job: Mapping[str, Any] = {}


def decided(read_s: float, at_s: float, job_id: int = 7, **more: Any) -> Update:
    """An update of rlallocd's."""
    fields = {"min_nodes": 1, "num_tasks": 1, "admin_comment": with_reading(NOTED, read_s), **more}
    return Update(fields, ROOT, at_s, job_id)


def release(at_s: float, job_id: int = 7) -> Update:
    """Likewise the one by which it begins a job."""
    return Update({"begin_time": 1_795_236_650, "bitflags": RESETS_AGE}, ROOT, at_s, job_id)


def by_user(at_s: float, uid: int = OWNER, **fields: Any) -> Update:
    return Update(fields, uid, at_s)


def answers(interpreter: str, tmp_path: Path, updates: Sequence[Update]) -> list[str]:
    """What job_submit.lua answers to each of these updates in turn."""
    return [line for line in output(interpreter, tmp_path, updates) if line.isdigit()]


def output(interpreter: str, tmp_path: Path, updates: Sequence[Update], loaded_s: float = 0.0) -> list[str]:
    """The same with what is logged, and the AdminComment of each update that passes."""
    for name in ("rlalloc.lua", "job_submit.lua"):
        shutil.copy(PLUGIN / name, tmp_path)
    calls = "\n".join(
        f"""modify({literal({**UNSET, **each.fields})},
        {literal({"job_id": each.job_id, "user_id": OWNER, "admin_comment": each.tag, **each.more_of_job})},
        {each.uid}, {each.at_s})"""
        for each in updates
    )
    program = f"""
    slurm = {{SUCCESS = 0, ERROR = -1}}
    for _, level in ipairs({{"log_error", "log_info", "log_user"}}) do
       slurm[level] = function(...) print(level .. " " .. string.format(...)) end
    end
    local up = {loaded_s}
    local real_open = io.open
    io.open = function(path, mode)
       if path ~= "/proc/uptime" then return real_open(path, mode) end
       return {{read = function() return string.format("%.2f 1.00\\n", up) end, close = function() end}}
    end
    dofile("{tmp_path}/job_submit.lua")
    local function modify(update, job, uid, at)
       up = at
       print(string.format("%.0f", slurm_job_modify(update, job, {{}}, uid)))
       if update.admin_comment then print(update.admin_comment) end
    end
    {calls}
    """
    source = tmp_path / "updates.lua"
    source.write_text(program)
    completed = subprocess.run([interpreter, source], check=True, capture_output=True, text=True, timeout=120)
    return completed.stdout.splitlines()


def test_an_update_of_rlallocd_passes_without_its_note(interpreter: str, tmp_path: Path) -> None:
    assert output(interpreter, tmp_path, [decided(10.5, 10.6)]) == ["0", NOTED]


@pytest.mark.parametrize(
    "fields",
    [
        {"num_tasks": 2},
        {"min_mem_per_node": 4096},
        {"min_mem_per_cpu": 100},
        {"tres_per_node": "gres:gpu:1"},
        {"time_limit": 10},
        {"time_limit": 2**32 - 1},
        {"begin_time": 1_795_300_000},
        {"qos": "second"},
        {"req_nodes": ""},
    ],
)
@pytest.mark.parametrize("uid", [OWNER, OTHER, ROOT])
def test_what_others_set_since_the_reading_stands(
    interpreter: str, tmp_path: Path, fields: dict[str, Any], uid: int
) -> None:
    """Also the value that the job has already: nobody compares values."""
    said = output(interpreter, tmp_path, [by_user(10.51, uid, **fields), decided(10.50, 10.6)])
    assert said[0] == "0"
    assert said[-3] == (
        "log_info rlalloc: job 7: an update of rlallocd is refused: the job may have changed since it was read"
    )
    assert said[-2] == STALE
    assert answers(interpreter, tmp_path, [by_user(10.51, uid, **fields), decided(10.52, 10.6)]) == ["0", "0"]


@pytest.mark.parametrize(("more", "answer"), [({"nice": 3}, STALE), ({}, "0")])
def test_a_nice_of_others_stands_and_keeps_no_other_update_out(
    interpreter: str, tmp_path: Path, more: dict[str, Any], answer: str
) -> None:
    updates = [by_user(10.51, ROOT, nice=5), decided(10.50, 10.6, **more)]
    assert answers(interpreter, tmp_path, updates) == ["0", answer]


def test_each_task_of_an_array_is_looked_at(interpreter: str, tmp_path: Path) -> None:
    """To all records of an array, slurmctld shows one update, the AdminComment as the first one left it."""
    of_task = Update({"num_tasks": 2}, OWNER, 10.55, job_id=8)
    others = [Update({"num_tasks": 1, "admin_comment": NOTED}, ROOT, 10.6, job_id) for job_id in (8, 9)]
    updates = [of_task, decided(10.50, 10.6), *others, decided(10.58, 10.7, job_id=9)]
    assert answers(interpreter, tmp_path, updates) == ["0", "0", STALE, "0", "0"]


def test_what_looks_like_a_release_moves_no_changed_job(interpreter: str, tmp_path: Path) -> None:
    """An account's coordinator may update the jobs of others."""
    move = Update({**release(10.6).fields, "partition": "other"}, OTHER, 10.6, tag=NOTED)
    assert output(interpreter, tmp_path, [move])[-1] == "-1"


def test_a_user_is_kept_out_for_some_seconds_even_if_rlallocd_tries_again_and_again(
    interpreter: str, tmp_path: Path
) -> None:
    """A restoration that slurmctld refuses, for example, is sent in each cycle."""
    tries = [decided(at_s - 0.1, at_s) for at_s in (10.0, 14.0, 18.0)]
    updates = [tries[0], by_user(12.0, num_tasks=2), tries[1], tries[2], by_user(18.5, num_tasks=2)]
    assert answers(interpreter, tmp_path, updates) == ["0", BUSY, "0", "0", "0"]


@pytest.mark.parametrize(
    "update",
    [
        by_user(10.51),
        by_user(10.51, comment="mine", priority=0),
        by_user(10.51, ROOT, priority=0),
        Update({"num_tasks": 2}, OWNER, 10.51, job_id=8),
        Update({"num_tasks": 2}, OWNER, 10.51, tag="somebody else's"),
        Update({"num_tasks": 2}, OWNER, 10.51, tag=None),
        decided(10.4, 10.51),
        release(10.51),
    ],
)
def test_what_does_not_matter_to_a_size(interpreter: str, tmp_path: Path, update: Update) -> None:
    """Holds, other jobs, jobs without a tag, and what rlallocd itself does."""
    assert answers(interpreter, tmp_path, [update, decided(10.50, 10.6)]) == ["0", "0"]


def test_after_a_refusal_a_later_reading_counts(interpreter: str, tmp_path: Path) -> None:
    """Of a restoration, for example: rlallocd reads the job again."""
    updates = [by_user(10.51, num_tasks=2), decided(10.50, 10.6), decided(10.7, 10.8)]
    assert answers(interpreter, tmp_path, updates) == ["0", STALE, "0"]


@pytest.mark.parametrize(
    ("job", "answer"),
    [
        ({"job_state": 0, "array_job_id": 0}, "0"),
        ({"job_state": 0x8000, "array_job_id": 0}, "0"),  # JOB_COMPLETING: it was requeued
        ({"job_state": 1, "array_job_id": 0}, STALE),
        ({"job_state": 0x4001, "array_job_id": 0}, STALE),  # JOB_CONFIGURING
        ({"job_state": 1, "array_job_id": 6}, "0"),
    ],
    ids=str,
)
def test_a_job_that_has_started_keeps_its_size(
    interpreter: str, tmp_path: Path, job: Mapping[str, int], answer: str
) -> None:
    """The update of an array may find that some of its tasks have started."""
    assert answers(interpreter, tmp_path, [decided(10.5, 10.6)._replace(more_of_job=job)]) == [answer]


def test_nothing_is_changed_by_a_reading_from_before_the_module_was_loaded(interpreter: str, tmp_path: Path) -> None:
    """A slurmctld that was restarted has forgotten what others changed."""
    assert STALE in output(interpreter, tmp_path, [decided(10.5, 10.8)], loaded_s=10.6)
    assert output(interpreter, tmp_path, [decided(10.7, 10.8)], loaded_s=10.6) == ["0", NOTED]


def test_a_release_is_refused_once_after_a_begin_time_of_others(interpreter: str, tmp_path: Path) -> None:
    """Then rlallocd reads the job again, and lets it go only if the begin time is still the plugin's."""
    begin = by_user(10.4, begin_time=1_795_300_000)
    assert answers(interpreter, tmp_path, [begin, release(10.5), release(11.5)]) == ["0", STALE, "0"]
    assert answers(interpreter, tmp_path, [begin, release(10.5, job_id=8)]) == ["0", "0"]


def test_a_begin_time_of_the_user_is_never_refused(interpreter: str, tmp_path: Path) -> None:
    """Not even one that looks like a release of rlallocd's."""
    updates = [by_user(at_s, begin_time=1_795_300_000, bitflags=RESETS_AGE) for at_s in (10.4, 10.5)]
    assert answers(interpreter, tmp_path, updates) == ["0", "0"]


@pytest.mark.parametrize("field", ["min_nodes", "num_tasks", "min_cpus", "pn_min_cpus", "min_mem_per_node"])
def test_a_size_of_the_user_is_refused_until_rlallocd_has_verified_its_own(
    interpreter: str, tmp_path: Path, field: str
) -> None:
    """Otherwise rlallocd would restore the request over it."""
    size = {field: 2}
    said = output(interpreter, tmp_path, [decided(10.0, 10.1), by_user(10.2, **size)])
    assert said[-2:] == ["log_user rlalloc: job 7 is being changed by rlalloc: try again in a few seconds", BUSY]
    for at_s, others in ((10.3, [release(10.2)]), (15.2, []), (3.0, [])):  # the last on a clock that was set back
        updates = [decided(10.0, 10.1), *others, by_user(at_s, **size)]
        assert set(answers(interpreter, tmp_path, updates)) == {"0"}


@pytest.mark.parametrize(
    "update", [by_user(10.2, ROOT, num_tasks=2), by_user(10.2, time_limit=2), by_user(10.2, begin_time=1)]
)
def test_other_updates_meet_no_refusal(interpreter: str, tmp_path: Path, update: Update) -> None:
    assert answers(interpreter, tmp_path, [decided(10.0, 10.1), update]) == ["0", "0"]


def test_what_is_remembered_is_bounded(interpreter: str, tmp_path: Path) -> None:
    """The jobs that nothing has happened to for longest are forgotten, and their updates pass."""
    others = [Update({"num_tasks": 2}, OWNER, 10.51, job_id=number) for number in range(100, 5100)]
    first = by_user(10.51, num_tasks=2)
    assert answers(interpreter, tmp_path, [first, *others, decided(10.5, 10.6)])[-1] == STALE
    assert answers(interpreter, tmp_path, [first, *others, *others, decided(10.5, 10.6)])[-1] == "0"
