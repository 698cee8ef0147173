"""A job never fares worse for our being broken: faults on a real slurmctld."""

import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from rlalloc.job import Shares
from rlalloc.messages import Decide, PolicyAnswer
from rlalloc.store import Application, Decision, Store
from rlalloc.store.journal_seal import JournalKey
from rlalloc.user_messages import SOCKET_FILE, AskSettings, Settings, ask_daemon
from rlalloc_testbed import USER, Installation, install, start_site
from rlalloc_testbed.installation import PROGRAMS
from rlallocd.slurm import Commands, Slurm
from rlallocd.submissions.intercept import WAKE_FILE
from rlallocd.submissions.request_sizes import size_of
from slurm_testbed import wait_until

from .conftest import MOLDABLE
from .scripted_agent import agent_that_replies, answered

pytestmark = pytest.mark.slurm

ENDED = {"COMPLETED"}
AGENT_SOCKET = "agent.sock"
FEWEST, MOST = Shares(0.0, 0.0, 0.0), Shares(1.0, 1.0, 1.0)
"""One GPU for MOLDABLE, and two."""
VETO = """
local rlalloc = dofile("{rlalloc}")
function slurm_job_submit(job_desc, part_list, submit_uid)
   rlalloc.job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   if job_desc.tres_per_node ~= nil then return slurm.ERROR end
   return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def test_without_the_agent_jobs_go_on_as_submitted(rlalloc: Installation) -> None:
    """One that says nothing (stopped, or swapped out), one that is not there, and one whose socket is gone, too."""
    socket = rlalloc.runtime / AGENT_SOCKET
    for fault, says in (
        (lambda: rlalloc.send("rlalloc-agent", signal.SIGSTOP), "did not answer within"),
        (lambda: rlalloc.stop("rlalloc-agent", signal.SIGKILL), "cannot reach the agent"),
        (socket.unlink, "cannot reach the agent"),
    ):
        fault()
        job_id = rlalloc.submit(MOLDABLE)
        assert says in rlalloc.decision(job_id).reason
        rlalloc.site.wait_for_states([job_id], ENDED)
        assert "gres/gpu=4" in rlalloc.job(job_id)["TRES"]

    rlalloc.start("rlalloc-agent")
    assert rlalloc.decision(rlalloc.submit(MOLDABLE)).reason == ""
    socket.unlink()
    wait_until(socket.is_socket, what="the agent that runs has made its socket again")
    assert rlalloc.decision(rlalloc.submit(MOLDABLE)).reason == ""


NOT_FINITE = (PolicyAnswer(Shares(math.nan, 0.0, 0.0), 0.0), PolicyAnswer(Shares(0.0, 0.0, 0.0), math.inf))


def test_an_answer_without_a_number_is_used_for_no_job_and_breaks_nothing_that_is_kept(
    installed: Installation,
) -> None:
    """One NaN or infinity in the answers for two jobs; rlallocd lives on, starts again, and so do the commands."""
    batches: list[int] = []

    def replies(request: Decide) -> list[list[bytes]]:
        spoilt = NOT_FINITE[len(batches) : len(batches) + 1]
        batches.append(request.jobs)
        return [[answered(request, FEWEST, *spoilt)]]

    with agent_that_replies(replies, installed.runtime / AGENT_SOCKET):
        installed.start("rlallocd")
        spoilt = [job_id for _ in NOT_FINITE for job_id in _decided_in_one_batch(installed)]
        assert batches == [2, 2]
        for job_id in spoilt:
            decision = installed.decision(job_id)
            assert decision.allocation is None
            assert "numbers that are not finite" in decision.reason
        assert installed.stop("rlallocd") == 0
        installed.start("rlallocd")
        (next_id,) = _decided_in_one_batch(installed, 1)
        assert installed.decision(next_id).reason == ""
        installed.site.wait_for_states([*spoilt, next_id], ENDED)
        assert all("gres/gpu=4" in installed.job(job_id)["TRES"] for job_id in spoilt)
        assert "gres/gpu=1" in installed.job(next_id)["TRES"]
        for words in (["status"], ["explain", str(spoilt[0])], ["report"]):
            told = installed.site.try_run([PROGRAMS / "rlalloc", *words, "--config", installed.config_path])
            assert told.status == 0, told


def _decided_in_one_batch(rlalloc: Installation, jobs: int = 2) -> list[int]:
    """Submit jobs that rlallocd sees together, and wait until they are decided."""
    rlalloc.send("rlallocd", signal.SIGSTOP)
    job_ids = [rlalloc.submit(MOLDABLE) for _ in range(jobs)]
    rlalloc.send("rlallocd", signal.SIGCONT)
    for job_id in job_ids:
        rlalloc.decision(job_id)
    return job_ids


def test_replies_that_are_too_long_too_many_or_too_late_spoil_no_later_one(installed: Installation) -> None:
    """Three frames instead of one, and a reply after its deadline, just before the next, with another size."""
    late: list[bytes] = []
    asked: list[int] = []

    def replies(request: Decide) -> list[list[bytes]]:
        asked.append(request.jobs)
        if len(asked) == 1:
            return [[answered(request, MOST), b"spare", b"frames"]]
        if len(asked) == 2:
            late.append(answered(request, MOST))
            return []
        return [late, [answered(request, FEWEST)], late]

    with agent_that_replies(replies, installed.runtime / AGENT_SOCKET):
        installed.start("rlallocd")
        spoilt, late_one, *whole = (_decided_in_one_batch(installed, 1)[0] for _ in range(4))
        assert asked == [1] * 4
        assert "a reply of 3 frames instead of one" in installed.decision(spoilt).reason
        assert "did not answer within" in installed.decision(late_one).reason
        for job_id in whole:
            decision = installed.decision(job_id)
            assert decision.allocation is not None, decision.reason
            assert decision.allocation.gpus == 1
        installed.site.wait_for_states([spoilt, late_one, *whole], ENDED)


def test_without_the_daemon_a_deferred_job_begins_by_itself(rlalloc: Installation) -> None:
    rlalloc.stop("rlallocd", signal.SIGKILL)
    job_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.job(job_id)["Reason"] == "BeginTime"
    assert int(rlalloc.job(job_id)["Priority"]) > 0
    rlalloc.site.wait_for_states([job_id], ENDED)
    assert "gres/gpu=4" in rlalloc.job(job_id)["TRES"]

    rlalloc.start("rlallocd")
    next_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.decision(next_id).reason == ""


def test_a_daemon_started_again_decides_what_still_waits(rlalloc: Installation) -> None:
    rlalloc.write_config(grace_s=60)
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "grace 60" in (rlalloc.runtime / "intercept").read_text(), what="the plugin is told")
    rlalloc.stop("rlallocd", signal.SIGKILL)
    job_id = rlalloc.submit(MOLDABLE)
    rlalloc.start("rlallocd")
    assert rlalloc.decision(job_id).reason == ""
    rlalloc.site.wait_for_states([job_id], ENDED)


def test_a_job_whose_grace_ends_in_an_outage_keeps_its_age(rlalloc: Installation) -> None:
    """Begun once more, it would lose the age in its priority; the job beside it is of that size and none of ours."""
    rlalloc.stop("rlallocd", signal.SIGKILL)
    site, sleeps = rlalloc.site, "#!/bin/sh\nexec sleep 600\n"
    busy = site.sbatch(sleeps, user=USER, options=["-N2", "--exclusive", "--mem=1G", "--time=10"])
    site.wait_for_states([busy], {"RUNNING"})
    job_id = rlalloc.submit(MOLDABLE)
    same = ["--nodes=1", "--gpus-per-node=4", "--ntasks-per-node=1", "--cpus-per-task=32", "--mem=200G", "--time=10"]
    control = site.sbatch(sleeps, user=USER, options=same)

    def lead() -> int:
        queue = site.run(["squeue", "--noheader", f"--jobs={job_id},{control}", "--Format=JobID:20,PriorityLong:20"])
        priorities = dict(line.split() for line in queue.splitlines())
        return int(priorities[str(job_id)]) - int(priorities[str(control)])

    waits = {"Resources", "Priority"}
    wait_until(lambda: {rlalloc.job(each)["Reason"] for each in (job_id, control)} <= waits, what="its grace is over")
    since, ahead = rlalloc.job(job_id)["AccrueTime"], lead()
    rlalloc.start("rlallocd")
    assert rlalloc.decision(job_id).skip_code == "late"
    assert rlalloc.decision(rlalloc.submit(MOLDABLE)).reason == ""  # after more cycles
    assert rlalloc.job(job_id)["AccrueTime"] == since
    assert lead() >= ahead - 1


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_a_deferred_job_is_let_go_at_once_when_rlalloc_is_switched_off(rlalloc: Installation, mode: str) -> None:
    rlalloc.write_config(grace_s=600)
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "grace 600" in (rlalloc.runtime / "intercept").read_text(), what="the plugin is told")
    rlalloc.send("rlallocd", signal.SIGSTOP)
    job_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.job(job_id)["Reason"] == "BeginTime"
    rlalloc.write_config(mode=mode)
    rlalloc.send("rlallocd", signal.SIGHUP)
    rlalloc.send("rlallocd", signal.SIGCONT)
    rlalloc.site.wait_for_states([job_id], ENDED)  # much sooner than its grace
    assert "gres/gpu=4" in rlalloc.job(job_id)["TRES"]
    wait_until(lambda: "let 1 deferred jobs go as they are" in rlalloc.log("rlallocd"), what="it is said")


def command(rlalloc: Installation, *words: str) -> str:
    """What ``rlalloc`` prints to root on this site."""
    done = subprocess.run(
        [PROGRAMS / "rlalloc", *words, "--config", rlalloc.config_path],
        env=rlalloc.site.environment() | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def is_untouched(rlalloc: Installation, job_id: int) -> bool:
    """Whether the plugin left a job alone, which it decides at the submission."""
    return rlalloc.job(job_id).get("AdminComment", "") == ""


def test_the_whole_site_is_switched_off_at_once_and_on_again(rlalloc: Installation) -> None:
    """Even while the daemon is dead, and it stays off when that is started; each place says who and why."""
    rlalloc.write_config(grace_s=600)
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "grace 600" in (rlalloc.runtime / "intercept").read_text(), what="the plugin is told")
    rlalloc.stop("rlallocd", signal.SIGKILL)
    waiting = rlalloc.submit(MOLDABLE)
    assert rlalloc.job(waiting)["Reason"] == "BeginTime"
    assert "say why" in command(rlalloc, "off", "--all")
    assert "rlallocd does not answer" in command(rlalloc, "off", "--all", "--why", "it shrinks too much")
    assert not rlalloc.intercepting()
    assert is_untouched(rlalloc, rlalloc.submit(MOLDABLE))
    rlalloc.start("rlallocd")
    rlalloc.site.wait_for_states([waiting], ENDED)  # much sooner than its grace
    by = "by root (uid 0) because: it shrinks too much"
    assert rlalloc.decision(waiting).reason == f"switched-off: rlalloc was switched off {by}"
    assert f"switched off for the whole site {by}" in rlalloc.log("rlallocd")
    assert is_untouched(rlalloc, rlalloc.submit(MOLDABLE))
    screen = command(rlalloc, "status")
    assert re.match(
        rf"switch +WARN switched off for the whole site since \S+ \S+ {re.escape(by)} -> rlalloc on", screen
    )
    assert "mode enforce is in force" in command(rlalloc, "on")
    assert not command(rlalloc, "status").startswith("switch")
    assert rlalloc.decision(rlalloc.submit(MOLDABLE)).reason == ""
    assert "no job is deferred or changed any more" in command(rlalloc, "off", "--all", "--why", "once more")
    assert is_untouched(rlalloc, rlalloc.submit(MOLDABLE))


def test_when_the_daemon_is_dead_for_long_jobs_are_not_even_deferred(rlalloc: Installation) -> None:
    rlalloc.stop("rlallocd", signal.SIGKILL)
    expires = int((rlalloc.runtime / "intercept").read_text().split("expires ")[1].split()[0])
    wait_until(lambda: time.time() > expires + 1, what="the intercept file has expired")
    job_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.job(job_id).get("AdminComment", "") == ""
    rlalloc.site.wait_for_states([job_id], ENDED)


def test_a_daemon_that_stops_lets_waiting_jobs_go(rlalloc: Installation) -> None:
    assert rlalloc.stop("rlallocd") == 0
    assert not rlalloc.intercepting()
    job_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.job(job_id).get("AdminComment", "") == ""
    rlalloc.site.wait_for_states([job_id], ENDED)


@pytest.mark.parametrize("updated", [False, True])
def test_killed_in_the_middle_of_a_transaction(rlalloc: Installation, *, updated: bool) -> None:
    """Killed after the intent was journalled, or after slurmctld took the update: the journal tells how to go on.

    Agent and trainer may write the store. What one of them says was begun on another job changes nothing.
    """
    rlalloc.write_config(grace_s=60)
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "grace 60" in (rlalloc.runtime / "intercept").read_text(), what="the plugin is told")
    rlalloc.stop("rlalloc-agent", signal.SIGKILL)
    rlalloc.stop("rlallocd", signal.SIGKILL)
    job_id, held = rlalloc.submit(MOLDABLE), rlalloc.submit(MOLDABLE, "--hold")
    _journal_an_intent(rlalloc, job_id)
    _journal_an_intent(rlalloc, held, forged=True)
    if updated:
        rlalloc.site.run(
            [
                "scontrol",
                "update",
                f"JobId={job_id}",
                "NumNodes=1-1",
                "NumTasks=1",
                "TasksPerNode=1",
                "CPUsPerTask=8",
                "NumCPUs=8",
                "MinCPUsNode=8",
                "MinMemoryNode=51200",
                "TresPerNode=gres:gpu:1",
                f"AdminComment={rlalloc.job(job_id)['AdminComment']} rlalloc-decision:journalled-{job_id}",
            ]
        )
    rlalloc.start("rlallocd")
    decision = rlalloc.decision(job_id)
    rlalloc.site.wait_for_states([job_id], ENDED)
    application = rlalloc.application(decision)
    assert application is not None
    assert application.state == ("begun" if updated else "left")
    assert f"gres/gpu={1 if updated else 4}" in rlalloc.job(job_id)["TRES"]
    assert (rlalloc.job(held)["Nice"], "gres/gpu=4" in rlalloc.job(held)["TRES"]) == ("0", True)
    assert "skipped, and further rows with the same fault" in rlalloc.log("rlallocd")
    rlalloc.site.run(["scancel", str(held)])


def test_a_site_that_vetoes_the_update_gets_its_job_as_submitted(tmp_path: Path) -> None:
    script = tmp_path / "job_submit.lua"
    script.write_text(VETO.format(rlalloc=Path(__file__).parents[2] / "slurm_plugin" / "rlalloc.lua"))
    with start_site(f"veto-{os.getpid()}", job_submit_lua=script) as site:
        vetoing = install(site)
        vetoing.start("rlalloc-agent")
        vetoing.start("rlallocd")
        try:
            job_id = vetoing.submit(MOLDABLE)
            decision = vetoing.decision(job_id)
            site.wait_for_states([job_id], ENDED)
            assert "gres/gpu=4" in vetoing.job(job_id)["TRES"]
            application = vetoing.application(decision)
            assert application is not None
            assert application.state == "left"
        finally:
            vetoing.stop_all()


def test_a_wrong_configuration_is_refused_on_reload(rlalloc: Installation) -> None:
    rlalloc.config_path.write_text("mode: sometimes\n")
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "the old one stays in force" in rlalloc.log("rlallocd"), what="the reload is refused")
    rlalloc.write_config()
    job_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.decision(job_id).reason == ""


def test_a_runtime_directory_that_was_removed_comes_back(rlalloc: Installation, tmp_path: Path) -> None:
    """Without it jobs pass as submitted; once somebody makes it again, all works as before."""
    rlalloc.runtime.rename(tmp_path / "removed")  # at once: a deletion file by file would race with rlallocd
    job_id = rlalloc.submit(MOLDABLE)
    rlalloc.site.wait_for_states([job_id], ENDED)
    assert "gres/gpu=4" in rlalloc.job(job_id)["TRES"]
    wait_until(lambda: "cannot renew the intercept file" in rlalloc.log("rlallocd"), what="the daemon says so")
    rlalloc.runtime.mkdir()
    wait_until(rlalloc.intercepting, what="rlallocd intercepts again", timeout_s=60)
    wait_until((rlalloc.runtime / SOCKET_FILE).is_socket, what="users can ask again", timeout_s=60)
    assert isinstance(ask_daemon(rlalloc.runtime, AskSettings()), Settings)
    wait_until((rlalloc.runtime / AGENT_SOCKET).is_socket, what="the agent's socket is back", timeout_s=60)
    wait_until((rlalloc.runtime / WAKE_FILE).exists, what="the plugin can wake it again")
    assert rlalloc.decision(rlalloc.submit(MOLDABLE)).reason == ""


def test_slurmctld_may_come_and_go(rlalloc: Installation) -> None:
    rlalloc.site.kill("slurmctld")
    wait_until(lambda: "Slurm failed" in rlalloc.log("rlallocd"), what="the daemon notices", timeout_s=60)
    rlalloc.site.start_daemon("slurmctld")
    rlalloc.site.wait_for_nodes()
    wait_until(rlalloc.intercepting, what="rlallocd intercepts again", timeout_s=60)
    job_id = rlalloc.submit(MOLDABLE)
    assert rlalloc.decision(job_id).reason == ""
    rlalloc.site.wait_for_states([job_id], ENDED)


def _journal_an_intent(rlalloc: Installation, job_id: int, *, forged: bool = False) -> None:
    """What the daemon writes before it touches Slurm: the decision of an earlier job, for this one.

    ``forged``: what somebody writes who has not the daemon's key, to have it lower the job's nice and its size.
    """
    key = JournalKey(Path(rlalloc.settings["store"]["key_file"]))
    store = Store(rlalloc.settings["store"]["url"], seal=None if forged else key.seal)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PATH", "SLURM_CONF"):  # the site's own commands: it may be of another release
            patch.setenv(name, rlalloc.site.environment()[name])
        job = next(job for job in Slurm(Commands(10), "cli").jobs() if job.job_id == job_id)
    intended = msgspec.structs.replace(size_of(job), gpus_per_node=1, cpus_per_task=8, mem_mib_per_node=51200)
    decision = Decision(
        id=f"journalled-{job_id}",
        job_id=job_id,
        submitted_s=job.submitted_s,
        decided_s=time.time(),
        user=job.user,
        account=job.account,
        partition=job.partition,
        job_name=job.name,
        job_class="train",
        rule="llm",
        mode="enforce",
        reason="",
        request=size_of(job),
        allocation=intended,
    )
    store.add_decisions([decision])
    store.journal(
        [
            Application(
                id=0,
                decision_id=decision.id,
                job_id=job_id,
                state="restoring" if forged else "intended",
                original=intended if forged else size_of(job),
                intended=size_of(job) if forged else intended,
                begin_s=0,
                detail="",
                changed_s=time.time(),
                own_nice=-1000 if forged else None,
                added_nice=1000 if forged else None,
            )
        ]
    )
    store.close()
