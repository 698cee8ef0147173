"""Jobs that wait on a real slurmctld are decided again: in place, when it pays, a few times at most."""

import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rlalloc.job import Allocation, Shares
from rlalloc.store import Decision, JobHistory, JobKey, Store
from rlalloc_testbed import Installation, install, start_site
from slurm_testbed import Site, wait_until

from .scripted_agent import agent_that_answers

pytestmark = pytest.mark.slurm

ENDED = {"COMPLETED"}
PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
REQUEST = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=8 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10
"""
MOLDABLE = f"""{REQUEST}
#RLALLOC gpus=1-8 cpus-per-gpu=2-8 mem-per-gpu=8G-64G
: torchrun train.py
sleep 1
env
"""
RIGID = f"{REQUEST}\n: torchrun train.py\n"
USER = "llm-alice"
HOLDER = "llm-bob"
"""Whose jobs hold GPUs until they are cancelled: no LLM jobs, and of no concern to rlalloc."""
UNTROUBLED = "llm-carol"
"""Runs nothing but what a test measures, so that her fair-share does not move."""
PATIENCE_S = 120.0


VETO = """
local rlalloc = dofile("{rlalloc}")
function slurm_job_submit(job_desc, part_list, submit_uid)
   rlalloc.job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local file = io.open("{veto}")
   if file == nil then return slurm.SUCCESS end
   file:close()
   return slurm.ERROR
end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def veto(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, the site refuses every update of a job."""
    return tmp_path_factory.mktemp("site") / "veto"


@pytest.fixture(scope="module")
def waiting_site(veto: Path) -> Iterator[Site]:
    script = veto.with_name("job_submit.lua")
    script.write_text(VETO.format(rlalloc=PLUGIN / "rlalloc.lua", veto=veto))
    weights = {"PriorityWeightAge": "100000", "PriorityWeightPartition": "100", "PriorityWeightQOS": "100"}
    settings = {**weights, "Licenses": "solver:1"}
    with start_site(
        f"waiting-{os.getpid()}",
        nodes=4,
        scheduler_parameters={"bf_window": "600"},
        extra_slurm_conf=settings,
        job_submit_lua=script,
    ) as site:
        yield site


@pytest.fixture
def rlalloc(waiting_site: Site, veto: Path) -> Iterator[Installation]:
    """A fresh installation that looks at waiting jobs in every cycle; the cluster is idle before and after."""
    installation = install(
        waiting_site, grace_s=60, log_level="debug", redecision={"every_s": 0.5, "change": 0.01, "leave_alone_s": 0}
    )
    for path in waiting_site.directory.glob("store.sqlite*"):
        path.unlink()
    (waiting_site.log_directory / "rlallocd.log").unlink(missing_ok=True)
    installation.start("rlalloc-agent")
    installation.start("rlallocd")
    yield installation
    veto.unlink(missing_ok=True)
    installation.stop_all()
    (installation.runtime / "intercept").unlink(missing_ok=True)
    for user in (HOLDER, USER, UNTROUBLED):
        waiting_site.run(["scancel", "--user", user])
    wait_until(lambda: not waiting_site.run(["squeue", "--noheader"]).strip(), what="the queue is empty")


def test_a_job_whose_node_went_to_another_takes_a_size_that_starts_at_once(rlalloc: Installation) -> None:
    gate = _hold(rlalloc, 0)
    job_id = _submit(rlalloc, MOLDABLE, USER, f"--dependency=afterany:{gate}")
    first = _size_decided(rlalloc, job_id)
    assert first.gpus == 8
    for gpus in (8, 8, 8, 5):
        _hold(rlalloc, gpus)
    _end(rlalloc, gate)
    rlalloc.site.wait_for_states([job_id], ENDED, timeout_s=PATIENCE_S)

    history = _history(rlalloc, job_id)
    one, other = history.decisions
    assert 1 <= history.size.gpus <= 3
    assert f"gres/gpu={history.size.gpus}" in rlalloc.job(job_id)["TRES"]
    assert f"RLALLOC_GPUS={history.size.gpus}\n" in rlalloc.output(job_id)
    assert one.request == other.request
    assert other.predicted_gain is not None
    assert other.predicted_gain >= 0.05
    assert history.applications[-1].original == first
    assert not history.applications[-1].begins

    story = wait_until(
        lambda: (told := rlalloc.explain(job_id)) and told[-1]["outcome"] and told, what="the outcome is kept"
    )
    assert [chapter["in_force"] for chapter in story] == [other.id, other.id]
    assert story[0]["outcome"] is None
    assert story[1]["outcome"]["gpus"] == history.size.gpus
    assert story[1]["outcome"]["reward"] is not None
    assert _without_outcome(rlalloc) == ()


def test_a_job_whose_licence_is_in_use_keeps_its_gpus_until_it_may_start(rlalloc: Installation) -> None:
    """Beside three free GPUs. The same job without a licence starts on them at once."""
    for gpus in (8, 8, 8, 5):
        _hold(rlalloc, gpus)
    licence = _hold(rlalloc, 0, more=("--licenses=solver",))
    job_id = _submit(rlalloc, MOLDABLE, USER, "--licenses=solver")
    assert _size_decided(rlalloc, job_id).gpus == 8
    other = _submit(rlalloc, MOLDABLE, USER)
    assert _size_decided(rlalloc, other).gpus <= 3
    rlalloc.site.wait_for_states([other], ENDED, timeout_s=PATIENCE_S)
    wait_until(lambda: rlalloc.job(job_id)["Reason"] == "Licenses", what="it waits for the licence")
    _end(rlalloc, licence)
    rlalloc.site.wait_for_states([job_id], ENDED, timeout_s=PATIENCE_S)
    assert _history(rlalloc, job_id).size.gpus <= 3


def test_a_job_passes_one_that_backfill_plans_only_beyond_its_window(rlalloc: Installation) -> None:
    """Beside three free GPUs, which a job ahead needs, too: in eight hours, when only a short job ends before it.

    Then in ten and a half: Slurm keeps nothing for a job that it cannot start within bf_window.
    """
    gate = _hold(rlalloc, 0)
    after = f"--dependency=afterany:{gate}"
    long, short = (_submit(rlalloc, MOLDABLE, USER, after, f"--time={limit}") for limit in ("4:00:00", "10"))
    for each in (long, short):
        assert _size_decided(rlalloc, each).gpus == 8
    *held, ends = (_hold(rlalloc, gpus, "8:00:00") for gpus in (8, 8, 8, 4, 1))
    ahead = _submit(rlalloc, f"{REQUEST}exec sleep 600\n", HOLDER, "--nodes=4")
    rlalloc.site.run(["scontrol", "update", f"JobId={ahead}", "Nice=-100000"])
    _wait_for_resources(rlalloc, ahead)
    _end(rlalloc, gate)
    rlalloc.site.wait_for_states([short], ENDED, timeout_s=PATIENCE_S)
    assert not _history(rlalloc, long).further_updates
    assert rlalloc.job(long)["JobState"] == "PENDING"
    for each in held:
        rlalloc.site.run(["scontrol", "update", f"JobId={each}", "TimeLimit=10:30:00"])
    _end(rlalloc, ends)  # a job is asked about again when the free GPUs have changed
    rlalloc.site.wait_for_states([long], ENDED, timeout_s=PATIENCE_S)
    assert [_history(rlalloc, each).size.gpus <= most for each, most in ((long, 4), (short, 3))] == [True, True]
    assert rlalloc.job(ahead)["JobState"] == "PENDING"


def test_without_the_agent_it_stays_as_it_is_and_with_it_its_age_and_place_are_not_disturbed(
    rlalloc: Installation,
) -> None:
    """It keeps what it asked for beside two free GPUs, and starts on them once the agent is back."""
    gate = _hold(rlalloc, 0)
    job_id, twin = (
        _submit(rlalloc, script, UNTROUBLED, f"--dependency=afterany:{gate}") for script in (MOLDABLE, RIGID)
    )
    for each in (job_id, twin):
        assert _size_decided(rlalloc, each).gpus == 8
    for gpus in (8, 8, 8, 6):
        _hold(rlalloc, gpus)
    rlalloc.stop("rlalloc-agent")
    _end(rlalloc, gate)
    _wait_for_resources(rlalloc, job_id, twin)
    wait_until(lambda: "pending jobs keep their sizes" in rlalloc.log("rlallocd"), what="the agent was asked for")
    assert "gres/gpu=8" in rlalloc.job(job_id)["TRES"]
    assert len(_history(rlalloc, job_id).decisions) == 1
    before = rlalloc.job(job_id)

    rlalloc.start("rlalloc-agent")
    rlalloc.site.wait_for_states([job_id], ENDED, timeout_s=PATIENCE_S)
    after = rlalloc.job(job_id)
    assert "gres/gpu=8" not in after["TRES"]
    for field in ("SubmitTime", "EligibleTime", "AccrueTime", "Nice", "QOS", "Account", "Partition"):
        assert after[field] == before[field], field
    assert rlalloc.job(twin)["JobState"] == "PENDING"


def test_a_daemon_started_again_knows_how_often_a_job_was_updated(rlalloc: Installation, veto: Path) -> None:
    """The site refuses the one update that the job may have: it counts nevertheless."""
    rlalloc.write_config(redecision={**rlalloc.settings["redecision"], "max_updates": 1})
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "configuration reloaded" in rlalloc.log("rlallocd"), what="the configuration is read")
    gate = _hold(rlalloc, 0)
    job_id = _submit(rlalloc, MOLDABLE, USER, f"--dependency=afterany:{gate}")
    _size_decided(rlalloc, job_id)
    held = [_hold(rlalloc, gpus) for gpus in (8, 8, 8, 6)]
    veto.touch()
    _end(rlalloc, gate)
    wait_until(lambda: _history(rlalloc, job_id).further_updates, what="an update is tried", timeout_s=PATIENCE_S)
    wait_until(lambda: not _history(rlalloc, job_id).is_open, what="the update is read back")
    history = _history(rlalloc, job_id)
    rlalloc.stop("rlallocd", signal.SIGKILL)
    veto.unlink()

    said = len(rlalloc.log("rlallocd"))
    rlalloc.start("rlallocd")
    wait_until(
        lambda: f"job {job_id} keeps its size: it was already updated 1 times" in rlalloc.log("rlallocd")[said:],
        what="the daemon looks at it again",
        timeout_s=PATIENCE_S,
    )
    assert _history(rlalloc, job_id) == history
    _end(rlalloc, held[0])
    rlalloc.site.wait_for_states([job_id], ENDED, timeout_s=PATIENCE_S)
    assert f"gres/gpu={history.size.gpus}" in rlalloc.job(job_id)["TRES"]


def test_an_update_that_the_site_refuses_leaves_the_size_that_it_has(rlalloc: Installation, veto: Path) -> None:
    gate = _hold(rlalloc, 0)
    job_id = _submit(rlalloc, MOLDABLE, USER, f"--dependency=afterany:{gate}")
    first = _size_decided(rlalloc, job_id)
    long = [_hold(rlalloc, gpus) for gpus in (8, 8, 8, 5)]
    veto.touch()
    _end(rlalloc, gate)
    tried = wait_until(
        lambda: (history := _history(rlalloc, job_id)).further_updates and not history.is_open and history,
        what="another size is tried",
        timeout_s=PATIENCE_S,
    )
    assert tried.applications[-1].state in ("left", "restored")
    assert (tried.size, tried.in_force.id) == (first, tried.decisions[0].id)
    assert f"gres/gpu={first.gpus}" in rlalloc.job(job_id)["TRES"]
    _end(rlalloc, long[0])
    rlalloc.site.wait_for_states([job_id], ENDED, timeout_s=PATIENCE_S)
    story = wait_until(
        lambda: (told := rlalloc.explain(job_id)) and told[0]["outcome"] and told, what="the outcome is kept"
    )
    assert story[0]["outcome"]["gpus"] == first.gpus
    assert all(chapter["outcome"] is None for chapter in story[1:])


def test_a_stream_needs_less_than_one_further_update_a_job_and_no_size_comes_back(rlalloc: Installation) -> None:
    """24 jobs under contention, half of them decided when the cluster was idle; GPUs come back as jobs end."""
    gate = _hold(rlalloc, 0)
    early = [_submit(rlalloc, MOLDABLE, USER, f"--dependency=afterany:{gate}") for _ in range(12)]
    for job_id in early:
        _size_decided(rlalloc, job_id)
    held = [_hold(rlalloc, gpus) for gpus in (5, 8, 8, 8)]
    _end(rlalloc, gate)
    wait_until(
        lambda: any(_history(rlalloc, job_id).further_updates for job_id in early),
        what="one is made small enough for the three GPUs that are free",
        timeout_s=PATIENCE_S,
    )
    late = [_submit(rlalloc, MOLDABLE, USER) for _ in range(12)]
    jobs = [*early, *late]
    for ended, holder in zip((2, 5, 9, 14), held, strict=True):
        _wait_for_completed(rlalloc, jobs, ended)
        _end(rlalloc, holder)
    rlalloc.site.wait_for_states(jobs, ENDED, timeout_s=2 * PATIENCE_S)

    histories = [_history(rlalloc, job_id) for job_id in jobs]
    further = [history.further_updates for history in histories]
    assert 0 < sum(further) < len(jobs)
    assert max(further) <= 3
    for history in histories:
        layouts = _layouts(history)
        assert len(layouts) == len(set(layouts)), history
    wait_until(lambda: not _without_outcome(rlalloc), what="all outcomes are kept", timeout_s=PATIENCE_S)


def test_an_array_grows_only_if_all_its_tasks_can_start(rlalloc: Installation) -> None:
    """Answers have twice the GPUs. On one free node, both tasks start as requested; on four, with eight GPUs each."""
    script = "#!/bin/sh\n#RLALLOC gpus=4-8\n: torchrun train.py\nsleep 1\n"
    size = ("--array=1-2", "--nodes=1", "--gpus-per-node=4", "--cpus-per-task=8", "--mem=8G", "--time=10")
    holders = [_hold(rlalloc, 8) for _ in range(3)]
    agent = rlalloc.settings["agent"]
    with agent_that_answers(Shares(1.0, 1.0, 1.0), rlalloc.runtime / "one-answer.sock") as endpoint:
        rlalloc.write_config(agent={**agent, "endpoint": endpoint})
        rlalloc.read_again()
        waits = _submit(rlalloc, script, USER, *size)
        assert _size_decided(rlalloc, waits).gpus == 4
        rlalloc.site.wait_for_states([waits], ENDED, timeout_s=PATIENCE_S)
        for holder in holders:
            _end(rlalloc, holder)
        rlalloc.site.wait_for_states(holders, {"CANCELLED"}, timeout_s=PATIENCE_S)
        starts = _submit(rlalloc, script, USER, *size)
        assert _size_decided(rlalloc, starts).gpus == 8
        rlalloc.site.wait_for_states([starts], ENDED, timeout_s=PATIENCE_S)


def _hold(rlalloc: Installation, gpus: int, time_limit: str = "8:00:00", more: Sequence[str] = ()) -> int:
    """Start a job that holds GPUs of one node until it is cancelled."""
    size = ("--nodes=1", "--mem=1000", f"--time={time_limit}", *((f"--gpus-per-node={gpus}",) if gpus else ()))
    job_id = rlalloc.site.sbatch("#!/bin/sh\nexec sleep 3600\n", user=HOLDER, options=[*size, *more])
    rlalloc.site.wait_for_states([job_id], {"RUNNING"}, timeout_s=PATIENCE_S)
    return job_id


def _end(rlalloc: Installation, job_id: int) -> None:
    rlalloc.site.run(["scancel", str(job_id)])


def _submit(rlalloc: Installation, script: str, user: str, *options: str) -> int:
    return rlalloc.site.sbatch(script, user=user, options=options)


def _size_decided(rlalloc: Installation, job_id: int) -> Allocation:
    """Wait until a job was decided and its update has come to its end; returns its size."""
    decision: Decision = rlalloc.decision(job_id)
    assert decision.reason == ""
    wait_until(lambda: not _history(rlalloc, job_id).is_open, what="it is applied", timeout_s=PATIENCE_S)
    return _history(rlalloc, job_id).size


def _wait_for_resources(rlalloc: Installation, *job_ids: int) -> None:
    def waits(job_id: int) -> bool:
        job = rlalloc.job(job_id)
        return job["Reason"] in ("Resources", "Priority") and job["AccrueTime"] != "Unknown"

    wait_until(lambda: all(map(waits, job_ids)), what="they wait for resources", timeout_s=PATIENCE_S)


def _history(rlalloc: Installation, job_id: int) -> JobHistory:
    store = Store(rlalloc.settings["store"]["url"])
    try:
        decisions = store.decisions_of(job_id)
        key = (job_id, int(decisions[0].submitted_s))
        return store.histories([key])[key]
    finally:
        store.close()


def _without_outcome(rlalloc: Installation) -> tuple[JobKey, ...]:
    store = Store(rlalloc.settings["store"]["url"])
    try:
        return store.jobs_without_outcome(0).jobs
    finally:
        store.close()


def _completed(rlalloc: Installation, job_ids: Sequence[int]) -> int:
    return sum(state == "COMPLETED" for state in rlalloc.site.job_states(job_ids).values())


def _wait_for_completed(rlalloc: Installation, job_ids: Sequence[int], count: int) -> None:
    wait_until(lambda: _completed(rlalloc, job_ids) >= count, what=f"{count} jobs", timeout_s=PATIENCE_S)


def _layouts(history: JobHistory) -> list[tuple[int, int]]:
    """Nodes and GPUs a node that a job waited with, one after the other."""
    begun = [each for each in history.applications if each.state == "begun"]
    first_was_applied = begun and begun[0].decision_id == history.decisions[0].id
    sizes = [*(() if first_was_applied else (history.request,)), *(each.intended for each in begun)]
    return [layout for layout, _ in itertools.groupby((size.nodes, size.gpus_per_node) for size in sizes)]
