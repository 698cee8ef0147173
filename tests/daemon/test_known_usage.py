"""What past jobs used reaches the bounds that a policy sees."""

import math
import random
from collections import Counter
from pathlib import Path

import msgspec

from rlalloc.config import Config, Rule
from rlalloc.errors import HistoryError
from rlalloc.job import Allocation
from rlalloc.past_job import PastJob
from rlalloc.speed.profile_file import AppliesTo, ProfilePoint, Size
from rlalloc.usage.family_kills import FamilyKills, Kill
from rlalloc.usage.past_bounds import NO_NEEDS
from rlalloc.usage.past_usage import PastUsage
from rlalloc.usage.profiled_needs import ProfiledFloors
from rlalloc.usage.trimming_rules import TrimmingSection
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_pools import NodePools
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.knowledge.known_usage import KnownUsage, as_past_job
from rlallocd.slurm import PartitionRecord, SiteLimits
from rlallocd.slurm.slurm_records import RequestFields
from rlallocd.submissions.candidates import Candidate, job_view
from rlallocd.submissions.job_tag import read_tag
from tests.agent.running_server import Server
from tests.core.profiles import measured, profile
from tests.daemon.slurm_in_memory import NODE, gpus
from tests.daemon.test_needs_of_jobs import REQUEST
from tests.daemon.test_redecision_rules import pending_job
from tests.daemon.test_request_sizes_and_tags import ENFORCE, JOB, TAG

CONFIG = Config()


class Learned:
    """Past jobs as the predictor has read them."""

    def __init__(self) -> None:
        self.usage = PastUsage(TrimmingSection(exceeded=0.02))
        self.kills = FamilyKills()


def disguised(job: PastJob) -> PastJob:
    return msgspec.structs.replace(job, user=f"user-{job.user}")


def learned(request: Allocation = REQUEST) -> Learned:
    """120 jobs like JOB, each of which held 40,000 MiB."""
    found = Learned()
    like = disguised(as_past_job(JOB, request))
    for number in range(120):
        began_s = 10_000.0 * number
        found.usage.add(
            msgspec.structs.replace(
                like,
                job_id=str(number + 1),
                submitted_s=began_s,
                started_s=began_s,
                ended_s=began_s + 3600,
                state="COMPLETED",
                node_rss_mib=40_000.0,
            )
        )
    return found


def test_a_job_like_past_jobs_gets_their_floor_under_the_names_of_the_history() -> None:
    past = learned()
    usage = KnownUsage(past, Counter(), disguised)
    tag = read_tag("rlalloc:v=1;mode=shadow;rule=llm;class=train;begin=0;user_begin=0;ask=")
    assert tag is not None
    views = ClusterViews(NodePools([NODE]), (), 0.0, CONFIG.urgency, usage=usage)

    def minimum() -> tuple[float, str]:
        view = job_view(Candidate(JOB, tag, "shadow"), REQUEST, Rule(name="llm"), views.for_job(JOB), views, CONFIG)
        return view.bounds.mem_mib_per_gpu.minimum, view.bounds.mem_mib_per_gpu.minimum_from

    assert minimum() == (40_000.0 * 1.1 / 8, "past jobs")
    past.kills.add(f"user-{JOB.user}", JOB.name, Kill(5, "out-of-memory", 0.0, 8))
    assert minimum() == (32_000.0, "request")


def test_a_job_gets_no_gpus_for_which_a_node_has_too_little_memory_unless_past_jobs_needed_less() -> None:
    """A node has eight GPUs and 512,000 MiB; the request is two of them and 400,000 MiB."""
    request = msgspec.structs.replace(REQUEST, gpus_per_node=2, cpus_per_task=8, mem_mib_per_node=400_000)
    tag = read_tag("rlalloc:v=1;mode=shadow;rule=llm;class=train;begin=0;user_begin=0;ask=gpus=1-8")
    assert tag is not None

    def counts(past: Learned, fields: RequestFields) -> tuple[int, ...]:
        usage = KnownUsage(past, Counter(), disguised)
        views = ClusterViews(NodePools([NODE]), (), 0.0, CONFIG.urgency, usage=usage)
        job = msgspec.structs.replace(JOB, fields=fields)
        view = job_view(Candidate(job, tag, "shadow"), request, Rule(name="llm"), views.for_job(job), views, CONFIG)
        return view.bounds.gpu_counts

    asks, asks_for_all = RequestFields(min_cpus=8, mem_mib_per_node=400_000), RequestFields(min_cpus=8)
    assert counts(Learned(), asks) == (1, 2)
    assert counts(Learned(), asks_for_all) == (1, 2, 4, 8)  # --mem=0
    assert counts(learned(request), asks) == (1, 2, 4, 8)


def test_a_profile_raises_the_floor_of_jobs_that_it_names_as_they_are_called() -> None:
    """Users and names of past jobs are pseudonyms here, those of profiles are not."""
    peak = ProfilePoint(
        size=Size(gpus=8, nodes=1, cpus_per_gpu=4), outcome="measured", measured=measured(1e4, host_mem_mib=60_000)
    )
    named = profile(0.9, AppliesTo(jobs=(JOB.name,), users=(JOB.user,)))
    profiles = [msgspec.structs.replace(named, points=(peak,))]
    usage = KnownUsage(learned(), Counter(), disguised, lambda: profiles)
    assert usage(JOB, REQUEST).profiled == ProfiledFloors(named.name, 60_000.0 * 1.1, None)
    assert usage(msgspec.structs.replace(JOB, name="other"), REQUEST).profiled is None
    profiles.clear()
    assert usage(JOB, REQUEST).profiled is None


def test_what_cannot_be_found_out_trims_nothing_and_is_counted() -> None:
    def no_key(_: PastJob) -> PastJob:
        raise HistoryError("history.key_file /x: no such file")

    counters: Counter[str] = Counter()
    assert KnownUsage(learned(), counters, no_key)(JOB, REQUEST) == NO_NEEDS
    assert counters == {"usage_unknown": 1}


def test_an_array_of_tiny_jobs_does_not_trim_the_first_job_of_another_user(tmp_path: Path) -> None:
    """Before, the last 100 jobs of an account or a partition counted, whoever ran them."""
    request = Allocation(1, 1, 1, 8, 200_000, 600)
    tag = read_tag(TAG.replace("ask=gpus=1-8", "ask="))
    assert tag is not None
    fields = RequestFields(min_nodes=1, max_nodes=1, min_cpus=8, cpus_per_task=8, mem_mib_per_node=200_000)
    job = pending_job(7, request, fields=fields, user="new", begin_s=2000)
    like = msgspec.structs.replace(as_past_job(job, request), state="COMPLETED")
    past, chance = Learned(), random.Random(1)
    used = [60_000.0 * math.exp(chance.gauss(0.0, 0.1)) for _ in range(400)]

    def add(number: int, user: str, mib: float) -> None:
        began_s = 700.0 * number
        found = msgspec.structs.replace(like, job_id=str(number), user=user, name="train", submitted_s=began_s)
        past.usage.add(msgspec.structs.replace(found, started_s=began_s, ended_s=began_s + 600, node_rss_mib=mib))

    for number, mib in enumerate(used):
        add(number, f"user{number % 40}", mib)
    for number in range(400, 500):
        add(number, "eve", 30.0)
    snapshot = Snapshot(
        taken_s=1950.0,
        jobs=(job,),
        nodes=(msgspec.structs.replace(NODE, devices=gpus("a100", 8)),),
        partitions={"gpu": PartitionRecord(name="gpu", max_time_s=None, max_nodes=None)},
        limits=SiteLimits(enforced=False),
        usage=KnownUsage(past, Counter(), lambda each: each),
    )
    with Server(tmp_path) as server:
        agent = AgentClient(server.endpoint, 60.0)
        try:
            ((_, decision),) = decide([Candidate(job, tag, "enforce")], snapshot, ENFORCE, agent)
        finally:
            agent.close()
    assert not decision.reason
    given = decision.allocation or decision.request
    assert given.mem_mib_per_node >= max(used[-95:])
