"""A site with nodes of two kinds that enforces no limits: what rlalloc gives to a job can start where it may run."""

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import torch

from rlalloc.config import SlurmSection
from rlalloc.job import Shares
from rlalloc.policy.policies import CURRENT, PolicyStore
from rlalloc.store import Application
from rlalloc_agent.actor import Actor
from rlalloc_testbed import USER, Installation, install, start_site
from rlalloc_testbed.installation import PLUGIN
from rlallocd.cluster.node_pools import NodePools
from rlallocd.slurm import connect
from rlallocd.submissions.request_sizes import size_of
from rlallocd.transactions.update_plans import plan_update
from slurm_testbed import NodeKind, Site, wait_until
from slurm_testbed.processes import PROGRAMS_VARIABLE
from tests.agent.running_server import add_version

from .scripted_agent import agent_that_answers

pytestmark = pytest.mark.slurm

LLM = "#!/bin/sh\n#SBATCH --time=10\n#RLALLOC {words}\n: torchrun train.py\n"
V100 = NodeKind(4, gpus=4, gpu_type="v100", cpus=32, mem_mib=96_000, features=("feat",), threads=2)
STAYS = LLM + "exec sleep 600\n"
ENDED = {"COMPLETED"}
NEVER_PASSED_OVER_S = 3600.0


JOB_SUBMIT = """
local rlalloc = dofile("{rlalloc}")

function slurm_job_submit(job_desc, part_list, submit_uid)
   if job_desc.name == "per-gpu" then
{lines}
   end
   rlalloc.job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end

function slurm_job_modify()
   return slurm.SUCCESS
end
"""


@pytest.fixture(scope="module")
def job_submit_lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site's own script: for jobs of one name, with slurm_plugin/README.md's lines for defaults of each GPU."""
    found = re.search(r"^    local asks = .*?^    end$", (PLUGIN / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    script = tmp_path_factory.mktemp("site") / "job_submit.lua"
    script.write_text(JOB_SUBMIT.format(rlalloc=PLUGIN / "rlalloc.lua", lines=found[0]))
    return script


@pytest.fixture(scope="module")
def mixed(job_submit_lua: Path) -> Iterator[Installation]:
    with start_site(f"mixed-{os.getpid()}", nodes=1, other_nodes=(V100,), job_submit_lua=job_submit_lua) as site:
        # So long that no job counts as passed over, however late the daemon sees a lost node.
        installation = install(site, redecision={"max_updates": 0, "every_s": NEVER_PASSED_OVER_S})
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


PARTICULAR = (
    ("gpus=1-8 mem-per-gpu=16G-64G", "-N1", "--gres=gpu:v100:1", "-c8", "--mem=64G"),
    ("gpus=8-16", "-N4", "--gpus-per-node=v100:4", "-c8", "--mem=8G"),
    ("gpus=1-4 mem-per-gpu=20G-80G", "-N1", "--gpus-per-node=2", "-C", "feat", "-c8", "--mem=80G"),
    ("gpus=1-8", "-N1", "--gpus-per-node=4", "-x", "n[1-3]", "-c8", "--mem=8G"),
    ("gpus=4-8", "-N2", "--gpus-per-node=4", "-w", "n[2-3]", "-c8", "--mem=8G"),
    ("gpus=8", "-N1", "--gpus-per-node=4", "-w", "n2", "-c8", "--mem=8G"),
)
"""Words of a script, then options. No job may use n1. The fifth names its nodes, so it gets no fewer."""


@contextmanager
def answered_with_share(installation: Installation, share: float) -> Iterator[None]:
    """Each new job is to have its fewest GPUs (0), its most (1), or a number between them."""
    agent = installation.settings["agent"]
    shares = Shares(share, 1.0, 1.0)
    with agent_that_answers(shares, installation.runtime / "one-answer.sock") as endpoint:
        installation.write_config(agent={**agent, "endpoint": endpoint})
        installation.read_again()
        try:
            yield
        finally:
            installation.write_config(agent=agent)
            installation.read_again()


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, [(1, 1), (2, 4), (1, 1), (1, 1), None, None]),
        (1.0, [(2, 4), (4, 4), (1, 4), (2, 4), (2, 4), None]),
    ],
    ids=["fewest", "most"],
)
def test_no_job_gets_a_size_that_no_node_for_it_has(
    mixed: Installation, share: float, expected: list[tuple[int, int] | None]
) -> None:
    """Whatever the policy answers. The largest node, n1, would hold most of these jobs alone, in any size."""
    with answered_with_share(mixed, share):
        job_ids = [mixed.submit(LLM.format(words=words), *options) for words, *options in PARTICULAR]
        decisions = [mixed.decision(job_id) for job_id in job_ids]
    sizes = [decision.allocation for decision in decisions]
    assert [size and (size.nodes, size.gpus_per_node) for size in sizes] == expected
    assert sizes[4] or "it names nodes (n[2-3])" in decisions[4].reason
    assert "there is no node for it with 1 node x 8 GPUs" in decisions[-1].reason
    mixed.site.wait_for_states(job_ids, ENDED)
    for job_id, size in zip(job_ids, sizes, strict=True):
        assert size is None or f"gres/gpu={size.gpus}" in mixed.job(job_id)["TRES"].split(",")


def test_a_job_with_few_switches_gets_no_more_nodes(mixed: Installation) -> None:
    """Slurm would let it wait for so many below one switch, for five minutes or as long as --switches says."""
    options = ("-N1", "--gpus-per-node=v100:4", "-c8", "--mem=8G")
    grows, stays = (
        mixed.submit(LLM.format(words="gpus=8"), *options, *more) for more in ((), ("--switches=1@2:00",))
    )
    assert mixed.decision(grows).reason == ""
    assert "no more than the 1 node" in mixed.decision(stays).reason
    mixed.site.wait_for_states([grows, stays], ENDED)


def test_a_constraint_that_counts_is_left_alone(mixed: Installation) -> None:
    job_id = mixed.submit(LLM.format(words="gpus=1-8"), "-N2", "--gpus-per-node=4", "-C", "feat*2", "-c8", "--mem=8G")
    assert mixed.decision(job_id).skip_code == "constraint"
    mixed.site.wait_for_states([job_id], ENDED)
    assert mixed.job(job_id)["NumNodes"] == "2"


def test_a_job_that_leaves_threads_idle_fits_where_a_cpu_is_a_core(mixed: Installation) -> None:
    """It gets a whole v100 node: Slurm counts no threads there."""
    size = ("-N1", "--gpus-per-node=v100:4", f"-c{V100.cpus}", "--mem=8G", "--hint=nomultithread")
    job_id = mixed.submit(LLM.format(words="gpus=1-4"), *size)
    decision = mixed.decision(job_id)
    assert decision.allocation is not None, decision.reason
    assert (decision.allocation.gpus, decision.allocation.cpus_per_node) == (4, V100.cpus)
    mixed.site.wait_for_states([job_id], ENDED)
    assert mixed.job(job_id)["NumCPUs"] == str(V100.cpus)


@pytest.fixture
def idle(mixed: Installation) -> Iterator[Installation]:
    """The site with all its nodes and nobody's jobs, before and after."""
    yield mixed
    site = mixed.site
    site.run(["scancel", "--user", USER])
    site.kill("n1", signal.SIGCONT)
    site.run(["scontrol", "update", "PartitionName=gpu", "Nodes=n[1-5]", "State=UP"])
    site.try_run(["scontrol", "update", "NodeName=n1", "State=RESUME"])
    wait_until(lambda: not site.run(["squeue", "--noheader"]), what="all jobs have left", timeout_s=120)
    deleted = site.try_run(["scontrol", "delete", "ReservationName=closed"])
    site.wait_for_nodes()
    if not deleted.status:
        mixed.read_again()  # it keeps what it has read of reservations for a minute


def begun(mixed: Installation, job_id: int, gpus: int, nodes: int = 1) -> Application:
    """Wait until the job was let go with so many GPUs; the entry of the journal."""
    decision = mixed.decision(job_id)
    assert decision.allocation is not None, decision.reason
    assert (decision.allocation.nodes, decision.allocation.gpus) == (nodes, gpus)
    wait_until(
        lambda: (entry := mixed.application(decision)) is not None and entry.state == "begun",
        what=f"job {job_id} is let go",
    )
    entry = mixed.application(decision)
    assert entry is not None
    return entry


def assert_runs_as_submitted(mixed: Installation, job_id: int, tres: str, why: str) -> None:
    """Its request is back, whatever the scheduler's word for its wait, and the journal says why."""
    mixed.site.wait_for_states([job_id], {"RUNNING"}, timeout_s=120)
    assert tres in mixed.job(job_id)["TRES"]
    entry = mixed.application(mixed.decision(job_id))
    assert entry is not None
    assert entry.state == "restored"
    assert why in entry.detail


def test_a_job_that_has_its_nodes_alone_gets_no_less_of_them(idle: Installation) -> None:
    """OverSubscribe=EXCLUSIVE: it holds all GPUs of its node, so with one of them it would only run longer."""
    idle.site.run(["scontrol", "update", "PartitionName=gpu", "OverSubscribe=EXCLUSIVE"])
    idle.read_again()
    try:
        words = "gpus=1-2 cpus-per-gpu=1-4 mem-per-gpu=1G-2G"
        job_id = idle.submit(LLM.format(words=words), "--gres=gpu:a100:2", "-c8", "--mem=4G")
        decision = idle.decision(job_id)
        assert decision.bounds is not None
        assert decision.bounds.gpu_counts == (2,)
        assert (decision.bounds.cpus_per_gpu.minimum, decision.bounds.mem_mib_per_gpu.minimum) == (4, 2048)
        idle.site.wait_for_states([job_id], ENDED)
        assert "gres/gpu=8" in idle.job(job_id)["TRES"]
    finally:
        idle.site.run(["scontrol", "update", "PartitionName=gpu", "OverSubscribe=NO"])
        idle.read_again()


def test_defaults_for_each_gpu_hold_for_a_job_that_leaves_its_memory_to_slurm(idle: Installation) -> None:
    idle.site.run(["scontrol", "update", "PartitionName=gpu", "JobDefaults=DefMemPerGPU=6000"])
    idle.read_again()
    try:
        words = LLM.format(words="gpus=1-2")
        named, unnamed = (idle.submit(words, "--gres=gpu:2", "-c2", *mem) for mem in (["--mem=4G"], []))
        assert idle.decision(named).skip_code == ""
        assert idle.decision(unnamed).skip_code == "gpu-defaults"
        assert "DefMemPerGPU=6000" in idle.decision(unnamed).reason
        idle.site.wait_for_states([named, unnamed], ENDED)
    finally:
        idle.site.run(["scontrol", "update", "PartitionName=gpu", "JobDefaults=DefMemPerGPU=0"])
        idle.read_again()


def test_defaults_for_each_gpu_that_a_site_sets_by_lua_are_the_request(idle: Installation) -> None:
    job_id = idle.submit(LLM.format(words="gpus=4"), "--job-name=per-gpu", "--gres=gpu:a100:2")
    request = idle.decision(job_id).request
    assert (request.gpus, request.cpus, request.mem_mib) == (2, 4, 6000)
    idle.site.wait_for_states([job_id], ENDED)
    assert {"gres/gpu=4", "cpu=8", "mem=12000M"} <= set(idle.job(job_id)["TRES"].split(","))


def test_slurmctld_tells_a_size_that_it_could_not_place(idle: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes are large enough, but not in a row; the request's two are. Our own look at the nodes agrees."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, idle.site.environment()[name])
    if PROGRAMS_VARIABLE in idle.site.environment():
        pytest.skip("this machine's Perl API is not of that release")
    slurm = connect(SlurmSection(command_timeout_s=60))
    job_id = idle.site.sbatch(
        "#!/bin/sh\n",
        user=USER,
        options=["-N2", "--gpus-per-node=v100:4", "-x", "n3", "--contiguous", "-c8", "--mem=8G", "--hold"],
    )
    job = slurm.read_back([job_id])[job_id]
    assert slurm.never_runs([job]) == {}
    three = msgspec.structs.replace(size_of(job), nodes=3)
    slurm.update(plan_update(job, three, ""))
    assert slurm.never_runs(list(slurm.read_back([job_id]).values())) == {
        job_id: "Requested node configuration is not available"
    }
    assert list(NodePools(slurm.nodes()).unfit(job, three))
    assert not list(NodePools(slurm.nodes()).unfit(job, size_of(job)))


def test_no_job_gets_a_size_that_only_a_reserved_node_has(idle: Installation) -> None:
    reserved = ("ReservationName=closed", "StartTime=now", "Duration=60", "Nodes=n1", "Users=root")
    idle.site.run(["scontrol", "create", "reservation", *reserved])
    idle.read_again()
    with answered_with_share(idle, 1.0):
        job_id = idle.submit(LLM.format(words="gpus=4-8"), "-N1", "--gpus-per-node=4", "-c8", "--mem=8G")
        decision = idle.decision(job_id)
    assert (decision.bounds.gpu_counts if decision.bounds else ()) == (4, 8)
    assert "outside reservation closed" in decision.reason
    idle.site.wait_for_states([job_id], ENDED)


def test_srun_does_not_ask_for_the_cpus_that_the_shell_of_its_user_had_set(idle: Installation) -> None:
    """SRUN_CPUS_PER_TASK, for instance of the job that has submitted this one: srun takes it for its own option."""
    script = LLM.format(words="gpus=1 cpus-per-gpu=1") + "srun -n1 sh -c 'echo $SLURM_CPUS_PER_TASK' || exit 1\n"
    options = ["-N1", "--gres=gpu:a100:1", "-c4", "--mem=4G"]
    job_id = idle.site.sbatch(script, user=USER, options=options, environment={"SRUN_CPUS_PER_TASK": "4"})
    idle.site.wait_for_states([job_id], ENDED)
    assert idle.output(job_id) == "1\n"


@pytest.mark.parametrize("has_a_job", [False, True])
def test_a_job_waits_for_the_nodes_that_report_last_to_a_slurmctld_just_started(
    idle: Installation, *, has_a_job: bool
) -> None:
    """Its range and its nodes would be those of the others, and one that asks for more would be declined for good.

    A node on which a job runs is not unknown to slurmctld, which can place no other job there until it reports.
    """
    site = idle.site
    idle.write_config(grace_s=120)
    idle.stop("rlallocd")  # it knows the nodes from before
    options = ["-wn1", "-c1", "--mem=1G"]
    before = [site.sbatch("#!/bin/sh\nexec sleep 600\n", user=USER, options=options)] if has_a_job else []
    site.wait_for_states(before, {"RUNNING"})
    site.kill("n1", signal.SIGSTOP)
    site.restart_daemon("slurmctld")
    idle.start("rlallocd")
    waits = idle.submit(LLM.format(words="gpus=8"), "-N1", "--gpus-per-node=4", "-c8", "--mem=8G")
    other = idle.submit(LLM.format(words="gpus=2"), "-N1", "--gpus-per-node=v100:4", "-c8", "--mem=8G")
    begun(idle, other, gpus=2)
    assert not idle.explain(waits)
    site.kill("n1", signal.SIGCONT)
    begun(idle, waits, gpus=8)
    site.wait_for_states([waits, other], ENDED)
    for job_id in before:
        site.run(["scancel", str(job_id)])
    idle.write_config(grace_s=8)
    idle.read_again()


def test_requests_come_back_where_the_larger_node_is_lost(idle: Installation) -> None:
    """To a job and to the tasks of an array that still wait: first the node is drained, then in no partition."""
    site = idle.site
    size = ("-N1", "--gpus-per-node=4", "-c8", "--mem=8G")
    array = idle.submit(STAYS.format(words="gpus=8"), "--array=0-2", *size)
    begun(idle, array, gpus=8)
    wait_until(lambda: "RUNNING" in site.job_states([array]).values(), what="a task has the larger node")
    first = idle.submit(STAYS.format(words="gpus=8"), *size)
    begun(idle, first, gpus=8)
    site.run(["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test"])
    assert_runs_as_submitted(idle, first, "gres/gpu=4", "there is no node for it")
    site.wait_for_states([array], {"RUNNING"}, timeout_s=120)
    assert _gpus_of_tasks(site, array) == [4, 4, 8]
    for task in range(3):  # also the one that has had the larger node so far: under a job id of its own
        site.run(["scontrol", "requeuehold", f"{array}_{task}"])
    site.wait_for_states([array], {"PENDING"}, timeout_s=120)
    site.run(["scontrol", "release", str(array)])
    site.wait_for_states([array], {"RUNNING"}, timeout_s=300)
    assert _gpus_of_tasks(site, array) == [4, 4, 4]
    (chapter,) = idle.explain(array)
    (of_task,) = chapter["applications_of_tasks"]
    assert of_task["state"] == "restored"
    site.run(["scancel", str(array)])
    site.run(["scontrol", "update", "NodeName=n1", "State=RESUME"])
    site.wait_for_nodes()
    holder = site.sbatch("#!/bin/sh\nexec sleep 600\n", user=USER, options=["-wn1", "--gpus-per-node=8", "--mem=1G"])
    site.wait_for_states([holder], {"RUNNING"}, timeout_s=120)
    second = _waits_for_the_larger_node(idle, size)
    site.run(["scontrol", "update", "PartitionName=gpu", "Nodes=n[2-5]"])
    assert_runs_as_submitted(idle, second, "gres/gpu=4", "BadConstraints")


def _gpus_of_tasks(site: Site, array: int) -> list[int]:
    given = site.run(["squeue", "--noheader", f"--jobs={array}", "--Format=tres-alloc:80"])
    return sorted(int(count) for count in re.findall(r"gres/gpu=(\d+)", given))


def _waits_for_the_larger_node(idle: Installation, size: Sequence[str]) -> int:
    """A job that keeps waiting in a size of 8 GPUs: just after its return, the node may be said not to respond."""
    for _ in range(4):
        job_id = idle.submit(STAYS.format(words="gpus=8"), *size)
        decision = idle.decision(job_id)
        entry = wait_until(
            lambda decision=decision: (  # type: ignore[misc]
                (found := idle.application(decision)) is not None and found.state in ("begun", "restored") and found
            ),
            what=f"job {job_id} is let go",
        )
        if entry.state == "begun":
            return job_id
        idle.site.run(["scancel", str(job_id)])
    raise AssertionError("each job got its request back")


ANY_TYPE = {
    "--gres": ("-N1", "--gres=gpu:4", "-c8", "--mem=8G"),
    "--gpus": ("-n1", "--gpus=4", "-c8", "--mem=8G"),
    "--gpus-per-node": ("-N1", "--gpus-per-node=4", "-c8", "--mem=8G", "-x", "n5"),
    "--gpus-per-task": ("-n1", "--gpus-per-task=4", "-c8", "--mem=8G"),
}


@pytest.fixture
def choosing(idle: Installation) -> Iterator[Installation]:
    """The site where rlalloc may choose a100."""
    rules = idle.settings["rules"]
    idle.write_config(rules=[{**rules[0], "choose_gpu_types": ["a100"]}])
    idle.read_again()
    yield idle
    idle.write_config(rules=rules)
    idle.read_again()


def test_a_type_is_chosen_for_a_job_that_names_none_in_any_form(choosing: Installation) -> None:
    """The user's own excluded nodes stay excluded; the job's steps see the GPUs that it has."""
    site = choosing.site
    script = LLM.format(words="") + "srun -n1 sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'\n"
    for form, options in ANY_TYPE.items():  # one by one: a type is chosen only where nobody else waits
        job_id = choosing.submit(script, *options)
        site.wait_for_states([job_id], ENDED)
        size = choosing.decision(job_id).allocation
        assert size is not None, form
        assert size.gpu_type is not None, form
        assert (size.gpu_type.name, size.gpus) == ("a100", 4), form
        assert choosing.job(job_id)["ExcNodeList"] == "n2,n3,n4,n5", form
        name, _, devices = choosing.output(job_id).strip().partition(" ")
        assert (name, devices.count(",")) == ("n1", 3), form


@pytest.fixture
def network(choosing: Installation) -> Iterator[str]:
    """The version of a policy whose network answers everywhere, with fewer GPUs than the heuristic."""
    policies = PolicyStore(Path(choosing.settings["policy"]["directory"]))
    actor = Actor()
    with torch.no_grad():
        actor.residual.bias[0] -= 0.5
    version = add_version(policies, actor)
    policies.promote(version)
    yield version
    (policies.directory / CURRENT).unlink()


def test_a_network_picks_the_type_together_with_its_own_count(choosing: Installation, network: str) -> None:
    wait_until(lambda: f"serving policy {network}" in choosing.log("rlalloc-agent"), what="the network answers")
    job_id = choosing.submit(LLM.format(words="gpus=1-4"), *ANY_TYPE["--gpus-per-node"])
    choosing.site.wait_for_states([job_id], ENDED)
    decision = choosing.decision(job_id)
    assert decision.policy_version == network
    size = decision.allocation
    assert size is not None
    assert size.gpu_type is not None
    assert (size.gpu_type.name, size.gpus) == ("a100", 2)
    assert choosing.job(job_id)["NodeList"] == "n1"
    assert "gres/gpu=2" in choosing.job(job_id)["TRES"].split(",")


def test_a_job_of_a_chosen_type_gets_its_request_back_where_the_type_is_lost(choosing: Installation) -> None:
    site = choosing.site
    site.run(["scontrol", "update", "PartitionName=gpu", "State=DOWN"])  # it is let go, and does not start
    job_id = choosing.submit(STAYS.format(words=""), *ANY_TYPE["--gpus-per-node"])
    size = begun(choosing, job_id, gpus=4).intended
    assert size.gpu_type is not None
    assert choosing.job(job_id)["ExcNodeList"] == "n2,n3,n4,n5"
    site.run(["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test"])
    site.run(["scontrol", "update", "PartitionName=gpu", "State=UP"])
    assert_runs_as_submitted(choosing, job_id, "gres/gpu=4", "there is no node for it")
    assert choosing.job(job_id)["ExcNodeList"] == "n5"


def test_a_job_that_waits_gets_a_type_with_a_size_that_starts_there(choosing: Installation) -> None:
    """Two GPUs of each type come free for a job of four, which Slurm would keep waiting."""
    site = choosing.site
    choosing.write_config(redecision={"max_updates": 1, "every_s": NEVER_PASSED_OVER_S})
    choosing.read_again()
    stays = ["--time=600", "-c2", "--mem=1G"]
    nodes = (["-N1", "-w", "n1", "--gpus-per-node=6"], ["-N1", "-w", "n2", "--gpus-per-node=2"])
    ends = ["-N2", "-w", "n[1-2]", "--gpus-per-node=2"]
    script = "#!/bin/sh\nexec sleep 600\n"
    *held, both = [site.sbatch(script, user=USER, options=[*stays, *options]) for options in (*nodes, ends)]
    site.wait_for_states([*held, both], {"RUNNING"})
    options = ("-N1", "--gpus-per-node=4", "-c8", "--mem=8G", "-x", "n[3-5]")
    job_id = choosing.submit(STAYS.format(words="gpus=2-4"), *options)
    wait_until(lambda: choosing.job(job_id)["Reason"] == "Resources", what="the job waits as requested")
    site.run(["scancel", str(both)])
    site.wait_for_states([job_id], {"RUNNING"}, timeout_s=120)
    job = choosing.job(job_id)
    assert "gres/gpu=2" in job["TRES"]
    assert (job["NodeList"], job["ExcNodeList"]) == ("n1", "n2,n3,n4,n5")
    choosing.write_config(redecision={"max_updates": 0, "every_s": NEVER_PASSED_OVER_S})


def test_a_request_comes_back_where_only_the_longer_time_limit_meets_a_reservation(idle: Installation) -> None:
    site = idle.site
    busy = site.sbatch("#!/bin/sh\nexec sleep 600\n", user=USER, options=["-N5", "--exclusive", "--mem=1G"])
    site.wait_for_states([busy], {"RUNNING"})
    job_id = idle.submit(STAYS.format(words="gpus=2"), "-N1", "--gpus-per-node=4", "-c8", "--mem=8G")
    limit_s = begun(idle, job_id, gpus=2).intended.time_limit_s
    assert limit_s >= 780
    site.run(
        [
            *("scontrol", "create", "reservation", "ReservationName=closed", f"StartTime=now+{limit_s - 60}"),
            *("Duration=60", "Nodes=ALL", "Flags=MAINT,IGNORE_JOBS", "Users=root"),
        ]
    )
    site.run(["scancel", str(busy)])
    assert_runs_as_submitted(idle, job_id, "gres/gpu=4", "ReqNodeNotAvail")
    assert idle.job(job_id)["TimeLimit"] == "00:10:00"


def test_a_request_comes_back_where_the_user_chooses_a_reservation(idle: Installation) -> None:
    """This one is too small for the decided size: once it began, Slurm would hold the job for ever."""
    site = idle.site
    reserved = ("ReservationName=closed", "StartTime=now+600", "Duration=60", "Nodes=n2", f"Users={USER}")
    site.run(["scontrol", "create", "reservation", *reserved])
    busy = site.sbatch("#!/bin/sh\nexec sleep 600\n", user=USER, options=["-N5", "--exclusive", "--mem=1G", "-t9"])
    site.wait_for_states([busy], {"RUNNING"})
    job_id = idle.submit(STAYS.format(words="gpus=8"), "-N1", "--gpus-per-node=v100:4", "-c8", "--mem=8G")
    begun(idle, job_id, gpus=8, nodes=2)
    site.run(["scontrol", "update", f"JobId={job_id}", "ReservationName=closed"], user=USER)
    decision = idle.decision(job_id)
    wait_until(
        lambda: (entry := idle.application(decision)) is not None and entry.state == "restored",
        what="it has its request back",
    )
    wait_until(lambda: idle.job(job_id)["Reason"] == "Reservation", what="it waits for its reservation")
    site.run(["scancel", str(busy)])
    site.run(["scontrol", "update", "ReservationName=closed", "StartTime=now"])
    assert_runs_as_submitted(idle, job_id, "gres/gpu=4", "it was moved into reservation closed")


def test_a_users_update_that_slurm_refuses_keeps_no_resized_job_waiting(idle: Installation) -> None:
    """Slurm refuses two nodes for one task, and doubles NumCPUs all the same."""
    site = idle.site
    options = ("-N1", "--gpus-per-node=1", "-c4", "--mem=8G", "--hold")
    job_id = idle.submit(STAYS.format(words="gpus=1 mem-per-gpu=4G-4G"), *options)
    begun(idle, job_id, gpus=1)
    if site.try_run(["scontrol", "update", f"JobId={job_id}", "NumNodes=2"], user=USER).status == 0:
        assert "22.05." not in site.run(["scontrol", "--version"]), "22.05 refuses it"
        pytest.skip("this version of Slurm does not refuse it")
    if idle.job(job_id)["NumCPUs"] == "4":
        pytest.skip("this version of Slurm leaves nothing of an update that it refuses")
    decision = idle.decision(job_id)
    wait_until(
        lambda: (entry := idle.application(decision)) is not None and entry.state == "restored",
        what="the held job has its request back",
    )
    site.run(["scontrol", "release", str(job_id)], user=USER)
    assert_runs_as_submitted(idle, job_id, "gres/gpu=1", "its CPUs were changed and do not go with its size")
    assert idle.job(job_id)["NumCPUs"] == "4"


@pytest.mark.parametrize(
    ("cpus", "decided", "update", "after"),
    [
        (1, 8, "CPUsPerTask=2", ("2", "1")),
        (4, 8, "CPUsPerTask=2", ("4", "4")),  # fewer than it asked for: the update is lost
        (2, 3, "MinCPUsNode=6", ("2", "6")),
        (1, 4, "MinCPUsNode=8", ("1", "8")),
        (4, 8, "MinCPUsNode=6", ("4", "6")),
    ],
)
def test_a_users_update_that_does_not_go_with_the_decided_size_keeps_no_job_waiting(
    idle: Installation, cpus: int, decided: int, update: str, after: tuple[str, str]
) -> None:
    """With too many CPUs per task for its node, its srun would wait for ever. It runs as it would without rlalloc."""
    site = idle.site
    options = ("-N1", "--gpus-per-node=1", f"-c{cpus}", "--mem=8G", "--hold")
    job_id = idle.submit(STAYS.format(words=f"gpus=1 cpus-per-gpu={decided}-{decided}"), *options)
    twin = int(site.run(["sbatch", "--parsable", *options, "--wrap", "exec sleep 600"], user=USER))
    begun(idle, job_id, gpus=1)
    assert idle.job(job_id)["MinCPUsNode"] == str(decided)
    for each in (job_id, twin):
        site.run(["scontrol", "update", f"JobId={each}", update], user=USER)
    decision = idle.decision(job_id)
    wait_until(
        lambda: (entry := idle.application(decision)) is not None and entry.state == "restored",
        what="the held job has its request back",
    )
    site.run(["scontrol", "release", f"{job_id},{twin}"], user=USER)
    assert_runs_as_submitted(idle, job_id, "gres/gpu=1", "its CPUs were changed and do not go with its size")
    site.wait_for_states([twin], {"RUNNING"}, timeout_s=120)
    fields = ("CPUs/Task", "MinCPUsNode", "NumCPUs", "NumTasks", "NtasksPerN:B:S:C")
    resized, submitted = ([job[field] for field in fields] for job in (idle.job(job_id), idle.job(twin)))
    assert tuple(resized[:2]) == after
    assert resized == submitted or after == ("4", "4")


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_srun_waits_for_cpus_that_a_users_update_took_away_just_before_the_start(
    idle: Installation, nodes: int
) -> None:
    """No cycle of rlallocd remains to give the request back. The job runs like its twin, which was never resized."""
    site = idle.site
    steps = (
        "echo given $SLURM_CPUS_PER_TASK $SLURM_TRES_PER_TASK\n"
        "srun --mem=1G echo plain || exit 1\n"
        "srun --mem=1G --cpus-per-task=$SLURM_CPUS_PER_TASK echo stated || exit 1\n"
    )
    options = (f"-N{nodes}", "--gpus-per-node=1", "-c4", "--mem=8G", "--time=10", "--hold")
    job_id = idle.submit(LLM.format(words=f"gpus={nodes} cpus-per-gpu=8-8") + steps, *options)
    twin = site.sbatch("#!/bin/sh\n" + steps, user=USER, options=options)
    begun(idle, job_id, gpus=nodes, nodes=nodes)
    idle.stop("rlallocd")
    for each in (job_id, twin):
        assert idle.job(each)["MinCPUsNode"] == ("8" if each == job_id else "4")
        site.run(["scontrol", "update", f"JobId={each}", "MinCPUsNode=6"], user=USER)
    site.run(["scontrol", "release", f"{job_id},{twin}"], user=USER)
    try:
        site.wait_for_states([job_id, twin], ENDED, timeout_s=120)
    finally:
        idle.start("rlallocd")
    assert idle.job(job_id)["CPUs/Task"] == "8"
    for each, cpus in ((job_id, "6"), (twin, "4")):
        printed = [line for line in idle.output(each).splitlines() if not line.startswith("srun: ")]
        assert printed[0] in (f"given {cpus}", f"given {cpus} cpu={cpus}")
        assert set(printed[1:]) == {"plain", "stated"}


def test_nor_does_it_keep_a_task_of_an_array_waiting(idle: Installation) -> None:
    """Slurm finds no node that it could ever start on. Only this task has a record of its own."""
    site = idle.site
    options = ("-N1", "--gpus-per-node=1", "-c1", "--mem=8G", "--array=0-2", "--hold")
    job_id = idle.submit(STAYS.format(words="gpus=1 cpus-per-gpu=8-8"), *options)
    begun(idle, job_id, gpus=1)
    for words in (["update", f"JobId={job_id}_1", "CPUsPerTask=2"], ["release", str(job_id)]):
        site.run(["scontrol", *words], user=USER)
    site.wait_for_states([job_id], {"RUNNING"}, timeout_s=120)
    task = site.run(["scontrol", "show", "job", f"{job_id}_1"])
    assert "CPUs/Task=2" in task
    assert "gres/gpu=1" in task
