"""What a job's script tells of its LLM reaches the bounds that a policy sees."""

from collections.abc import Sequence

import msgspec
import pytest

from rlalloc.bounds import SiteBounds
from rlalloc.config import Config, Rule
from rlalloc.devices import Device, node_devices
from rlalloc.job import Allocation, Bounds
from rlalloc.llm.parallel_layouts import ParallelPlan
from rlalloc.usage.past_bounds import NO_NEEDS, KnownNeeds
from rlalloc.usage.profiled_needs import ProfiledFloors
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_pools import NodePools
from rlallocd.knowledge.job_plans import gpu_memory_gib, plan_of_job
from rlallocd.slurm import NodeNeeds, NodeRecord
from rlallocd.submissions.candidates import Candidate, job_view
from rlallocd.submissions.job_tag import read_tag
from tests.daemon.slurm_in_memory import NODE, gpus
from tests.daemon.test_request_sizes_and_tags import JOB

CONFIG = Config()
REQUEST = Allocation(1, 8, 1, 32, 256_000, 3600)
WORDS = "model-name-or-path=meta-llama/Llama-2-7b-hf+bf16+fsdp=full_shard+gradient-checkpointing+max-seq-length=2048"


def bounds(
    words: str,
    *types: str,
    asked_type: str = "",
    config: Config = CONFIG,
    job_class: str = "train",
    request: Allocation = REQUEST,
    near_gpus: bool = False,
) -> Bounds:
    """The bounds of a job with ``gpus=1-8`` on nodes with these types of GPUs, a node each."""
    nodes = [msgspec.structs.replace(NODE, devices=gpus(each, 8)) for each in types]
    needs = NodeNeeds(near_gpus=near_gpus)
    return bounds_on(
        nodes, words, asked_type=asked_type, config=config, job_class=job_class, request=request, needs=needs
    )


def bounds_on(
    nodes: Sequence[NodeRecord],
    words: str,
    *,
    asked_type: str = "",
    config: Config = CONFIG,
    job_class: str = "train",
    request: Allocation = REQUEST,
    needs: NodeNeeds = NodeNeeds(),  # noqa: B008 (frozen)
    site: SiteBounds = SiteBounds(),  # noqa: B008 (frozen)
    past: KnownNeeds = NO_NEEDS,
) -> Bounds:
    """Likewise on these nodes."""
    stamp = config.word_table.stamp
    tag = read_tag(
        f"rlalloc:v=1;mode=shadow;rule=llm;class={job_class};begin=0;user_begin=0;ask=gpus=1-8;table={stamp};script=1;"
        f"words={words}"
    )
    assert tag is not None
    job = msgspec.structs.replace(JOB, gpu_type=asked_type, needs=needs)
    views = ClusterViews(NodePools(nodes), (), 0.0, config.urgency, usage=lambda *_: past)
    cluster = views.for_job(msgspec.structs.replace(job, gpu_type=""))
    return job_view(
        Candidate(job, tag, "shadow"), request, Rule(name="llm", bounds=site), cluster, views, config
    ).bounds


def test_the_model_raises_the_least_count() -> None:
    found = bounds(WORDS, "a100")
    assert found.gpu_counts == (2, 4, 8)
    assert (found.gpus.minimum, found.gpus.minimum_from) == (2, "model")


def test_what_a_job_needs_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late decisions ask for it in each pass, of each waiting job."""
    planned = f"{WORDS}+tensor-model-parallel-size=$RLALLOC_TP"
    known = bounds(planned, "a100")

    def found_again(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rlallocd.submissions.candidates.with_model_needs", found_again)
    assert bounds(planned, "a100") == known


def test_a_job_that_gets_only_cpus_beside_its_gpus_is_offered_no_more_of_them_for_each() -> None:
    """Twelve CPUs for eight GPUs: two for one would be more."""
    uneven = msgspec.structs.replace(REQUEST, cpus_per_task=12)
    found = [bounds("", "a100", request=uneven, near_gpus=near).gpu_counts for near in (False, True)]
    assert found == [(1, 2, 4, 8), (2, 4, 8)]


@pytest.mark.parametrize(("near", "counts"), [(False, (1, 2, 4, 8)), (True, (2, 4, 8))])
def test_nor_does_it_get_more_where_like_jobs_used_more(near: bool, counts: tuple[int, ...]) -> None:
    """The 1.5 CPUs a GPU of its request would be two for one GPU. The site alone would let it have one."""
    found = bounds_on(
        [msgspec.structs.replace(NODE, devices=gpus("a100", 8))],
        "",
        request=msgspec.structs.replace(REQUEST, cpus_per_task=12),
        needs=NodeNeeds(near_gpus=near),
        site=SiteBounds(min_cpus_per_gpu=1.0),
        past=KnownNeeds(profiled=ProfiledFloors("gpt", node_mib=None, cpus_per_gpu=2)),
    )
    assert found.gpu_counts == counts


def test_what_sockets_allow_is_told_for_people() -> None:
    """Two nodes, one of which has four sockets."""
    nodes = (
        msgspec.structs.replace(NODE, devices=gpus("a100", 8), sockets=2, cores=32),
        msgspec.structs.replace(NODE, name="n2", devices=gpus("a100", 8), sockets=4, cores=16),
    )
    needs = NodeNeeds(sockets=4, near_gpus=True)
    assert bounds_on(nodes, "", needs=needs).sockets == (
        "only nodes with at least 4 sockets: 1 of 2; "
        "at most 4 CPUs a GPU, all beside its GPUs (--gres-flags=enforce-binding)"
    )
    assert bounds_on(nodes, "").sockets == ""


def test_the_smallest_of_several_types_counts() -> None:
    assert bounds(WORDS, "a100", "l40s").gpu_counts == (4, 8)
    assert bounds(WORDS, "a100", "l40s", asked_type="a100").gpu_counts == (2, 4, 8)


def test_the_site_says_what_memory_its_gpus_have() -> None:
    small = msgspec.structs.replace(CONFIG, gpu_memory={"a100": 40.0, "ours": 180.0})
    assert bounds(WORDS, "a100", config=small).gpu_counts == (4, 8)
    assert bounds(WORDS, "ours", config=small).gpu_counts == (1, 2, 4, 8)


@pytest.mark.parametrize("types", [("",), ("a100", ""), ("unheard-of",), ("a100", "unheard-of")])
def test_unknown_memory_raises_nothing(types: tuple[str, ...]) -> None:
    assert bounds(WORDS, *types).gpu_counts == (1, 2, 4, 8)


def test_parallel_sizes_count_without_a_type() -> None:
    assert bounds("tensor-model-parallel-size=4+model=7b", "").gpu_counts == (4, 8)


def test_shards_share_the_memory_of_their_gpu() -> None:
    devices = node_devices("gpu:a100:2,shard:a100:16")
    node = msgspec.structs.replace(NODE, devices=devices)
    views = ClusterViews(NodePools([node]), (), 0.0, CONFIG.urgency)
    whole, shards = (
        views.for_job(msgspec.structs.replace(JOB, gpu_type="", is_shard=each)) for each in (False, True)
    )
    assert (whole.gpu_types, shards.gpu_types) == (("a100",), ("a100",))
    assert (gpu_memory_gib("", whole, CONFIG), gpu_memory_gib("", shards, CONFIG)) == (80.0, None)


def test_only_whole_gpus_get_a_plan() -> None:
    tag = read_tag("rlalloc:v=1;mode=shadow;rule=llm;class=train;begin=0;user_begin=0;ask=;script=1;words=torchrun")
    assert tag is not None
    plans = [
        plan_of_job(tag, "train", CONFIG.scripts, REQUEST, None, Device(kind)) for kind in ("gpu", "mig", "shard")
    ]
    assert plans == [ParallelPlan(8, 1, 1), None, None]


def test_the_plan_is_for_the_program_that_takes_it() -> None:
    """Here the server, beside a training of a small model that would fit without tensor parallelism."""
    words = "torchrun=train.py+model=gpt2+micro-batch-size=1+vllm-serve=meta-llama/Llama-3.1-70B+tp=$RLALLOC_TP"
    tag = read_tag(f"rlalloc:v=1;mode=shadow;rule=llm;class=serve;begin=0;user_begin=0;ask=;table=1;words={words}")
    assert tag is not None
    assert plan_of_job(tag, "serve", CONFIG.scripts, REQUEST, 80, Device("gpu")) == ParallelPlan(4, 2, 1)


@pytest.mark.parametrize("words", ["", "too-long", "torchrun", "model=$MODEL+bf16"])
def test_words_that_tell_nothing_raise_nothing(words: str) -> None:
    assert bounds(words, "a100").gpu_counts == (1, 2, 4, 8)


def test_a_serving_job_is_no_training() -> None:
    """The job's class says so where the words do not: a server holds no gradients."""
    words = "model-path=meta-llama/Llama-2-70b-hf+tp=$SLURM_GPUS+context-length=4096"
    assert bounds(words, "h100").gpu_counts == (8,)
    assert bounds(words, "h100", job_class="serve").gpu_counts == (2, 4, 8)
