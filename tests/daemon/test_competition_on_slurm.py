"""A real site of many kinds of nodes: sizes in slices and shards, several partitions, and who competes."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pytest

from rlalloc.config import SlurmSection, parse_config
from rlalloc.run_time import RunTimeEstimate
from rlalloc.view import ClusterView
from rlalloc_testbed import USER, Installation, install, start_site
from rlallocd.decisions.decisions import Snapshot
from rlallocd.knowledge.known_run_times import KnownRunTime, KnownRunTimes
from rlallocd.slurm import Holder, SchedulingRules, Slurm, connect
from rlallocd.submissions.request_sizes import size_of
from slurm_testbed import NodeKind, Site, wait_until
from slurm_testbed.specification import Gres, Partition

pytestmark = pytest.mark.slurm

LLM = """#!/bin/sh
#SBATCH --time=10
#RLALLOC {words}
: torchrun train.py
srun -n1 sh -c 'echo $CUDA_VISIBLE_DEVICES'
"""
SLEEPS = "#!/bin/sh\n#SBATCH --time=20\nexec sleep 600\n"
LIMIT_S = 20 * 60
"""Of SLEEPS."""
OTHER = "llm-bob"
NODES = (  # after n1 and n2, which have eight a100 each
    NodeKind(1, gpus=4, gpu_type="v100", cpus=32, mem_mib=96_000),
    NodeKind(1, gpus=2, gpu_type="h100", cpus=32, mem_mib=96_000, gres=(Gres("gpu", "1g.10gb", 7),)),
    NodeKind(1, gpus=2, cpus=32, mem_mib=96_000, gres=(Gres("shard", "", 8),)),
    NodeKind(1, gpus=4, gpu_type="mi300x", cpus=32, mem_mib=96_000),
    NodeKind(1, gpus=4, cpus=32, mem_mib=96_000, cloud=True),
    NodeKind(1, gpus=4, gpu_type="max1550", cpus=32, mem_mib=96_000),
)
SLICED, SHARED, ASLEEP = "n4", "n5", "n7"
PARTITIONS = (
    Partition("new", nodes="n[1-2]"),
    Partition("old", nodes="n3", default=False),
    Partition("parts", nodes="n[4-5]", default=False),
    Partition("amd", nodes="n6", default=False),
    Partition("cloud", nodes=ASLEEP, default=False),
    Partition("intel", nodes="n8", default=False),
    Partition("across", nodes="n[2-3]", default=False),
)
CONFIG = parse_config("mode: enforce\nrules: [{name: llm, mode: enforce}]", "test")
WHOLE_NODE = ("-N1", "--gpus-per-node=8", "-c8", "--mem=8G")


@pytest.fixture(scope="module")
def busy_site() -> Iterator[Site]:
    with start_site(
        f"many-{os.getpid()}",
        nodes=2,
        other_nodes=NODES,
        partitions=PARTITIONS,
        scheduler_parameters={
            "bf_max_job_test": "3",
            "bf_node_space_size": "1000",  # else as small as bf_max_job_test, which ends a pass earlier
            "bf_window": "2880",
            "bf_max_job_user": "2",
        },
        extra_slurm_conf={
            "PreemptType": "preempt/qos",
            "PreemptMode": "REQUEUE",
            "Licenses": "solver:1",
            "PrivateData": "cloud",  # 22.05 hides powered-down nodes of a cloud without it
            "SuspendProgram": "/bin/true",
            "ResumeProgram": "/bin/true",
            "SuspendTime": "36000",
            "SuspendTimeout": "2",
            "ResumeTimeout": "300",
        },
    ) as site:
        for words in (
            ("add", "qos", "urgent", "preempt=normal"),
            ("modify", "user", USER, "set", "qos=normal,urgent", "defaultqos=normal"),
            ("modify", "user", OTHER, "set", "qos=normal", "defaultqos=normal"),
        ):
            site.run(["sacctmgr", "--immediate", *words])
        yield site


@pytest.fixture
def site(busy_site: Site) -> Iterator[Site]:
    """The site without jobs, before and after."""
    yield busy_site
    for user in (USER, OTHER):
        busy_site.run(["scancel", "--user", user])
    wait_until(lambda: not busy_site.run(["squeue", "--noheader"]), what="all jobs have left", timeout_s=120)


@pytest.fixture
def slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return connected_to(site, monkeypatch)


def connected_to(site: Site, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, site.environment()[name])
    return connect(SlurmSection(command_timeout_s=60))


@pytest.fixture(scope="module")
def sizing(busy_site: Site) -> Iterator[Installation]:
    """The site with rlalloc, which decides each job once."""
    installation = install(busy_site, redecision={"max_updates": 0})
    installation.start("rlalloc-agent")
    installation.start("rlallocd")
    yield installation
    installation.stop_all()


def snapshot(slurm: Slurm) -> Snapshot:
    """As a cycle of rlallocd takes it."""
    return Snapshot(
        taken_s=time.time(),
        jobs=slurm.jobs(),
        nodes=slurm.nodes(),
        partitions=slurm.partitions(),
        limits=slurm.limits({Holder(user, "", "", "") for user in (USER, OTHER)}, licenses=True),
        scheduling=slurm.config.scheduling,
    )


def seen_by(site: Site, slurm: Slurm, user: str, *options: str) -> ClusterView:
    """What a new job sees. It is held, behind all others, and then cancelled."""
    job_id = site.sbatch(SLEEPS, user=user, options=["--hold", *options])
    now = snapshot(slurm)
    site.run(["scancel", str(job_id)])
    (job,) = (job for job in now.jobs if job.job_id == job_id)
    return now.views(CONFIG).for_job(job)


def held_by(site: Site, user: str, *options: str) -> int:
    """A job that runs until it is cancelled."""
    job_id = site.sbatch(SLEEPS, user=user, options=options)
    site.wait_for_states([job_id], {"RUNNING"}, timeout_s=120)
    return job_id


def free_gpus(view: ClusterView) -> list[float]:
    """The free GPUs of each node."""
    return [float(count) for count in view.free[:, 0]]


# Who competes


def test_how_slurmctld_schedules_is_read(slurm: Slurm) -> None:
    assert slurm.config.scheduling == SchedulingRules(
        bf_max_job_test=3, bf_max_job_user=2, bf_window_s=2880 * 60, preempts_by="qos", resume_timeout_s=300
    )


def test_what_a_qos_may_preempt_is_free_for_its_jobs_alone(site: Site, slurm: Slurm) -> None:
    held_by(site, OTHER, "-N2", "--exclusive", "--mem=1G")
    assert free_gpus(seen_by(site, slurm, USER, *WHOLE_NODE)) == [0, 0]
    assert free_gpus(seen_by(site, slurm, USER, "--qos=urgent", *WHOLE_NODE)) == [8, 8]
    waits = site.sbatch(SLEEPS, user=USER, options=WHOLE_NODE)
    wait_until(lambda: reason(site, waits) in ("Resources", "Priority"), what="a usual job waits", timeout_s=60)
    held_by(site, USER, "--qos=urgent", *WHOLE_NODE)


def test_what_a_partition_of_a_lower_tier_runs_is_free_for_the_higher_one(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Partition("usual", options={"PriorityTier": "1"})
    urgent = Partition("urgent", default=False, options={"PriorityTier": "2", "PreemptMode": "OFF"})
    preempts = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    with start_site(f"tiers-{os.getpid()}", nodes=1, partitions=(usual, urgent), extra_slurm_conf=preempts) as site:
        slurm = connected_to(site, monkeypatch)
        assert slurm.config.scheduling.preempts_by == "partition"
        preempted = held_by(site, OTHER, *WHOLE_NODE)
        assert free_gpus(seen_by(site, slurm, USER, *WHOLE_NODE)) == [0]
        assert free_gpus(seen_by(site, slurm, USER, "--partition=urgent", *WHOLE_NODE)) == [8]
        held_by(site, USER, "--partition=urgent", *WHOLE_NODE)
        site.wait_for_states([preempted], {"PENDING"}, timeout_s=120)
        assert free_gpus(seen_by(site, slurm, OTHER, "--partition=urgent", *WHOLE_NODE)) == [0]


def test_jobs_that_wait_for_a_licence_keep_nobody_waiting(site: Site, slurm: Slurm) -> None:
    held_by(site, OTHER, "--partition=old", "-N1", "--gpus-per-node=1", "--mem=1G", "--licenses=solver")
    options = ("-N2", "--gpus-per-node=8", "-c8", "--mem=8G")
    waits = site.sbatch(SLEEPS, user=OTHER, options=["--licenses=solver", *options])
    wait_until(lambda: reason(site, waits) == "Licenses", what="it waits for the licence", timeout_s=60)
    view = seen_by(site, slurm, USER, *options)
    assert (len(view.queued), free_gpus(view)) == (0, [8, 8])
    held_by(site, USER, *options)
    assert reason(site, waits) == "Licenses"


def test_a_job_whose_licence_is_in_use_sees_no_free_node(site: Site, slurm: Slurm) -> None:
    options = ("-N2", "--gpus-per-node=8", "-c8", "--mem=8G")
    licensed = ("--licenses=solver", *options)
    assert free_gpus(seen_by(site, slurm, USER, *licensed)) == [8, 8]
    holder = held_by(site, OTHER, "--partition=old", "-N1", "--gpus-per-node=1", "--mem=1G", "--licenses=solver")
    view, without = (seen_by(site, slurm, USER, *each) for each in (licensed, options))
    assert (free_gpus(view), free_gpus(without)) == ([0, 0], [8, 8])
    assert view.releases[:, 1].tolist() == [16]
    assert 0.3 * LIMIT_S < view.releases[0, 0] < LIMIT_S
    waits = site.sbatch(SLEEPS, user=USER, options=licensed)
    wait_until(lambda: reason(site, waits) == "Licenses", what="it waits for the licence", timeout_s=60)
    site.run(["scancel", str(holder)])
    site.wait_for_states([waits], {"RUNNING"}, timeout_s=120)


def test_a_reserved_licence_is_free_in_its_reservation_alone(site: Site, slurm: Slurm) -> None:
    words = ("StartTime=now", "Duration=5", f"Users={OTHER}", "Licenses=solver:1", "Flags=LICENSE_ONLY")
    site.run(["scontrol", "create", "reservation", "ReservationName=course", *words])
    try:
        licensed = ("--licenses=solver", "-N2", "--gpus-per-node=8", "-c8", "--mem=8G")
        view = seen_by(site, slurm, USER, *licensed)
        assert free_gpus(view) == [0, 0]
        assert 0 < view.releases[0, 0] <= 300
        assert free_gpus(seen_by(site, slurm, OTHER, "--reservation=course", *licensed)) == [8, 8]
        waits = site.sbatch(SLEEPS, user=USER, options=licensed)
        wait_until(lambda: reason(site, waits) == "Licenses", what="it waits for the licence", timeout_s=60)
        site.run(["scancel", str(waits)])
        held_by(site, OTHER, "--reservation=course", *licensed)
    finally:
        site.run(["scancel", "--user", OTHER])
        site.run(["scontrol", "delete", "ReservationName=course"])


def test_backfill_starts_nobody_who_is_one_too_many_of_a_user(site: Site, slurm: Slurm) -> None:
    """bf_max_job_user: the third job of a user stays behind, and a job of another user passes all three."""
    held_by(site, OTHER, "-N1", "--exclusive", "--mem=1G")
    both = ("-N2", "--gpus-per-node=8", "-c8", "--mem=8G")
    one = ("--time=1", "-N1", "--gpus-per-node=1", "-c1", "--mem=1G")
    ahead = [site.sbatch(SLEEPS, user=USER, options=both) for _ in range(2)]
    wait_until(lambda: reason(site, ahead[-1]) == "Priority", what="two jobs wait", timeout_s=60)
    third = site.sbatch(SLEEPS, user=USER, options=one)
    wait_until(lambda: reason(site, third) == "Priority", what="the third waits", timeout_s=60)
    now = snapshot(slurm)
    backfill = now.views(CONFIG).backfill
    mine = sorted((job for job in now.jobs if job.job_id in (*ahead, third)), key=lambda job: job.job_id)
    assert [backfill.reaches(job) for job in mine] == [True, True, False]
    assert backfill.reaches(msgspec.structs.replace(mine[-1], user=OTHER, job_id=third + 1))
    held_by(site, OTHER, *one)
    assert reason(site, third) == "Priority"


def test_backfill_starts_nobody_behind_the_last_job_that_it_looks_at(site: Site, slurm: Slurm) -> None:
    """bf_max_job_test: the fourth job stays behind beside a free node, and starts once it is the third."""
    held_by(site, OTHER, "-N1", "--exclusive", "--mem=1G")
    both = ("-N2", "--gpus-per-node=8", "-c8", "--mem=8G")
    one = ("--time=1", "-N1", "--gpus-per-node=1", "-c1", "--mem=1G")
    queue = [site.sbatch(SLEEPS, user=user, options=both) for user in (USER, USER, OTHER)]
    queue.append(site.sbatch(SLEEPS, user=OTHER, options=one))
    wait_until(lambda: reason(site, queue[-1]) == "Priority", what="the fourth waits", timeout_s=60)
    passes = backfill_passes(site)
    now = snapshot(slurm)
    backfill = now.views(CONFIG).backfill
    waiting = sorted((job for job in now.jobs if job.job_id in queue), key=lambda job: queue.index(job.job_id))
    assert [backfill.reaches(job) for job in waiting] == [True, True, True, False]
    site.run(["scontrol", "update", f"JobId={queue[0]}", "Comment=changed"])  # else there is no other pass
    wait_until(lambda: backfill_passes(site) > passes, what="another pass of backfill", timeout_s=60)
    assert reason(site, queue[-1]) == "Priority"
    site.run(["scancel", str(queue[1])])
    site.wait_for_states([queue[-1]], {"RUNNING"}, timeout_s=120)


def test_a_node_is_in_use_for_a_job_that_would_run_into_its_maintenance(site: Site, slurm: Slurm) -> None:
    """Until the maintenance ends; one that ends before it begins has the node at once."""
    size = ("-w", "n1", "-N1", "--gpus-per-node=8", "-c8", "--mem=8G")
    begins_s = time.time() + 600
    words = ("StartTime=now+10minutes", "Duration=30", "Nodes=n1", "Users=root", "Flags=MAINT")
    site.run(["scontrol", "create", "reservation", "ReservationName=maintenance", *words])
    try:
        view = seen_by(site, slurm, USER, *WHOLE_NODE)
        assert sorted(free_gpus(view)) == [0, 8]
        assert view.releases[:, 1].tolist() == [8]
        assert view.releases[0, 0] == pytest.approx(begins_s + 1800 - time.time(), abs=60)
        assert free_gpus(seen_by(site, slurm, USER, "--time=5", *WHOLE_NODE)) == [8, 8]
        long = site.sbatch(SLEEPS, user=USER, options=size)
        wait_until(lambda: reason(site, long).startswith("ReqNodeNotAvail"), what="the long one waits", timeout_s=60)
        held_by(site, USER, "--time=5", *size)
        assert site.job_states([long]) == {str(long): "PENDING"}
    finally:
        site.run(["scancel", "--user", USER])
        site.run(["scontrol", "delete", "ReservationName=maintenance"])


def test_a_node_of_one_users_jobs_is_in_use_for_others(site: Site, slurm: Slurm) -> None:
    size = ("--partition=old", "-N1", "--gpus-per-node=1", "-c1", "--mem=1G")
    held_by(site, OTHER, "--exclusive=user", *size)
    assert free_gpus(seen_by(site, slurm, OTHER, *size)) == [3]
    assert free_gpus(seen_by(site, slurm, USER, *size)) == [0]
    held_by(site, OTHER, *size)
    waits = site.sbatch(SLEEPS, user=USER, options=size)
    wait_until(lambda: reason(site, waits) == "Resources", what="the other user's job waits", timeout_s=60)


def test_jobs_stand_in_the_order_of_sprio_and_start_in_it(site: Site, slurm: Slurm) -> None:
    """Because of fair-share and of one job's nice value, this is not the order of submission."""
    holder = held_by(site, OTHER, "-N2", "--exclusive", "--mem=1G")
    script = SLEEPS.replace("600", "1")
    size = ("-N2", "--gpus-per-node=8", "-c8", "--mem=8G")
    submitted = [
        site.sbatch(script, user=user, options=[*size, *more])
        for user, more in ((OTHER, ()), (USER, ("--nice=400",)), (OTHER, ()), (USER, ()))
    ]
    of_other, nice, _, last = submitted
    wait_until(
        lambda: (order := by_sprio(site)).index(last) < order.index(of_other) and nice in order,
        what="fair-share counts what the other user's job uses",
        timeout_s=240,
    )
    views, order = snapshot(slurm).views(CONFIG), by_sprio(site)
    assert order != submitted
    assert [job.job_id for job in views.waiting.jobs] == order
    ahead = [len(views.for_job(job).queued) for job in views.waiting.jobs]
    assert ahead == [0, 1, 2, 3]
    site.run(["scancel", str(holder)])
    site.wait_for_states(submitted, {"COMPLETED"}, timeout_s=120)
    lines = site.run(["squeue", "--noheader", "--states=all", "--format=%S %i"]).splitlines()
    started = [int(line.split()[1]) for line in sorted(lines) if int(line.split()[1]) in submitted]
    assert started == order


def test_jobs_start_when_their_views_expect_it(site: Site, slurm: Slurm) -> None:
    """In the order of priority, and when they were expected to, give or take one job's run time.

    Run times are known here. The time that Slurm itself takes is nothing that a view expects: seconds in which no job
    ran do not count. Two jobs side by side are expected as if each had all nodes for half of its time.
    """
    size = ("--gpus-per-node=8", "-c8", "--mem=8G")
    holders = [held_by(site, USER, "-N1", *size) for _ in range(2)]
    submitted = [
        site.sbatch(SLEEPS.replace("600", str(seconds)), user=USER, options=[f"-N{nodes}", *size])
        for nodes, seconds in ((2, 1), (1, 3), (1, 3), (2, 4), (2, 3))
    ]
    for number, job_id in enumerate(submitted):
        site.run(["scontrol", "update", f"JobId={job_id}", f"Nice={-1000 * number}"])
    wait_until(
        lambda: all(reason(site, job_id) in ("Resources", "Priority") for job_id in submitted),
        what="all wait",
        timeout_s=60,
    )
    now, by_priority = snapshot(slurm), by_sprio(site)
    time.sleep(2.0)  # so long is what runs expected to go on
    site.run(["scancel", *map(str, holders)])
    site.wait_for_states(submitted, {"COMPLETED"}, timeout_s=180)
    spans = {job_id: span(site, job_id) for job_id in (*holders, *submitted)}
    known = {job_id: exactly(end_s - start_s) for job_id, (start_s, end_s) in spans.items()}
    views = msgspec.structs.replace(now, run_times=KnownRunTimes(known)).views(CONFIG)
    order = [job.job_id for job in views.waiting.jobs]
    assert order == by_priority == submitted[::-1]
    started_s = [spans[job_id][0] for job_id in order]
    assert started_s == sorted(started_s)
    expected_s = [views.for_job(job).expected_wait_s(size_of(job)) for job in views.waiting.jobs]
    waited_s = [busy_s(spans.values(), now.taken_s, each) for each in started_s]
    one_job_s = max(end_s - start_s for start_s, end_s in (spans[job_id] for job_id in submitted))
    assert expected_s == pytest.approx(waited_s, abs=one_job_s)
    assert waited_s[-1] > 2 * one_job_s


def test_a_job_sees_what_jobs_of_another_partition_hold_of_its_nodes(site: Site, slurm: Slurm) -> None:
    """And those that wait there: n2 is in both partitions."""
    size = ("--partition=across", "-N1", "--gpus-per-node=4", "-c1", "--mem=1G")
    assert free_gpus(seen_by(site, slurm, USER, *size)) == [8, 4]
    held_by(site, OTHER, "--partition=new", "-N1", "-w", "n2", "--gpus-per-node=5", "--mem=1G")
    waits = site.sbatch(SLEEPS, user=OTHER, options=["-N2", "--gpus-per-node=8", "-c8", "--mem=8G"])
    wait_until(lambda: reason(site, waits) == "Resources", what="a job of the other partition waits", timeout_s=60)
    view = seen_by(site, slurm, USER, *size)
    assert (free_gpus(view), len(view.queued)) == ([3, 4], 1)


# What a job gets


@pytest.mark.parametrize(
    ("options", "node", "field"),
    [
        (("--partition=parts", "--gres=gpu:1g.10gb:2"), SLICED, "gpu:1g.10gb:4"),
        (("--partition=parts", "--gres=shard:2"), SHARED, "shard:4"),
        (("--partition=amd", "--gres=gpu:mi300x:2"), "n6", "gpu:mi300x:4"),
        (("--partition=intel", "--gres=gpu:max1550:2"), "n8", "gpu:max1550:4"),
    ],
    ids=["slices", "shards", "amd", "intel"],
)
def test_slices_shards_and_gpus_of_any_maker_are_sized_as_such(
    site: Site, sizing: Installation, options: Sequence[str], node: str, field: str
) -> None:
    """Each keeps its type, and gets the number that its user allows."""
    job_id = sizing.submit(LLM.format(words="gpus=4"), *options, "-N1", "-c4", "--mem=4G")
    size = sizing.decision(job_id).allocation
    assert size is not None, sizing.decision(job_id).reason
    assert (size.nodes, size.gpus) == (1, 4)
    site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
    job = sizing.job(job_id)
    assert (job["NodeList"], job["TresPerNode"].replace("/", ":").removeprefix("gres:")) == (node, field)
    devices = sizing.output(job_id).strip().split(",")
    assert len(devices) == (1 if "shard" in field else 4), "shards of one GPU"
    (told,) = sizing.explain(job_id)
    assert told["decision"]["allocation"]["gpus_per_node"] == 4


def test_slices_are_never_more_than_a_node_has_and_shards_than_a_gpu(site: Site, sizing: Installation) -> None:
    for gres, most in (("gpu:1g.10gb:2", 7), ("shard:2", 4)):
        options = ("--partition=parts", f"--gres={gres}", "-N1", "-c4", "--mem=4G")
        bounds = sizing.decision(sizing.submit(LLM.format(words="gpus=1-16"), *options)).bounds
        assert bounds is not None
        assert max(bounds.gpu_counts) == most
        assert bounds.gpus.maximum == most


def test_a_job_with_slices_gets_no_whole_gpus(site: Site, slurm: Slurm, sizing: Installation) -> None:
    """On a node with both. A job that names no type might get a mix, and keeps its request."""
    size = ("--partition=parts", "-N1", "-c4", "--mem=4G")
    slices, whole = ((f"--gres=gpu:{name}:1", *size) for name in ("1g.10gb", "h100"))
    job_id = sizing.submit(LLM.format(words="gpus=4") + "exec sleep 600\n", *slices)
    decision = sizing.decision(job_id)
    assert decision.allocation is not None, decision.reason
    site.wait_for_states([job_id], {"RUNNING"}, timeout_s=120)
    assert "GresUsed=gpu:h100:0(IDX:N/A),gpu:1g.10gb:4(" in site.run(
        ["scontrol", "show", "node", SLICED, "--details"]
    )
    assert [free_gpus(seen_by(site, slurm, USER, *each)) for each in (slices, whole)] == [[3], [2]]
    bounds = sizing.decision(sizing.submit(LLM.format(words="gpus=1-16"), *whole)).bounds
    assert bounds is not None
    assert bounds.gpu_counts == (1, 2)
    any_type = sizing.submit(LLM.format(words="gpus=1-16"), "--gres=gpu:1", *size)
    assert sizing.decision(any_type).skip_code == "mixed-devices"


def test_of_several_partitions_the_one_counts_where_a_job_would_start_first(site: Site, sizing: Installation) -> None:
    """Its bounds are those of the nodes there, and it starts there: four v100, while the a100 are in use."""
    options = ("--partition=new,old", "-N1", "--gpus-per-node=4", "-c8", "--mem=8G")
    counts, nodes = [], []
    for busy in ("new", "old"):
        holder = held_by(
            site, OTHER, f"--partition={busy}", f"-N{2 if busy == 'new' else 1}", "--exclusive", "--mem=1G"
        )
        job_id = sizing.submit(LLM.format(words="gpus=4-8"), *options)
        bounds = sizing.decision(job_id).bounds
        assert bounds is not None
        counts.append(bounds.gpu_counts)
        site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
        nodes.append(sizing.job(job_id)["NodeList"])
        site.run(["scancel", str(holder)])
        wait_until(lambda: not site.run(["squeue", "--noheader"]), what="the partition is free", timeout_s=120)
    assert counts[0] == (4,)
    assert max(counts[1]) == 8
    assert (nodes[0], nodes[1] in ("n1", "n2")) == ("n3", True)


def test_a_cloud_node_that_is_powered_down_is_open_once_it_has_booted(
    site: Site, slurm: Slurm, sizing: Installation
) -> None:
    """Slurm allocates it to a job at once; the job then waits for the node, and gets the size that rlalloc chose.

    A node that boots does not respond yet, and is there all the same. This test is what boots it.
    """
    size = ("--partition=cloud", "-N1", "--gpus-per-node=2", "-c8", "--mem=8G")
    view = seen_by(site, slurm, USER, *size)
    assert (free_gpus(view), len(view.releases)) == ([4], 0)
    site.stop_daemon(ASLEEP)
    site.run(["scontrol", "update", f"NodeName={ASLEEP}", "State=POWER_DOWN"])
    wait_until(lambda: "POWERED_DOWN" in node_state(site, ASLEEP), what="it is off", timeout_s=60)
    view = seen_by(site, slurm, USER, *size)
    assert (free_gpus(view), view.releases[:, :2].tolist()) == ([0], [[300, 4]])
    job_id = sizing.submit(LLM.format(words="gpus=4"), *size)
    decided = sizing.decision(job_id)
    assert decided.allocation is not None, decided.reason
    assert decided.allocation.gpus == 4
    site.wait_for_states([job_id], {"CONFIGURING"}, timeout_s=60)
    wait_until(lambda: {"NOT_RESPONDING", "POWERING_UP"} <= node_state(site, ASLEEP), what="it boots", timeout_s=60)
    assert free_gpus(seen_by(site, slurm, USER, *size)) == [0]
    time.sleep(2)  # Slurm counts in whole seconds, and waits on for a node that has booted before it was asked to
    site.start_daemon(ASLEEP, "-b")
    site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
    assert sizing.output(job_id).count(",") == 3


def reason(site: Site, job_id: int) -> str:
    """Why a job waits."""
    return site.run(["squeue", "--noheader", f"--jobs={job_id}", "--format=%r"]).strip()


def node_state(site: Site, node: str) -> set[str]:
    """The words of a node's state."""
    found = re.search(r"State=(\S+)", site.run(["scontrol", "show", "node", node]))
    assert found is not None
    return set(found[1].split("+"))


def backfill_passes(site: Site) -> int:
    """How many slurmctld has made."""
    found = re.search(r"Total cycles: (\d+)", site.run(["sdiag"]).partition("Backfilling stats")[2])
    assert found is not None
    return int(found[1])


def exactly(seconds: float) -> KnownRunTime:
    """What is known of a job that takes so long."""
    return KnownRunTime(RunTimeEstimate(seconds, seconds, seconds, "a test"))


def span(site: Site, job_id: int) -> tuple[int, int]:
    """When a job started and ended, in epoch seconds."""
    words = ["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%S %e"]
    start_s, end_s = site.run(words, environment={"SLURM_TIME_FORMAT": "%s"}).split()
    return int(start_s), int(end_s)


def busy_s(spans: Iterable[tuple[int, int]], from_s: float, to_s: float) -> float:
    """The seconds between two moments in which a job ran."""
    busy, until_s = 0.0, from_s
    for start_s, end_s in sorted(spans):
        first_s, last_s = max(start_s, until_s), min(end_s, to_s)
        if last_s > first_s:
            busy, until_s = busy + last_s - first_s, last_s
    return busy


def by_sprio(site: Site) -> list[int]:
    """The jobs that wait, those of the highest priority first, then those that came first."""
    rows = [line.split() for line in site.run(["sprio", "--noheader", "--format=%Y %i"]).splitlines()]
    return [job_id for _, job_id in sorted((-int(priority), int(job_id)) for priority, job_id in rows)]
