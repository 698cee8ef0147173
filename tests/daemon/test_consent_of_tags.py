"""What the daemon makes of the words in a job's tag."""

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import NodeShape, SiteBounds
from rlalloc.config import Config
from rlalloc.job import JOB_CLASSES, Allocation, Bounds, JobClass
from rlalloc.view import ClusterView
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_access import NO_FACTS, SiteFacts
from rlallocd.cluster.node_pools import NodePools
from rlallocd.slurm import PartitionRecord
from rlallocd.submissions.candidates import Candidate, job_view
from rlallocd.submissions.job_tag import Tag, read_tag

from .test_redecision_rules import EIGHT, pending_job

CONFIG = Config()
STAMP = CONFIG.word_table.stamp
TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=0;ask="
MODEL = "model=gpt2+global-batch-size=256+micro-batch-size=4+seq-length=1024"
FOLLOWS = f"words=nproc-per-node=$SLURM_GPUS_ON_NODE+torchrun=--+{MODEL}"
WHOLE = np.array([8, 64, 512_000], dtype=np.float64)
CLUSTER = ClusterView(
    time_s=2000.0,
    shape=NodeShape(8, 64, 512_000),
    free=WHOLE[np.newaxis, :],
    totals=WHOLE,
    releases=np.zeros((0, 4)),
    queued=np.zeros((0, 2)),
    behind=0,
)


def bounds_of(
    rest: str,
    config: Config = CONFIG,
    gpu_type: str = "a100",
    request: Allocation = EIGHT,
    facts: SiteFacts = NO_FACTS,
) -> Bounds:
    """The bounds of a job, of eight GPUs if nothing else is said, whose tag ends so."""
    tag = read_tag(TAG + rest)
    assert tag is not None
    return bounds_of_tag(tag, config, gpu_type, request, facts)


def bounds_of_tag(
    tag: Tag,
    config: Config = CONFIG,
    gpu_type: str = "a100",
    request: Allocation = EIGHT,
    facts: SiteFacts = NO_FACTS,
) -> Bounds:
    """The bounds of a job with a tag."""
    candidate = Candidate(pending_job(1, gpu_type=gpu_type), tag, "enforce")
    rule = config.rule("llm")
    assert rule is not None
    views = ClusterViews(NodePools(()), (), CLUSTER.time_s, config.urgency, facts=facts)
    return job_view(candidate, request, rule, CLUSTER, views, config).bounds


def declared(directives: str, words: str, job_class: JobClass) -> Bounds:
    """The bounds of a job of eight A100 of 80 GB with ``#RLALLOC`` words, in the class that its script shows."""
    tag = read_tag(f"{TAG}{directives};table={STAMP};script=17;words={words}")
    assert tag is not None
    return bounds_of_tag(msgspec.structs.replace(tag, job_class=job_class), gpu_type="a100-80")


def test_words_of_the_table_in_force_give_consent() -> None:
    found = bounds_of(f";table={STAMP};script=17;{FOLLOWS}")
    assert found.gpu_counts == (4, 8)
    assert found.script.endswith("nproc-per-node=$SLURM_GPUS_ON_NODE")


def test_fewer_gpus_only_if_the_model_is_known_to_fit_on_them() -> None:
    """However the program spreads it: the script may not show that it shards."""
    kept = (
        bounds_of(f";table={STAMP};script=17;{FOLLOWS.replace('gpt2', 'llama-2-70b')}"),
        bounds_of(f";table={STAMP};script=17;{FOLLOWS.replace('model=gpt2', 'bf16')}"),
        bounds_of(f";table={STAMP};script=17;{FOLLOWS}", gpu_type="our-own"),
    )
    for found in kept:
        assert found.gpu_counts == (8,)
        assert found.script.endswith("rlalloc does not know that its model fits on fewer GPUs")


def test_a_site_may_let_jobs_shrink_that_do_not_show_their_model() -> None:
    bounds = msgspec.structs.replace(CONFIG.rules[0].bounds.moldable, fit_may_be_unknown=True)
    rule = msgspec.structs.replace(CONFIG.rules[0], bounds=SiteBounds(moldable=bounds))
    config = msgspec.structs.replace(CONFIG, rules=(rule,))
    assert bounds_of(f";table={STAMP};script=17;{FOLLOWS.replace('model=gpt2', 'bf16')}", config).gpu_counts == (4, 8)


@pytest.mark.parametrize("evaluation", ["lm-eval", "vllm-serve=out", "vllm"])
def test_what_trains_needs_the_memory_of_training(evaluation: str) -> None:
    """Also in the class serve, as scripts that train and then evaluate once were: the least count became 1."""
    words = "torchrun=--+nproc-per-node=$SLURM_GPUS_ON_NODE+model=Qwen/Qwen2.5-7B+deepspeed=zero3.json+bf16"
    words += f"+micro-batch-size=2+max-seq-length=2048+gradient-checkpointing+{evaluation}"
    for job_class in JOB_CLASSES:
        found = declared("gpus=1-8", words, job_class)
        assert (found.gpu_counts, found.gpus.minimum_from) == ((4, 8), "model")


TRAINS = "torchrun=train.py+nproc-per-node=$SLURM_GPUS_ON_NODE+bf16+micro-batch-size=1+max-seq-length=2048"
LARGE = "meta-llama/Llama-3.1-70B"
SERVED = f"vllm-serve={LARGE}+tensor-parallel-size"


@pytest.mark.parametrize("job_class", JOB_CLASSES)
@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (f"model=Qwen/Qwen2.5-0.5B+{SERVED}=$SLURM_GPUS_ON_NODE+max-model-len=8192", (2, 4, 8)),
        (f"{SERVED}=$SLURM_GPUS_ON_NODE", (2, 4, 8)),
        (f"model=Qwen/Qwen2.5-0.5B+{SERVED}=2", (2, 4, 8)),
        # Megatron-LM's sizes are none of the server's, and the server's none of the training.
        (f"model=Qwen/Qwen2.5-0.5B+tensor-model-parallel-size=2+{SERVED}=4", (4, 8)),
        ("model=Qwen/Qwen2.5-7B+deepspeed=z3.json+vllm-serve=out+tensor-parallel-size=$SLURM_GPUS_ON_NODE", (4, 8)),
        ("model=Qwen/Qwen2.5-7B+deepspeed=z3.json+vllm-serve=out+quantization=awq", (4, 8)),
        ("model=Qwen/Qwen2.5-7B+deepspeed=z3.json+vllm-serve=Qwen/Qwen2.5-0.5B", (4, 8)),
        # Of several models, nobody knows which program has which.
        (f"model-path={LARGE}+model=Qwen/Qwen2.5-0.5B+tp-size=$SLURM_GPUS_ON_NODE+vllm", (2, 4, 8)),
    ],
)
def test_a_count_is_enough_for_all_programs(words: str, counts: tuple[int, ...], job_class: JobClass) -> None:
    """Once, a script that also trained got no GPUs for its server's model."""
    assert declared("gpus=1-8", f"{TRAINS}+{words}", job_class).gpu_counts == counts


def test_who_says_that_a_job_serves_is_believed() -> None:
    """A launcher may start a server: torchrun -m sglang.launch_server."""
    words = f"torchrun=--+nproc-per-node=$SLURM_GPUS_ON_NODE+tp-size=$SLURM_GPUS_ON_NODE+model-path={LARGE}"
    assert "states no global batch" in declared("", words, "serve").script
    assert declared("class=serve", words, "serve").gpu_counts == (8,)
    assert "batch" not in declared("class=serve", words, "serve").script
    assert declared("gpus=1-8+class=serve", f"{words}+micro-batch-size=1", "serve").gpu_counts == (2, 4, 8)


def test_the_program_that_runs_an_evaluation_hides_no_model() -> None:
    """lm_eval --model hf."""
    words = f"{TRAINS}+deepspeed=z3.json+model-name-or-path=Qwen/Qwen2.5-7B"
    for engine in "hf", "vllm", "sglang":
        assert declared("gpus=1-8", f"{words}+model={engine}", "train").gpu_counts == (4, 8)


def test_the_largest_of_several_models_counts() -> None:
    """As of a script that trains one and then asks another, smaller one to judge."""
    words = f"{TRAINS}+deepspeed=z3.json+model-name-or-path=Qwen/Qwen2.5-7B"
    assert declared("gpus=1-8", f"{words}+model=Qwen/Qwen2.5-0.5B", "train").gpu_counts == (4, 8)


def test_a_directive_wins() -> None:
    assert bounds_of(f"gpus=8;table={STAMP};script=17;{FOLLOWS}").gpu_counts == (8,)


def test_words_of_another_table_give_none() -> None:
    """A sign of a fixed count could be missing among them."""
    changed = msgspec.structs.replace(CONFIG, scripts=msgspec.structs.replace(CONFIG.scripts, counts=("--gpus",)))
    found = bounds_of(f";table={STAMP};script=17;{FOLLOWS}", changed)
    assert found.gpu_counts == (8,)
    assert "another table" in found.script


def test_a_tag_without_words_gives_none() -> None:
    """Of an earlier rlalloc.lua, or of a script that was not read as a whole."""
    assert bounds_of("").gpu_counts == (8,)
    assert bounds_of(f";table={STAMP};script=17;words=too-long").gpu_counts == (8,)


def test_under_a_rules_own_range_a_script_that_is_not_known_keeps_the_gpus_of_a_node() -> None:
    """Its steps may name CPUs or memory. The range was once used as if they did not."""
    rule = msgspec.structs.replace(CONFIG.rules[0], bounds=SiteBounds(gpus_factor=(0.5, 2), min_cpus_per_gpu=2))
    config = msgspec.structs.replace(CONFIG, rules=(rule,))
    for rest in (f"table={STAMP};script=17;words=too-long", f"table=another;script=17;{FOLLOWS}"):
        found = bounds_of(f";{rest}", config)
        assert found.gpu_counts == (8,)
        assert found.cpus_per_gpu.minimum == found.cpus_per_gpu.maximum
    assert bounds_of(f";table={STAMP};script=17;{FOLLOWS}", config).gpu_counts == (4, 8)


@pytest.mark.parametrize("shared", [True, False], ids=["shared nodes", "whole nodes"])
def test_a_script_whose_steps_name_their_cpus_gets_no_more_gpus_than_have_them(*, shared: bool) -> None:
    """A node has 64 CPUs for eight GPUs. Four tasks have 16 CPUs each; eight once had 8, and srun did not start."""
    asked = msgspec.structs.replace(EIGHT, gpus_per_node=4, tasks_per_node=4, cpus_per_task=16)
    words = "words=srun=python+srun-c=16+model=gpt2+global-batch-size=32+micro-batch-size=1"
    partition = PartitionRecord(name="gpu", max_time_s=None, max_nodes=None, whole_nodes=not shared)
    facts = SiteFacts(partitions={"gpu": partition})

    def counts(request: Allocation) -> tuple[int, ...]:
        return bounds_of(f";table={STAMP};script=17;{words}", request=request, facts=facts).gpu_counts

    assert counts(asked) == (4,)
    assert counts(msgspec.structs.replace(asked, cpus_per_task=8)) == (4, 8)
