"""A transaction ends as decided or as submitted, whatever happens at whichever of its steps: on a real slurmctld.

Each case is one fault of fault_cases; docs/explanation/transactions.md has the same table (test_verification).
Those that concern one job only are injected at once, into many jobs of one batch; those that stop rlallocd or
slurmctld come one by one.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest

from rlalloc.job import Allocation
from rlalloc.store import OPEN_STATES, Application, Store
from rlalloc.tres import gpus_of, gpus_of_request, memory_mib, parse_tres
from rlalloc_testbed import PLUGIN, USER, Installation, install, start_site
from slurm_testbed import Site, wait_until
from slurm_testbed.processes import PROGRAMS_VARIABLE

from .fault_cases import AT_ONCE, KILLED, NO_ANSWER, REQUEUED, SLURMCTLD, SUBMITTED_MINUTES, Fault
from .fault_injection import FaultyScontrol

pytestmark = pytest.mark.slurm

JOB_SUBMIT = """
local rlalloc = dofile("{rlalloc}")
function slurm_job_submit(job_desc, part_list, submit_uid)
   rlalloc.job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local refusal = rlalloc.job_modify(job_desc, job_rec, modify_uid)
   if refusal then return refusal end
   if job_rec.name == "vetoed" and job_desc.tres_per_node ~= nil then return slurm.ERROR end
   if job_rec.name == "rewritten" and job_desc.cpus_per_task < 20 then job_desc.cpus_per_task = 20 end
   return slurm.SUCCESS
end
return slurm.SUCCESS
"""
PATIENT_S, IMPATIENT_S = 60, 10
"""Time limits of a call to Slurm: above all that the scripts wait for; and for cases that wait for its end."""
WITHIN_S = 300
"""Nothing here takes long; this is for a machine that is ten times slower."""
UNREACHABLE_S = float(os.environ.get("RLALLOC_TEST_UNREACHABLE_S", "20"))


def named(faults: Sequence[Fault]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fault", faults, ids=[fault.name for fault in faults])


@pytest.fixture(scope="module")
def fault_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    script = tmp_path_factory.mktemp("plugin") / "job_submit.lua"
    script.write_text(JOB_SUBMIT.format(rlalloc=PLUGIN / "rlalloc.lua"))
    with start_site(
        f"faults-{os.getpid()}", nodes=4, job_submit_lua=script, extra_slurm_conf={"MinJobAge": "3600"}
    ) as site:
        for words in (
            ("add", "qos", "second"),
            ("modify", "user", USER, "set", "qos=normal,second", "defaultqos=normal"),
        ):
            site.run(["sacctmgr", "--immediate", *words])
        yield site


@pytest.fixture(scope="module")
def faulty(fault_site: Site) -> FaultyScontrol:
    return FaultyScontrol(fault_site)


@pytest.fixture(scope="module")
def rlalloc(fault_site: Site, faulty: FaultyScontrol) -> Iterator[Installation]:
    """One installation for all cases; a grace that no case comes near, even on a slow machine."""
    installation = install(
        fault_site,
        grace_s=200,
        slurm={"command_timeout_s": PATIENT_S},
        daemon={"poll_s": 1.0, "outcomes_every_s": 3600.0, "heartbeat_s": 60.0},
        urgency={"nice_band": 1000, "patience": 1000.0},
    )
    installation.environment = faulty.environment
    installation.start("rlalloc-agent")
    installation.start("rlallocd")
    yield installation
    installation.stop_all()


@pytest.fixture(scope="module")
def at_once(rlalloc: Installation, faulty: FaultyScontrol) -> Mapping[str, int]:
    """Jobs by the name of their fault, all submitted before rlallocd sees any of them."""
    return submit(rlalloc, faulty, (*AT_ONCE, *REQUEUED))


@pytest.fixture(scope="module")
def impatient(rlalloc: Installation, at_once: Mapping[str, int]) -> Installation:
    """The same with a short time limit for each call, once those that take longer are through."""
    for job_id in at_once.values():
        ended(rlalloc, job_id)
    rlalloc.stop("rlallocd")
    rlalloc.write_config(slurm={"command_timeout_s": IMPATIENT_S})
    rlalloc.start("rlallocd")
    return rlalloc


@named(AT_ONCE)
def test_a_fault_of_one_job(
    rlalloc: Installation, faulty: FaultyScontrol, at_once: Mapping[str, int], fault: Fault
) -> None:
    if fault.is_asked and PROGRAMS_VARIABLE in rlalloc.site.environment():
        pytest.skip("this machine's Perl API is not of that release")
    assert_ended(rlalloc, faulty, at_once[fault.name], fault)


@named([*NO_ANSWER, *KILLED, *SLURMCTLD])
def test_a_fault_of_a_call_or_a_daemon(impatient: Installation, faulty: FaultyScontrol, fault: Fault) -> None:
    job_id = submit(impatient, faulty, [fault])[fault.name]
    if fault.afterwards == "start rlallocd":
        impatient.processes.pop("rlallocd").wait(WITHIN_S)
        impatient.start("rlallocd")
    elif fault.afterwards == "start slurmctld":
        wait_until(lambda: not impatient.site.is_running("slurmctld"), what="slurmctld has ended", timeout_s=WITHIN_S)
        impatient.site.start_daemon("slurmctld")
        impatient.site.wait_for_nodes(WITHIN_S)
    elif fault.afterwards == "continue slurmctld":
        logged = len(impatient.log("rlallocd"))
        wait_until(
            lambda: "Slurm failed" in impatient.log("rlallocd")[logged:], what="it is noticed", timeout_s=WITHIN_S
        )
        time.sleep(UNREACHABLE_S)  # the fault itself: nothing is waited for
        impatient.site.kill("slurmctld", signal.SIGCONT)
    assert_ended(impatient, faulty, job_id, fault)


@named(REQUEUED)
def test_a_job_that_was_requeued(
    rlalloc: Installation, faulty: FaultyScontrol, at_once: Mapping[str, int], fault: Fault
) -> None:
    """Slurm lets a requeued job wait for two minutes, so these come last."""
    assert_ended(rlalloc, faulty, at_once[fault.name], fault)


def submit(rlalloc: Installation, faulty: FaultyScontrol, faults: Sequence[Fault]) -> dict[str, int]:
    """Submit a job for each fault and inject it, while rlallocd is stopped; then let it go on."""
    rlalloc.send("rlallocd", signal.SIGSTOP)
    try:
        names = {fault.name: f"kept-{time.time_ns()}" for fault in faults if fault.kept}
        jobs = {
            fault.name: rlalloc.submit(fault.job, f"--job-name={names.get(fault.name, 'fault')}", *fault.options)
            for fault in faults
        }
        for fault in faults:
            faulty.inject(jobs[fault.name], fault.scripts)
            if fault.kept:
                wait_until(partial(faulty.is_kept, names[fault.name]), what="the job is kept", timeout_s=WITHIN_S)
    finally:
        rlalloc.send("rlallocd", signal.SIGCONT)
    return jobs


def ended(rlalloc: Installation, job_id: int) -> Application:
    """Wait until the journal says how the transaction of a job ended."""
    store = Store(rlalloc.settings["store"]["url"])

    def last() -> Application | None:
        decisions = store.decisions_of(job_id)
        found = store.applications(decisions[0].id) if decisions else ()
        return found[-1] if found and found[-1].state not in OPEN_STATES else None

    try:
        found = wait_until(last, what=f"the transaction of job {job_id} ends", timeout_s=WITHIN_S)
        assert found is not None
        return found
    finally:
        store.close()


def assert_ended(rlalloc: Installation, faulty: FaultyScontrol, job_id: int, fault: Fault) -> None:
    """The journal names an end that is right for this fault, and the job is what the journal says."""
    application = ended(rlalloc, job_id)
    assert [step for step in fault.scripts if not faulty.has_run(job_id, step)] == []
    assert application.intended != application.original
    assert application.state in fault.ends, application.detail
    if not fault.starts:
        assert rlalloc.job(job_id)["JobState"] == "CANCELLED"
        return
    rlalloc.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=WITHIN_S)
    size = application.intended if application.state == "begun" else application.original
    job = rlalloc.job(job_id)
    assert what_it_had(job) == {**as_it_should_have(size), **fault.of_others}, application.detail
    assert application.added_nice
    nice = application.added_nice if application.state == "begun" else 0
    assert int(job["Nice"]) == (nice if fault.nice is None else fault.nice)
    minutes = fault.minutes or size.time_limit_s // 60
    assert job["TimeLimit"] == f"{minutes // 60:02}:{minutes % 60:02}:00"
    if fault.on_the_minute:
        assert job["EligibleTime"].endswith(":00")
    assert (size.time_limit_s == SUBMITTED_MINUTES * 60) or application.state == "begun"


def what_it_had(job: Mapping[str, str]) -> dict[str, float]:
    """What a job that has ended was given, and the single fields of its request, by ``scontrol show job``."""
    tres = parse_tres(job["TRES"])
    return {
        "nodes": int(job["NumNodes"]),
        "tasks": int(job["NumTasks"]),
        "CPUs": tres["cpu"],
        "CPUs per task": int(job["CPUs/Task"]),
        "least CPUs per node": int(job["MinCPUsNode"]),
        "GPUs": gpus_of(tres),
        "GPUs per node": gpus_of_request(job["TresPerNode"]),
        "GiB": round(tres["mem"] / 1024),
        "GiB per node": round((memory_mib(job["MinMemoryNode"]) or 0) / 1024),
    }


def as_it_should_have(size: Allocation) -> dict[str, float]:
    return {
        "nodes": size.nodes,
        "tasks": size.nodes * size.tasks_per_node,
        "CPUs": size.cpus,
        "CPUs per task": size.cpus_per_task,
        "least CPUs per node": size.cpus_per_node,
        "GPUs": size.gpus,
        "GPUs per node": size.gpus_per_node,
        "GiB": round(size.mem_mib / 1024),
        "GiB per node": round(size.mem_mib_per_node / 1024),
    }
