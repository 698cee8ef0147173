"""Whose jobs rlalloc touches, through daemon and agent: holds, begin times, dependencies, arrays, skipped forms."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlalloc_testbed import USER, Installation, install, start_site
from rlalloc_testbed.installation import PROGRAMS
from rlallocd.submissions.intercept import INTERCEPT_HEADER
from slurm_testbed import Site, wait_until

pytestmark = pytest.mark.slurm

# Certain to be made smaller: the request is above the upper bound of everything.
SCRIPT = """#!/bin/sh
#RLALLOC gpus=1-1 cpus-per-gpu=1-1 mem-per-gpu=1G-1G
: torchrun train.py
env > $HOME/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}.${SLURM_ARRAY_TASK_ID:-0}
"""
SIZE = ("--nodes=1", "--gpus-per-node=2", "--cpus-per-task=4", "--mem=8G", "--time=10")
REQUEST, DECIDED = "gres/gpu=2", "gres/gpu=1"


@pytest.fixture(scope="module")
def whose_site() -> Iterator[Site]:
    many = {"MaxArraySize": "10001", "MaxJobCount": "20000"}
    with start_site(f"whose-{os.getpid()}", nodes=4, extra_slurm_conf=many) as site:
        reservation = ("ReservationName=ours", "Nodes=n4", f"Users={USER}", "StartTime=now", "Duration=60")
        site.run(["scontrol", "create", "reservation", *reservation])
        yield site


@pytest.fixture(scope="module")
def ours(whose_site: Site) -> Iterator[Installation]:
    """Agent and daemon for all tests here, with a grace that nothing outlasts."""
    installation = install(whose_site, grace_s=120)
    installation.start("rlalloc-agent")
    installation.start("rlallocd")
    yield installation
    installation.stop_all()


def _tres(ours: Installation, job_id: int) -> str:
    """The TRES of a job, or of the first part of an array."""
    text = ours.site.run(["scontrol", "show", "job", str(job_id), "--oneliner"]).splitlines()[0]
    found = re.search(r" (?:ReqTRES|TRES)=(\S+)", text)
    assert found is not None
    return found[1]


def _skipped(ours: Installation, job_id: int, name: str) -> None:
    """Skipped by that name, in the store, `rlalloc explain` and the log."""
    decision = ours.decision(job_id)
    assert decision.skip_code == name, decision.reason
    assert ours.explain(job_id)[0]["decision"]["reason"].startswith(f"{name}: ")
    assert f"job {job_id}, enforce: skipped: {name}: " in ours.log("rlallocd")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--deadline=now+3hours",), "deadline"),
        (("--time-min=1",), "time-min"),
        (("--reservation=ours",), "reservation"),
        (("--ntasks-per-socket=1",), "tasks-per-socket"),
        (("--nodes=2", "--ntasks=3"), "uneven"),
        (("--gpus=2",), "several-gpu-options"),
        ((":", "--gpus-per-node=1", "--mem=1G", "--time=10"), "heterogeneous"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_not_resized_is_skipped_by_name_and_runs(
    ours: Installation, options: tuple[str, ...], name: str
) -> None:
    job_id = ours.submit(SCRIPT, *SIZE, *options)
    _skipped(ours, job_id, name)
    ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
    assert DECIDED + "," not in _tres(ours, job_id) + ","


def test_counts_end_with_the_partition_and_suit_the_tasks(ours: Installation) -> None:
    """A range without end is decided at once; two tasks never share one GPU where each had its own."""
    script = SCRIPT.replace("gpus=1-1", "gpus=1-9999999").replace("mem-per-gpu=1G-1G", "mem-per-gpu=1M")
    job_id = ours.submit(script, "--ntasks=2", "--gpus-per-task=2", "--nodes=1", "--mem=8G", "--time=10")
    decision = ours.decision(job_id)
    assert decision.bounds is not None, decision.reason
    assert decision.bounds.gpu_counts[0] == 2
    assert all(count % 2 == 0 for count in decision.bounds.gpu_counts)
    assert decision.bounds.gpus.maximum_from == "partition"
    assert decision.bounds.mem_mib_per_gpu.minimum == 1024
    assert decision.bounds.mem_mib_per_gpu.minimum_from == "default"
    ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)


def test_salloc_and_srun_are_not_touched(ours: Installation) -> None:
    words = ["srun", *SIZE, "sh", "-c", "echo $SLURM_JOB_ID $SLURM_GPUS_ON_NODE"]
    job_id, gpus = ours.site.run(words, user=USER, timeout_s=120).split()
    assert gpus == "2"
    assert ours.job(int(job_id)).get("AdminComment", "") == ""
    assert "a job without a script" in _why_undecided(ours, int(job_id))


def _why_undecided(ours: Installation, job_id: int) -> str:
    """What `rlalloc explain` says of a job without a decision to its user, who can read neither file nor store.

    slurmdbd learns of a job some seconds after slurmctld.
    """
    private = ours.site.directory / "private"
    private.mkdir(mode=0o700, exist_ok=True)
    command = [str(PROGRAMS / "rlalloc"), "explain", str(job_id), "--config", str(private / "rlalloc.yaml")]
    environment = {"RLALLOC_RUNTIME_DIRECTORY": str(ours.runtime)}

    def said() -> str:
        done = ours.site.try_run(
            ["env", *(f"{key}={value}" for key, value in environment.items()), *command], user=USER
        )
        assert done.status == 1, done.output
        text = " ".join(done.error_output.split())
        return "" if "Slurm does not know it" in text or "ask again" in text else text

    return wait_until(said, what=f"slurmdbd knows job {job_id}", timeout_s=60)


@pytest.mark.parametrize(
    ("script", "options", "why"),
    [
        (SCRIPT.replace("gpus=1-1", "off"), SIZE, "its script says #RLALLOC off"),
        ("#!/bin/sh\ntrue\n", SIZE, "none of the commands that tell an LLM job"),
        (SCRIPT, ("--time=10",), "a job without GPUs"),
    ],
)
def test_a_user_is_told_why_the_plugin_left_a_job_alone(
    ours: Installation, script: str, options: tuple[str, ...], why: str
) -> None:
    assert why in _why_undecided(ours, ours.submit(script, *options))


def test_a_user_is_told_of_a_job_that_ended_before_it_was_looked_at(ours: Installation) -> None:
    """It has a tag, and no decision."""
    ours.send("rlallocd", signal.SIGSTOP)
    try:
        job_id = ours.submit(SCRIPT, *SIZE)
        assert "rlalloc:v=1" in ours.job(job_id)["AdminComment"]
        ours.site.run(["scancel", str(job_id)])
        ours.site.wait_for_states([job_id], {"CANCELLED"})
    finally:
        ours.send("rlallocd", signal.SIGCONT)
    assert "it was CANCELLED before it started, and before rlallocd looked" in _why_undecided(ours, job_id)


@pytest.mark.parametrize("holder", ["user", "admin"])
def test_a_held_job_is_resized_and_stays_held(ours: Installation, holder: str) -> None:
    """Only whoever holds a job lets it go."""
    if holder == "user":
        job_id = ours.submit(SCRIPT, *SIZE, "--hold")
    else:
        job_id = ours.submit(SCRIPT, *SIZE, "--begin=now+3hours")
        ours.site.run(["scontrol", "hold", str(job_id)])
    wait_until(lambda: DECIDED in _tres(ours, job_id), what="it is resized", timeout_s=90)
    decision = ours.decision(job_id)
    wait_until(
        lambda: (journal := ours.application(decision)) and journal.state == "begun", what="it is done", timeout_s=90
    )
    assert ours.job(job_id)["Reason"] == ("JobHeldUser" if holder == "user" else "JobHeldAdmin")
    assert ours.job(job_id)["Priority"] == "0"
    ours.site.run(["scontrol", "release", str(job_id)], user=USER if holder == "user" else None)
    if holder == "user":
        ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
        assert DECIDED in _tres(ours, job_id)
    else:
        ours.site.run(["scancel", str(job_id)])


def test_a_dependent_job_is_resized_while_it_waits(ours: Installation) -> None:
    first = ours.submit("#!/bin/sh\ntrue\n", "--hold", "--time=5")
    job_id = ours.submit(SCRIPT, *SIZE, f"--dependency=afterok:{first}")
    wait_until(lambda: DECIDED in _tres(ours, job_id), what="it is resized", timeout_s=90)
    assert ours.job(job_id)["JobState"] == "PENDING"
    ours.site.run(["scontrol", "release", str(first)], user=USER)
    ours.site.wait_for_states([first, job_id], {"COMPLETED"}, timeout_s=120)


def test_an_array_is_one_decision_one_update_and_one_outcome(ours: Installation) -> None:
    job_id = ours.submit(SCRIPT, *SIZE, "--array=1-3")
    assert ours.decision(job_id).allocation is not None
    ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=180)
    for task in (1, 2, 3):
        text = (ours.site.home(USER) / f"{job_id}.{task}").read_text()
        assert "RLALLOC_GPUS=1\n" in text
        assert "SLURM_GPUS_PER_NODE=1\n" in text
    (story,) = wait_until(
        lambda: (told := ours.explain(job_id)) and told[0]["outcome"] and told, what="its outcome", timeout_s=90
    )
    assert (story["outcome"]["state"], story["outcome"]["gpus"]) == ("COMPLETED", 1)
    assert len(story["applications"]) == 1


def test_a_split_array_is_skipped_and_runs(ours: Installation) -> None:
    """Changing one task splits it off; the daemon comes later."""
    ours.stop("rlallocd")
    runtime = ours.runtime / "intercept"
    lines = [INTERCEPT_HEADER, "expires 9999999999", "uptime 9999999999", "grace 120", "class train torchrun"]
    runtime.write_text("\n".join([*lines, "rule llm enforce partitions=* accounts=* classes=train", ""]))
    job_id = ours.submit(SCRIPT, *SIZE, "--array=1-3")
    ours.site.run(["scontrol", "update", f"JobId={job_id}_2", "Nice=5"])
    ours.start("rlallocd")
    _skipped(ours, job_id, "split-array")
    ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=180)
    assert len(ours.explain(job_id)) == 1


def test_an_array_of_ten_thousand_tasks(ours: Installation) -> None:
    job_id = ours.submit(SCRIPT, *SIZE, "--array=1-10000%2")
    wait_until(
        lambda: (journal := ours.application(ours.decision(job_id))) and journal.state == "begun",
        what="it is resized and let go",
        timeout_s=120,
    )
    first = ours.site.home(USER) / f"{job_id}.1"
    wait_until(lambda: first.exists() and "RLALLOC_GPUS=1\n" in first.read_text(), what="a task ran", timeout_s=120)
    ours.site.run(["scancel", str(job_id)])
    assert len(ours.explain(job_id)) == 1


def test_a_requeued_job_keeps_its_size_and_its_decision(ours: Installation) -> None:
    script = SCRIPT + '[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue $SLURM_JOB_ID; sleep 600; }\n'
    job_id = ours.submit(script, *SIZE, "--requeue")
    wait_until(
        lambda: ours.job(job_id)["Reason"] == "BeginTime" and _restarts(ours, job_id),
        what="it waits again",
        timeout_s=120,
    )
    # Only this test cuts Slurm's two minutes short; at once, slurmd would refuse ("Job credential revoked").
    ours.site.run(["scontrol", "update", f"JobId={job_id}", "StartTime=now+5"])
    ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=200)
    assert DECIDED in _tres(ours, job_id)
    (story,) = wait_until(
        lambda: (told := ours.explain(job_id)) and told[0]["outcome"] and told, what="its outcome", timeout_s=90
    )
    assert story["outcome"]["state"] == "COMPLETED"


def test_a_requeued_job_that_is_left_alone_gets_its_request_back(ours: Installation) -> None:
    """Slurm gives it another submit time."""
    job_id = ours.submit(SCRIPT + "sleep 600\n", *SIZE, "--requeue")
    ours.site.wait_for_states([job_id], {"RUNNING"}, timeout_s=120)
    ours.site.run(["scontrol", "requeuehold", str(job_id)])
    ours.site.wait_for_states([job_id], {"PENDING"})
    done = ours.site.run([PROGRAMS / "rlalloc", "off", str(job_id), "--config", str(ours.config_path)])
    assert "it has its request back: 1 node x 2 GPUs" in " ".join(done.split())
    assert REQUEST in _tres(ours, job_id)
    ours.site.run(["scancel", str(job_id)])


def test_a_job_that_runs_as_submitted_in_spite_of_its_decision_is_told(ours: Installation) -> None:
    """As if slurmctld had been killed and had forgotten the update."""
    job_id = ours.submit(SCRIPT + "sleep 600\n", *SIZE, "--hold")
    decision = ours.decision(job_id)
    wait_until(
        lambda: (journal := ours.application(decision)) and journal.state == "begun",
        what="it is resized",
        timeout_s=60,
    )
    request = ("NumCPUs=4", "CPUsPerTask=4", "MinCPUsNode=4", "MinMemoryNode=8192", "TresPerNode=gres:gpu:2")
    ours.site.run(["scontrol", "update", f"JobId={job_id}", *request])
    ours.site.run(["scontrol", "release", str(job_id)])
    explain: list[str | Path] = [PROGRAMS / "rlalloc", "explain", str(job_id), "--config", str(ours.config_path)]
    told = "as submitted: slurmctld had forgotten"
    wait_until(lambda: told in " ".join(ours.site.run(explain).split()), what="sacct has it", timeout_s=90)
    assert told in " ".join(ours.site.run([*explain, "--verbose"]).split())
    ours.site.run(["scancel", str(job_id)])


def test_comments_are_added_to_and_never_replaced(ours: Installation) -> None:
    job_id = ours.submit(SCRIPT, *SIZE, "--hold", "--comment=mine")
    decision = ours.decision(job_id)
    note = f"rlalloc-decision:{decision.id}"
    wait_until(lambda: note in _admin_comment(ours, job_id), what="our note", timeout_s=60)
    assert ours.job(job_id)["Comment"] == "mine"
    assert _admin_comment(ours, job_id).startswith("rlalloc:v=1;")
    ours.site.run(["scancel", str(job_id)])


def _restarts(ours: Installation, job_id: int) -> int:
    return int(ours.job(job_id)["Restarts"])


def _admin_comment(ours: Installation, job_id: int) -> str:
    text = ours.site.run(["scontrol", "show", "job", str(job_id), "--oneliner"])
    found = re.search(r" AdminComment=(.*?) (?:OverSubscribe|StdErr)=", text)
    return found[1] if found else ""


def test_jobs_for_several_clusters_are_skipped(ours: Installation) -> None:
    """By `sbatch -M`, from whichever cluster it comes, or in a federation: Slurm chose the cluster for that size.

    One cluster shows all that slurmctld sees of both.
    """
    cluster = ours.site.name
    job_id = ours.submit(SCRIPT, *SIZE, f"--clusters={cluster}")
    _skipped(ours, job_id, "multi-cluster")
    ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
    assert DECIDED + "," not in _tres(ours, job_id) + ","
    ours.site.run(["sacctmgr", "--immediate", "add", "federation", "all", f"clusters={cluster}"])
    try:
        wait_until(
            lambda: cluster in ours.site.run(["scontrol", "show", "federation"]), what="the federation", timeout_s=60
        )
        job_id = ours.submit(SCRIPT, *SIZE)
        _skipped(ours, job_id, "federation")
        ours.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
        assert DECIDED + "," not in _tres(ours, job_id) + ","
    finally:
        ours.site.run(["sacctmgr", "--immediate", "delete", "federation", "all"])


def test_a_daemon_for_another_cluster_is_refused(ours: Installation) -> None:
    """Its commands would go there. Of a person's environment nothing reaches a command of rlalloc's."""
    done = ours.site.try_run(
        [str(PROGRAMS / "rlallocd"), "--config", str(ours.config_path)], environment={"SLURM_CLUSTERS": "elsewhere"}
    )
    assert done.status == 2
    assert "SLURM_CLUSTERS is set to 'elsewhere'" in done.error_output
    strange = {"SLURM_CLUSTERS": "elsewhere", "SQUEUE_USERS": "nobody", "SQUEUE_STATES": "COMPLETED"}
    held = ours.submit(SCRIPT, *SIZE, "--hold")
    words = [sys.executable, "-c", _READ_JOBS]
    assert str(held) in ours.site.run(words, environment=strange).split()
    ours.site.run(["scancel", str(held)])


_READ_JOBS = (
    "from rlallocd.slurm import Commands, Slurm\nprint(*(job.job_id for job in Slurm(Commands(30), 'cli').jobs()))"
)
