"""What make floor tells of two records, and what it leaves out."""

import msgspec
import pytest

from rlalloc.job import Allocation
from rlalloc_twins.floor_check import Floor, compare
from rlalloc_twins.twin_plan import Plan, UserEvent
from rlalloc_twins.twin_record import Happened, Run, TwinJob

from .example_records import (
    LARGER,
    PLAN,
    REQUEST,
    SMALLER,
    SUBMISSION,
    TAG,
    batch_of,
    ended,
    job_with,
    job_without,
    ours,
    record,
    run_of,
)


def floor(with_rlalloc: TwinJob, without: TwinJob | None = None, plan: Plan = PLAN) -> Floor:
    return compare(plan, record("off", without or job_without()), record("random", with_rlalloc))


def texts(found: Floor) -> list[str]:
    return [problem.text for problem in found.problems]


@pytest.mark.parametrize("size", [SMALLER, LARGER])
def test_a_job_that_completes_in_another_size_is_right(size: Allocation) -> None:
    found = floor(job_with(size))
    assert texts(found) == []
    assert (found.counts["COMPLETED on both"], found.counts["resized in GPUs"]) == (1, 1)


def test_a_job_that_completes_only_without_rlalloc_is_told() -> None:
    assert texts(floor(job_with(tasks={"": ended(SMALLER, "FAILED")}))) == [
        "it ended FAILED 1:0, without rlalloc COMPLETED 0:0"
    ]
    assert texts(floor(job_with(tasks={}, stuck="BadConstraints", runs={}))) == [
        "it waited for BadConstraints when nothing else went on"
    ]
    assert texts(floor(job_with(job_id=None, refused="sbatch: error", tasks={}, runs={}, decisions=()))) != []
    inner = job_without(key="j1-inner")
    only_without = compare(PLAN, record("off", job_without(), inner), record("random", job_with()))
    assert texts(only_without) == ["it was not submitted with rlalloc"]


def test_a_job_that_was_cancelled_may_not_have_come_to_submit_another_one() -> None:
    plan = msgspec.structs.replace(
        PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(UserEvent("cancel", 0.0, ()),)),)
    )
    found = compare(plan, record("off", job_without(), job_without(key="j1-inner")), record("random", job_with()))
    assert texts(found) == []


def test_all_memory_of_another_node_is_right_however_it_was_asked_for() -> None:
    job, other = job_with(LARGER, decisions=()), job_without()
    assert "without rlalloc" in texts(floor(job, other))[0]
    environment = msgspec.structs.replace(SUBMISSION, environment={"SBATCH_MEM_PER_NODE": "0"})
    plan = msgspec.structs.replace(PLAN, submissions=(environment,))
    assert not [text for text in texts(floor(job, other, plan)) if "it was given" in text]


@pytest.mark.parametrize(
    ("word", "given", "problems"),
    [
        ("MinMemoryNode=3000", {"mem_mib_per_node": 3000}, 0),
        ("MinMemoryNode=3000", {"mem_mib_per_node": 3000, "gpus_per_node": 1}, 1),
        ("MinMemoryNode=3000", {"mem_mib_per_node": 3000, "cpus_per_task": 1}, 1),
        ("MinCPUsNode=6", {"cpus_per_task": 6}, 0),
        ("CPUsPerTask=1", {"cpus_per_task": 1}, 0),
        ("CPUsPerTask=1", {"cpus_per_task": 1, "mem_mib_per_node": 8000}, 1),
        ("TresPerNode=gres:gpu:1", {"gpus_per_node": 1}, 0),
        ("TresPerNode=gres:gpu:1", {"gpus_per_node": 1, "cpus_per_task": 1}, 1),
        ("NumNodes=2", {"nodes": 2}, 0),
        ("NumNodes=2", {"nodes": 2, "cpus_per_task": 4}, 0),
        ("NumNodes=2", {"nodes": 2, "gpus_per_node": 1}, 1),
        ("NumNodes=2", {"nodes": 2, "mem_mib_per_node": 2000}, 1),
        ("Nice=10", {"gpus_per_node": 1}, 1),
    ],
)
def test_only_what_a_user_has_set_may_differ_from_what_was_decided(
    word: str, given: dict[str, int], problems: int
) -> None:
    other = ended(msgspec.structs.replace(SMALLER, **given))
    happened = {0: Happened(("PENDING Resources",), 0, "", 20.0)}
    found = floor(
        job_with(tasks={"": other}, events=happened, runs={}),
        job_without(events=happened, runs={}),
        planned(UserEvent("update", 5.0, (word,))),
    )
    assert len([text for text in texts(found) if "instead of" in text]) == problems


def test_a_size_other_than_decided_is_told() -> None:
    assert "instead of" in texts(floor(job_with(tasks={"": ended(LARGER)})))[0]
    outside = msgspec.structs.replace(job_with().decisions[0], allocation=msgspec.structs.replace(LARGER, nodes=2))
    assert "allowed are (1, 2, 4, 8)" in texts(floor(job_with(decisions=(outside,))))[0]
    for words, is_right in (("gpus=1-2 mem-per-gpu=1G-8G", True), ("gpus=1-1", False)):  # whatever rlalloc reads
        plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, directive=words),))
        assert is_right != any(
            "its user allows 1 to 1" in text for text in texts(floor(job_with(SMALLER), None, plan))
        )


def test_an_environment_of_the_request_is_told() -> None:
    stale = run_of(batch_of(SMALLER, 21, **{**ours(SMALLER, 21), "RLALLOC_GPUS": "4"}))
    assert [text.split()[:4] for text in texts(floor(job_with(runs={"0.0": stale})))] == [
        ["batch:", "RLALLOC_GPUS", "is", "'4',"],
        ["step:", "RLALLOC_GPUS", "is", "'4',"],
    ]


def test_a_step_that_fails_or_launches_another_number_of_tasks_is_told() -> None:
    run = job_with().runs["0.0"]
    failed = msgspec.structs.replace(run, steps={}, status="1", errors="srun: error")
    assert texts(floor(job_with(runs={"0.0": failed})))[0] == (
        "srun ended with 1 (srun: error), without rlalloc with 0"
    )
    twice = msgspec.structs.replace(run, steps={0: run.steps[0], 1: run.steps[0]})
    assert "srun launched 2 tasks, expected 1" in texts(floor(job_with(runs={"0.0": twice})))


def test_a_journal_that_lost_a_job_is_told() -> None:
    decided = job_with().decisions[0]
    lost = msgspec.structs.replace(decided.updates[0], state="lost", detail="it started as neither")
    job = job_with(REQUEST, decisions=(msgspec.structs.replace(decided, updates=(lost,)),))
    assert "the journal says lost: it started as neither" in texts(floor(job))


CHANGED = msgspec.structs.replace(
    PLAN,
    submissions=(msgspec.structs.replace(SUBMISSION, events=(UserEvent("update", 3.0, ("MinMemoryNode=3000",)),)),),
)
PENDING = Happened(("PENDING JobHeldUser",), 0, "", 12.5)


def after_update(mib: str, happened: Happened, job: TwinJob) -> TwinJob:
    (fields,) = job.records
    return msgspec.structs.replace(job, records=({**fields, "MinMemoryNode": mib},), events={0: happened})


def test_a_users_own_update_wins() -> None:
    without = after_update("3000M", PENDING, job_without())
    assert texts(floor(after_update("3000M", PENDING, job_with()), without, CHANGED)) == []
    lost = texts(floor(after_update("4000M", PENDING, job_with()), without, CHANGED))
    assert lost == ["update MinMemoryNode=3000: MinMemoryNode is ['4000M'], without rlalloc ['3000M']"]
    refused = msgspec.structs.replace(PENDING, status=1, said="Invalid generic resource specification")
    assert "Invalid generic" in texts(floor(after_update("3000M", refused, job_with()), without, CHANGED))[0]


def test_an_update_between_verification_and_release_wins() -> None:
    """The journal dates rlalloc's update by the release."""
    events = (UserEvent("update", 3.0, ("TresPerNode=gres:gpu:1",)),)
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=events),))
    one = msgspec.structs.replace(SMALLER, gpus_per_node=1)
    of_user = {**ours(SMALLER, 21), "RLALLOC_GPUS": "1", "RLALLOC_GPUS_PER_NODE": "1", "RLALLOC_DP": "1"}
    runs = {"0.0": run_of(batch_of(one, 21, **of_user))}
    job = job_with(at_s=12.54, tasks={"": ended(one)}, runs=runs, events={0: PENDING})
    without = job_without(events={0: PENDING})
    shown = [
        msgspec.structs.replace(each, records=({**each.records[0], "TresPerNode": "gres/gpu:1"},))
        for each in (job, without)
    ]
    assert texts(floor(shown[0], shown[1], plan)) == []
    assert "instead of" in texts(floor(job, without, plan))[0]


def test_a_limit_that_was_set_between_verification_and_release_stays() -> None:
    events = (UserEvent("update", 3.0, ("TimeLimit=3",)),)
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=events),))
    shorter = msgspec.structs.replace(ended(SMALLER), limit_min="3")
    job, without = job_with(at_s=12.54, tasks={"": shorter}, events={0: PENDING}), job_without(events={0: PENDING})
    shown = [
        msgspec.structs.replace(each, records=({**each.records[0], "TimeLimit": "00:03:00"},))
        for each in (job, without)
    ]
    assert texts(floor(shown[0], shown[1], plan)) == []
    assert "its limit is 3 min" in " ".join(texts(floor(job, without, plan)))


def test_an_update_to_what_the_job_had_leaves_no_trace() -> None:
    """It came between decision and update: slurmctld looks the same with it and without."""
    without = after_update("8000M", PENDING, job_without())
    overwritten = after_update("4000M", PENDING, job_with(at_s=PENDING.at_s - 1.5))
    decided = overwritten.decisions[0]
    late = msgspec.structs.replace(decided.updates[0], at_s=PENDING.at_s + 0.5)
    overwritten = msgspec.structs.replace(overwritten, decisions=(msgspec.structs.replace(decided, updates=(late,)),))
    assert "MinMemoryNode" in texts(floor(overwritten, without, CHANGED))[0]
    event = UserEvent("update", 3.0, ("MinMemoryNode=8000",))
    same = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(event,)),))
    assert texts(floor(overwritten, without, same)) == []
    before = msgspec.structs.replace(decided.updates[0], at_s=PENDING.at_s - 1.0)
    early = msgspec.structs.replace(overwritten, decisions=(msgspec.structs.replace(decided, updates=(before,)),))
    assert "MinMemoryNode" in texts(floor(early, without, same))[0]


def test_a_script_that_was_not_read_has_a_plan_or_none() -> None:
    """On a busy machine the plugin stops reading a script; rlallocd may read it later."""
    planless = {**ours(SMALLER, 21), "RLALLOC_DP": None, "RLALLOC_TP": None, "RLALLOC_PP": None}
    job = job_with(runs={"0.0": run_of(batch_of(SMALLER, 21, **planless))})
    assert "RLALLOC_DP is not there" in texts(floor(job))[0]
    unread = msgspec.structs.replace(job, records=({**job.records[0], "AdminComment": f"{TAG};words=too-long"},))
    assert texts(floor(unread)) == []


def test_cpus_of_a_task_that_a_user_has_set_since_are_those_of_its_environment() -> None:
    events = (UserEvent("update", 3.0, ("CPUsPerTask=1",)),)
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=events),))
    without = job_without(runs={"0.0": run_of(batch_of(REQUEST, 11, SLURM_CPUS_PER_TASK="1"))})
    set_by_user = {**ours(SMALLER, 21), "RLALLOC_CPUS_PER_TASK": "1", "SLURM_CPUS_PER_TASK": "1"}
    job = job_with(SMALLER, runs={"0.0": run_of(batch_of(SMALLER, 21, **set_by_user))})
    twins = [
        msgspec.structs.replace(each, events={0: PENDING}, records=({**each.records[0], "CPUs/Task": "1"},))
        for each in (job, without)
    ]
    assert texts(floor(twins[0], twins[1], plan)) == []
    assert "expected '2'" in texts(floor(job, without))[0]


def test_cpus_of_a_task_are_no_more_than_a_user_has_left_to_its_node() -> None:
    left = msgspec.structs.replace(LARGER, cpus_per_task=6)
    shown = {"TresPerNode": "gres:gpu:8", "MinCPUsNode": "6", "NumTasks": "1", "CPUs/Task": "8"}
    events = (UserEvent("update", 3.0, ("MinCPUsNode=6",)),)
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=events),))
    for cpus, is_right in ((6, True), (8, False)):
        stated = {**ours(left, 21), "RLALLOC_CPUS_PER_TASK": str(cpus), "SLURM_CPUS_PER_TASK": str(cpus)}
        job = job_with(LARGER, tasks={"": ended(left)}, runs={"0.0": run_of(batch_of(left, 21, **stated))})
        job, without = (
            msgspec.structs.replace(each, events={0: PENDING}, records=({**each.records[0], **shown},))
            for each in (job, job_without())
        )
        found = texts(floor(job, without, plan))
        assert is_right != any("CPUS_PER_TASK is '8', expected '6'" in text for text in found)


def test_a_run_on_a_node_with_fewer_gpus_than_the_last_is_right() -> None:
    """Of an exclusive job that was requeued: accounting knows the last run only."""
    own = msgspec.structs.replace(SUBMISSION, options=("-N1", "--gres=gpu:2", "--exclusive"))
    plan = msgspec.structs.replace(PLAN, submissions=(own,))
    runs = {"0.0": run_of(batch_of(SMALLER, 21, **ours(SMALLER, 21), SLURM_MEM_PER_NODE="8000"))}
    found = texts(floor(job_with(REQUEST, decisions=(), runs=runs), job_without(), plan))
    assert not [text for text in found if "RLALLOC_GPUS" in text]


def test_a_run_that_was_ended_before_it_wrote_its_environment_is_not_compared() -> None:
    """It was requeued; the last run of a job that completed has to have one."""
    job, without = job_with(), job_without()
    empty = Run(batch={})
    first, second = (
        msgspec.structs.replace(each, runs={"0.0": empty, "0.1": each.runs["0.0"]}) for each in (job, without)
    )
    assert texts(floor(first, second)) == []
    unseen = msgspec.structs.replace(job, runs={"0.1": job.runs["0.0"]})
    assert texts(floor(unseen, second)) == []
    twice = msgspec.structs.replace(job, runs={"0.0": job.runs["0.0"], "0.1": job.runs["0.0"]})
    assert texts(floor(twice, without)) == ["it ran as ['0.0', '0.1'], without rlalloc ['0.0']"]
    never = msgspec.structs.replace(job, runs={"0.0": empty})
    assert texts(floor(never, without)) == ["its run 0.0 wrote no environment"]


RUNNING = Happened(("RUNNING None",), 1, "Job is no longer pending execution", 12.5)


def planned(*events: UserEvent, exit_status: int = 0) -> Plan:
    submission = msgspec.structs.replace(SUBMISSION, events=events, exit_status=exit_status)
    return msgspec.structs.replace(PLAN, submissions=(submission,))


def test_a_job_that_a_user_met_in_another_state_is_not_compared() -> None:
    without = after_update("3000M", RUNNING, job_without())
    found = floor(after_update("3000M", PENDING, job_with(tasks={"": ended(LARGER)})), without, CHANGED)
    assert texts(found) == []
    assert found.counts == {"jobs": 1, "an event found them in different states": 1}


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "CANCELLED"])
def test_a_bad_end_that_the_twin_has_not_is_told_whatever_state_the_user_met_the_job_in(state: str) -> None:
    without = after_update("3000M", RUNNING, job_without())
    bad = after_update("3000M", PENDING, job_with(tasks={"": ended(SMALLER, state)}))
    (problem,) = texts(floor(bad, without, CHANGED))
    assert problem.startswith(f"it ended {state} ")
    assert problem.endswith(", without rlalloc COMPLETED")
    same = msgspec.structs.replace(without, tasks={"": ended(REQUEST, state)})
    assert texts(floor(bad, same, CHANGED)) == []


def test_a_users_cancel_explains_the_end_of_a_job_and_a_script_that_fails_its_own() -> None:
    waiting, running = (Happened((state,), 0, "", 12.5) for state in ("PENDING Priority", "RUNNING None"))
    cancel = UserEvent("cancel", 0.0)
    cancelled = job_with(tasks={"": ended(SMALLER, "CANCELLED")}, events={0: waiting})
    without = job_without(events={0: Happened(("GONE",), 0, "", 12.5)})
    assert texts(floor(cancelled, without, planned(cancel))) == []
    killed = job_with(tasks={"": ended(SMALLER, "OUT_OF_MEMORY")}, events={0: running})
    assert "it ended OUT_OF_MEMORY" in texts(floor(killed, without, planned(cancel)))[0]
    for task in ("", "_[1-4%2]"):
        twin = job_without(tasks={task: ended(REQUEST, "CANCELLED")}, events={0: waiting})
        assert texts(floor(killed, twin, planned(cancel))) == []
    failed = job_with(tasks={"": ended(SMALLER, "FAILED")}, events={0: RUNNING})
    stuck = job_without(tasks={"": ended(REQUEST, "CANCELLED")}, stuck="BadConstraints", events={0: PENDING})
    hold = UserEvent("hold", 0.0)
    assert texts(floor(failed, stuck, planned(hold, exit_status=1))) == []
    assert texts(floor(failed, stuck, planned(hold))) == ["it ended FAILED 1:0, without rlalloc CANCELLED"]


def test_a_job_that_only_rlalloc_refuses_is_told_though_its_user_could_not_change_it() -> None:
    refused = job_with(job_id=None, refused="sbatch: error", tasks={}, runs={}, decisions=())
    assert texts(floor(refused, after_update("3000M", PENDING, job_without()), CHANGED)) == [
        "sbatch said 'sbatch: error', without rlalloc ''"
    ]


def test_a_job_that_is_not_compared_submits_the_job_inside_if_it_completes() -> None:
    off = record("off", after_update("3000M", RUNNING, job_without()), job_without(key="j1-inner"))
    met = after_update("3000M", PENDING, job_with())
    assert texts(compare(CHANGED, off, record("random", met))) == ["it was not submitted with rlalloc"]
    stuck = msgspec.structs.replace(met, tasks={}, stuck="Resources", decisions=(), records=LEFT_ALONE)
    assert texts(compare(CHANGED, off, record("random", stuck))) == []
    bad = job_with(key="j1-inner", tasks={"": ended(SMALLER, "OUT_OF_MEMORY")})
    assert "it ended OUT_OF_MEMORY" in texts(compare(CHANGED, off, record("random", met, bad)))[0]
    lone = compare(CHANGED, record("off", off.jobs[0]), record("random", met, bad))
    assert texts(lone) == ["it ended OUT_OF_MEMORY 0:0, without rlalloc no such task"]


@pytest.mark.parametrize(("end", "problems"), [("COMPLETED", 1), ("CANCELLED", 0)])
def test_what_waits_for_a_job_that_its_user_ended_on_one_site_only_is_not_told(end: str, problems: int) -> None:
    later = msgspec.structs.replace(SUBMISSION, key="j2", after=("j1", "afterok"))
    plan = planned(UserEvent("cancel", 0.0))
    plan = msgspec.structs.replace(plan, submissions=(*plan.submissions, later))
    off = record("off", job_without(events={0: Happened(("GONE",), 0, "", 20.0)}), job_without(key="j2"))
    first = job_with(events={0: Happened(("RUNNING None",), 0, "", 16.0)}, tasks={"": ended(SMALLER, end)})
    waits = job_with(key="j2", tasks={}, stuck="DependencyNeverSatisfied")
    assert len(texts(compare(plan, off, record("random", first, waits)))) == problems


@pytest.mark.parametrize(("started_s", "problems"), [(12.0, []), (13.5, ["MinMemoryNode"])])
def test_an_update_of_a_job_that_had_just_started_is_not_compared(started_s: float, problems: list[str]) -> None:
    """Slurm accepts a new name for a running job, which keeps the old one. Accounting knows seconds only."""
    found_waiting = msgspec.structs.replace(PENDING, at_s=14.0)
    without = after_update("3000M", found_waiting, job_without(tasks={"": ended(REQUEST, started_s=20.0)}))
    late = after_update("4000M", found_waiting, job_with(tasks={"": ended(SMALLER, started_s=started_s)}))
    assert [text.split("=")[0].split()[-1] for text in texts(floor(late, without, CHANGED))] == problems


def test_an_event_that_met_other_tasks_of_an_array_is_not_compared() -> None:
    first = "{0}_1-2: No error\n{0}_3-4: Job is pending execution"
    met = Happened(("PENDING JobArrayTaskLimit", "RUNNING None"), 1, first.format(11), 14.0)
    other = Happened(
        ("PENDING Resources", "RUNNING None"), 1, "21_1: No error\n21_2-4: Job is pending execution", 14.0
    )
    job = job_with(tasks={"_1": ended(LARGER)}, runs={})
    without = job_without(tasks={"_1": ended(REQUEST)}, runs={}, events={0: met})
    assert texts(floor(msgspec.structs.replace(job, events={0: other}), without, CHANGED)) == []
    same = msgspec.structs.replace(met, said=first.format(21))
    compared = texts(floor(msgspec.structs.replace(job, events={0: same}), without, CHANGED))
    assert any("it was given" in text for text in compared)


def test_an_update_of_those_tasks_of_an_array_that_still_wait_wins() -> None:
    """For the others, scontrol ends with an error."""
    said = "{0}_1: Job is no longer pending execution\n{0}_2: No error"
    met = Happened(("PENDING JobArrayTaskLimit", "RUNNING None"), 1, said.format(11), 14.0)
    changed = msgspec.structs.replace(SMALLER, mem_mib_per_node=3000)
    without = job_without(tasks={"_1": ended(REQUEST), "_2": ended(REQUEST)}, runs={}, events={0: met})
    job = job_with(tasks={"_1": ended(SMALLER), "_2": ended(changed)}, runs={})
    done = msgspec.structs.replace(met, said=said.format(21))
    assert texts(floor(msgspec.structs.replace(job, events={0: done}), without, CHANGED)) == []
    assert "it was given" in texts(floor(job, msgspec.structs.replace(without, events={}), CHANGED))[0]


def test_an_update_for_which_slurm_names_only_the_tasks_that_had_ended_has_changed_the_others() -> None:
    """As 24.11 does. If all had ended, nothing was changed."""
    met = Happened(("PENDING JobHeldUser",), 1, "11_1: Job has already finished", 14.0)
    changed = msgspec.structs.replace(SMALLER, mem_mib_per_node=3000)
    without = job_without(tasks={"_1": ended(REQUEST), "_2": ended(REQUEST)}, runs={}, events={0: met})
    job = job_with(tasks={"_1": ended(SMALLER), "_2": ended(changed)}, runs={}, events={0: met})
    assert texts(floor(job, without, CHANGED)) == []
    all_ended = {0: msgspec.structs.replace(met, states=("COMPLETED None",))}
    twin = msgspec.structs.replace(without, events=all_ended)
    assert "it was given" in texts(floor(msgspec.structs.replace(job, events=all_ended), twin, CHANGED))[0]


def test_a_run_before_the_last_one_may_have_had_other_nodes() -> None:
    """Where Slurm chooses how much a job gets. Accounting has the last run only."""
    size = msgspec.structs.replace(REQUEST, nodes=2)
    unchanged = {**ours(size, 21), "SLURM_SET_BY_RLALLOC": "21"}
    first, last = (run_of(batch_of(size, 21, **unchanged | {"RLALLOC_GPUS": gpus})) for gpus in ("12", "8"))
    job = job_with(size, decisions=(), runs={"0.0": first, "0.1": last})
    plain = run_of(batch_of(size, 11))
    without = job_without(tasks={"": ended(size)}, runs={"0.0": plain, "0.1": plain})
    assert any("RLALLOC_GPUS is '12'" in text for text in texts(floor(job, without)))
    submission = msgspec.structs.replace(SUBMISSION, options=(*SUBMISSION.options, "--exclusive"))
    plan = msgspec.structs.replace(PLAN, submissions=(submission,))
    assert texts(floor(job, without, plan)) == []
    wrong = msgspec.structs.replace(job, runs={"0.0": last, "0.1": first})
    assert any("RLALLOC_GPUS is '12'" in text for text in texts(floor(wrong, without, plan)))


def test_tasks_of_an_array_that_began_before_the_request_came_back_have_the_decided_size() -> None:
    decided = job_with().decisions[0]
    restored = msgspec.structs.replace(decided.updates[0], state="restored")
    tasks = {"_1": ended(SMALLER), "_2": ended(REQUEST)}
    job = job_with(tasks=tasks, runs={}, decisions=(msgspec.structs.replace(decided, updates=(restored,)),))
    without = job_without(tasks={"_1": ended(REQUEST), "_2": ended(REQUEST)}, runs={})
    assert texts(floor(job, without)) == []
    neither = msgspec.structs.replace(job, tasks={**tasks, "_1": ended(LARGER)})
    assert "it was given" in texts(floor(neither, without))[0]


def test_a_job_that_completes_only_with_rlalloc_is_counted() -> None:
    """Its user set fewer CPUs than its task has, and srun waited for them until the limit."""
    found = floor(job_with(), job_without(tasks={"": ended(REQUEST, "TIMEOUT")}))
    assert texts(found) == []
    assert found.counts["TIMEOUT without rlalloc, COMPLETED with it"] == 1
    assert texts(floor(job_with(tasks={"": ended(SMALLER, "TIMEOUT")})))


NODES_NAMED = msgspec.structs.replace(
    PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(UserEvent("update", 3.0, ("ReqNodeList=n4",)),)),)
)
OTHER_NODES = Happened(("PENDING Priority",), 1, "Invalid node name specified for job 21", 14.0)


def test_nodes_that_a_user_named_for_a_job_that_had_just_started_are_not_compared() -> None:
    without = job_without(events={0: Happened(("PENDING None",), 0, "", 12.5)}, tasks={"": ended(REQUEST)})
    started = job_with(events={0: OTHER_NODES})
    assert texts(floor(started, without, NODES_NAMED)) == []
    waiting = job_with(events={0: OTHER_NODES}, tasks={"": ended(SMALLER, started_s=15.0)})
    assert "Invalid node name" in texts(floor(waiting, without, NODES_NAMED))[0]


MOVED = msgspec.structs.replace(
    PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(UserEvent("update", 3.0, ("Partition=fast",)),)),)
)
NOT_ALLOWED = Happened(
    ("PENDING Priority",), 1, "Job violates accounting/QOS policy (job submit limit, …) for job 21", 12.5
)


def test_a_resized_job_may_not_move_to_other_limits() -> None:
    without = job_without(events={0: Happened(("PENDING Priority",), 0, "", 12.5)})
    assert texts(floor(job_with(events={0: NOT_ALLOWED}), without, MOVED)) == []
    let_go_s = job_with().decisions[0].updates[0].at_s
    for after_s, is_right in ((-0.5, True), (-1.5, False)):
        refused = msgspec.structs.replace(NOT_ALLOWED, at_s=let_go_s + after_s)
        assert (texts(floor(job_with(events={0: refused}), without, MOVED)) == []) == is_right
    untouched = job_with(REQUEST, events={0: NOT_ALLOWED}, decisions=())
    assert "Partition=fast: 'Job violates" in texts(floor(untouched, without, MOVED))[0]
    other = msgspec.structs.replace(NOT_ALLOWED, said="Invalid partition name specified")
    assert "Invalid partition" in texts(floor(job_with(events={0: other}), without, MOVED))[0]


def started_in(partition: str, job: TwinJob) -> TwinJob:
    """The partition in the environments, as 24.11 gives it."""
    return with_variable("SLURM_JOB_PARTITION", partition, job)


def with_variable(name: str, value: str, job: TwinJob) -> TwinJob:
    (run,) = job.runs.values()
    batch, step = ({**each, name: value} for each in (run.batch, run.steps[0]))
    return msgspec.structs.replace(job, runs={"0.0": msgspec.structs.replace(run, batch=batch, steps={0: step})})


def test_of_several_partitions_a_job_may_start_in_another_one() -> None:
    with_rlalloc, without = started_in("fast", job_with()), started_in("gpu", job_without())
    assert "SLURM_JOB_PARTITION" in texts(floor(with_rlalloc, without))[0]
    lines = ("--partition=fast,gpu",)
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, lines=lines),))
    assert texts(floor(with_rlalloc, without, plan)) == []
    (problem,) = texts(floor(started_in("other", job_with()), without, plan))
    assert "its environment names ['other'], which are no partitions of the job" in problem


def test_a_job_that_was_renamed_as_it_started_may_have_either_name() -> None:
    with_rlalloc, without = (
        with_variable("SLURM_JOB_NAME", name, job) for name, job in (("new", job_with()), ("old", job_without()))
    )
    assert "SLURM_JOB_NAME" in texts(floor(with_rlalloc, without))[0]
    event = UserEvent("update", 0.0, ("JobName=new",))
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(event,)),))
    assert texts(floor(with_rlalloc, without, plan)) == []
    (problem,) = texts(floor(with_variable("SLURM_JOB_NAME", "other", job_with()), without, plan))
    assert "its environment has ['other'] as names of the job" in problem


def test_a_job_whose_move_was_refused_starts_in_its_partition() -> None:
    moved = Happened(("PENDING Priority",), 0, "", 12.5)
    with_rlalloc = started_in("gpu", job_with(events={0: NOT_ALLOWED}))
    without = started_in("fast", job_without(events={0: moved}))
    assert texts(floor(with_rlalloc, without, MOVED)) == []
    lost = msgspec.structs.replace(with_rlalloc, events={0: moved})
    assert any("SLURM_JOB_PARTITION" in text for text in texts(floor(lost, without, MOVED)))


def test_a_job_with_its_request_back_has_the_cpus_of_its_tasks_whatever_minimum_its_user_set() -> None:
    """If the minimum is lower, Slurm gives a job fewer CPUs than its tasks ask for."""
    event = UserEvent("update", 3.0, ("MinCPUsNode=1",))
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(event,)),))
    fewer, more = (msgspec.structs.replace(REQUEST, cpus_per_task=cpus) for cpus in (1, 16))
    (decided,) = job_with().decisions
    restored = msgspec.structs.replace(decided.updates[0], state="restored")
    decisions = (msgspec.structs.replace(decided, updates=(restored,)),)
    back, twin = job_with(REQUEST, decisions=decisions), job_without(tasks={"": ended(fewer)})
    assert not [text for text in texts(floor(back, twin, plan)) if "it was given" in text]
    assert "it was given" in texts(floor(back, twin))[0]
    for other, without in (
        (job_with(fewer, decisions=decisions), job_without()),
        (job_with(more, decisions=decisions), twin),
        (job_with(REQUEST, decisions=()), twin),
    ):
        assert "it was given" in texts(floor(other, without, plan))[0]


MORE_NODES = msgspec.structs.replace(
    PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(UserEvent("update", 3.0, ("NumNodes=2",)),)),)
)
DOUBLED = Happened(("PENDING JobHeldUser",), 1, "Node count specification invalid for job 21", 4.0)
TWICE = msgspec.structs.replace(REQUEST, cpus_per_task=2 * REQUEST.cpus_per_task)


def test_cpus_that_slurm_adds_with_a_refused_update_are_not_compared_where_the_request_came_back() -> None:
    without = job_without(events={0: DOUBLED}, tasks={"": ended(TWICE)})
    restored = job_with(REQUEST, events={0: DOUBLED}, decisions=job_with(SMALLER).decisions)
    restored = msgspec.structs.replace(
        restored,
        decisions=tuple(
            msgspec.structs.replace(
                each, updates=tuple(msgspec.structs.replace(update, state="restored") for update in each.updates)
            )
            for each in restored.decisions
        ),
    )
    assert texts(floor(restored, without, MORE_NODES)) == []
    untouched = job_with(REQUEST, events={0: DOUBLED}, decisions=())
    assert "it was given" in texts(floor(untouched, without, MORE_NODES))[0]


def test_a_job_that_starts_with_the_decided_cpus_doubled_is_not_compared_in_full() -> None:
    """It started before the cycle that would have given it its request back; a bad end is told all the same."""
    without = job_without(events={0: DOUBLED}, tasks={"": ended(TWICE)})
    doubled = msgspec.structs.replace(SMALLER, cpus_per_task=2 * SMALLER.cpus_per_task)
    begun = job_with(events={0: DOUBLED}, tasks={"": ended(doubled)})
    found = floor(begun, without, MORE_NODES)
    assert texts(found) == []
    assert found.counts["an event found them in different states"] == 1
    timeout = {"": msgspec.structs.replace(ended(doubled), state="TIMEOUT")}
    assert texts(floor(msgspec.structs.replace(begun, tasks=timeout), without, MORE_NODES)) != []


def test_a_size_may_be_refused_while_rlallocd_changes_the_job() -> None:
    without = job_without(events={0: Happened(("PENDING JobHeldUser",), 0, "", 4.0)})
    let_go_s = job_with().decisions[0].updates[0].at_s
    for after_s, is_right in ((-0.1, True), (5.5, True), (7.0, False), (-7.0, False)):
        said = "Resource temporarily unavailable for job 21"
        refused = Happened(("PENDING JobHeldUser",), 1, said, let_go_s + after_s)
        problems = texts(floor(job_with(events={0: refused}), without, MORE_NODES))
        assert (problems == []) == is_right, (after_s, problems)


LEFT_ALONE = ({"AdminComment": "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=7;skip=hint"},)


def test_a_job_that_waits_for_ever_only_with_rlalloc_is_told_unless_rlalloc_left_it_alone() -> None:
    """Its twin had started when the same update came."""
    running = Happened(("PENDING None",), 1, "Requested operation not supported on this system for job 11", 4.0)
    without = job_without(events={0: running})
    stuck = job_with(REQUEST, events={0: DOUBLED}, decisions=(), tasks={}, stuck="Reservation")
    assert texts(floor(stuck, without, MORE_NODES)) == ["it waited for Reservation when nothing else went on"]
    left_alone = floor(msgspec.structs.replace(stuck, records=LEFT_ALONE), without, MORE_NODES)
    assert texts(left_alone) == []
    assert left_alone.counts["never started, and rlalloc had left it alone"] == 1
    changed = msgspec.structs.replace(stuck, records=LEFT_ALONE, decisions=job_with().decisions)
    assert texts(floor(changed, without, MORE_NODES)) != []
    both = msgspec.structs.replace(without, tasks={}, stuck="BadConstraints")
    assert texts(floor(stuck, both, MORE_NODES)) == []
    assert "it waited for Reservation" in texts(floor(stuck, job_without(events={0: DOUBLED}), MORE_NODES))[0]


def test_a_job_that_its_user_keeps_from_all_nodes_is_not_told_unless_rlalloc_changed_it() -> None:
    """Its twin had started when the same update came."""
    event = UserEvent("update", 0.0, ("Features=slow|v100",))
    plan = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(event,)),))
    without = job_without(events={0: Happened(("RUNNING None",), 1, "Job is no longer pending", 4.0)})
    record_of = {"Partition": "gpu", "ReqNodeList": "n[2-3]", "Features": "slow|v100", "AdminComment": TAG}
    stuck = job_with(
        REQUEST,
        events={0: Happened(("PENDING BeginTime",), 0, "", 4.0)},
        records=(record_of,),
        decisions=(msgspec.structs.replace(job_with().decisions[0], updates=()),),
        tasks={},
        stuck="BadConstraints",
    )
    barred = floor(stuck, without, plan)
    assert texts(barred) == []
    assert barred.counts["never started after its user's update, which came too late for its twin"] == 1
    resized = msgspec.structs.replace(stuck, decisions=job_with().decisions)
    elsewhere = msgspec.structs.replace(stuck, records=({**record_of, "ReqNodeList": "n4"},))
    for told in (resized, elsewhere):
        assert texts(floor(told, without, plan)) == ["it waited for BadConstraints when nothing else went on"]
    assert texts(floor(stuck, without, MORE_NODES)) == ["it waited for BadConstraints when nothing else went on"]


def test_a_job_that_ends_otherwise_only_with_rlalloc_is_told_unless_rlalloc_left_it_alone() -> None:
    """On 24.11, its srun waits for its CPUs per task after MinCPUsNode=1, which came too late for its twin."""
    late = Happened(("RUNNING None",), 1, "Requested operation not supported on this system for job 11", 4.0)
    without = job_without(events={0: late})
    timeout = {"": msgspec.structs.replace(ended(REQUEST), state="TIMEOUT")}
    job = job_with(REQUEST, events={0: DOUBLED}, decisions=(), tasks=timeout)
    assert texts(floor(job, without, MORE_NODES)) == ["it ended TIMEOUT 0:0, without rlalloc COMPLETED"]
    left_alone = floor(msgspec.structs.replace(job, records=LEFT_ALONE), without, MORE_NODES)
    assert texts(left_alone) == []
    assert left_alone.counts["ended otherwise after its user's event, and rlalloc had left it alone"] == 1
    accepted = msgspec.structs.replace(job, events={0: Happened(("PENDING BeginTime",), 0, "", 4.0)})
    event = UserEvent("update", 3.0, ("MinCPUsNode=1",))
    fewer_cpus = msgspec.structs.replace(PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(event,)),))
    in_time = floor(accepted, without, fewer_cpus)
    assert texts(in_time) == []
    assert in_time.counts["ended otherwise after its user's update, which came too late for its twin"] == 1
    resized = msgspec.structs.replace(accepted, decisions=job_with().decisions)
    less = msgspec.structs.replace(accepted, tasks={"": msgspec.structs.replace(ended(SMALLER), state="TIMEOUT")})
    too_late = msgspec.structs.replace(accepted, events={0: Happened(("PENDING BeginTime",), 0, "", 60.0)})
    killed = msgspec.structs.replace(accepted, tasks={"": msgspec.structs.replace(ended(REQUEST), state="NODE_FAIL")})
    for other in (resized, less, too_late, killed):
        assert any(text.startswith("it ended ") for text in texts(floor(other, without, fewer_cpus))), other
    assert any(text.startswith("it ended TIMEOUT") for text in texts(floor(accepted, without, MORE_NODES)))
    changed = msgspec.structs.replace(job, records=LEFT_ALONE, decisions=job_with().decisions)
    assert texts(floor(changed, without, MORE_NODES)) != []


RELEASED = msgspec.structs.replace(
    PLAN, submissions=(msgspec.structs.replace(SUBMISSION, events=(UserEvent("release", 3.0, ()),)),)
)
BY_ADMIN = Happened(("PENDING JobHeldAdmin",), 1, "Access/permission denied for job 21", 14.0)


def held(job: TwinJob, happened: Happened, dependency: str) -> TwinJob:
    return msgspec.structs.replace(job, records=({**job.records[0], "Dependency": dependency},), events={0: happened})


def test_a_hold_that_slurm_made_an_administrators_is_not_compared() -> None:
    """Slurm does so if the dependency has failed. Else, or if rlalloc changed the job, rlalloc may be the cause."""
    failed = "afterok:9(failed)"
    without = held(job_without(), PENDING, failed)
    untouched = job_with(REQUEST, decisions=())
    assert texts(floor(held(untouched, BY_ADMIN, failed), without, RELEASED)) == []
    refused = "release: 'Access/permission denied for job 21', without rlalloc 'accepted'"
    assert refused in texts(floor(held(job_with(), BY_ADMIN, failed), without, RELEASED))
    without = held(job_without(), PENDING, "(null)")
    assert refused in texts(floor(held(untouched, BY_ADMIN, "(null)"), without, RELEASED))
