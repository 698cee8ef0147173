"""What past jobs used reaches the bounds that a policy sees."""

from collections import Counter

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
from rlallocd.candidates import Candidate, job_view
from rlallocd.cluster_views import ClusterViews
from rlallocd.job_tag import read_tag
from rlallocd.known_usage import KnownUsage, as_past_job
from rlallocd.node_pools import NodePools
from rlallocd.slurm.slurm_records import RequestFields
from tests.core.profiles import measured, profile
from tests.daemon.slurm_in_memory import NODE
from tests.daemon.test_needs_of_jobs import REQUEST
from tests.daemon.test_request_sizes_and_tags import JOB

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
