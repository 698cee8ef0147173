"""How a job's GPUs are divided: what is known decides, what the script states stays."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.job import Allocation
from rlalloc.llm.facts import facts_of_words
from rlalloc.llm.model_needs import memory_on
from rlalloc.llm.named_files import facts_of_script
from rlalloc.llm.parallel_layouts import ParallelPlan, with_plan
from rlalloc.llm.parallel_plan import plan_for

ONE_COPY = "vllm-serve={} tensor-parallel-size=${{RLALLOC_TP:-1}} pipeline-parallel-size=${{RLALLOC_PP:-1}}"
SERVE = f"{ONE_COPY} data-parallel-size=${{{{RLALLOC_DP:-1}}}}"
GPT = (
    "pretrain-gpt num-layers={} hidden-size={} num-attention-heads={} seq-length=2048 micro-batch-size=1 bf16 "
    "recompute-granularity=full global-batch-size={} "
    "tensor-model-parallel-size=$RLALLOC_TP pipeline-model-parallel-size=$RLALLOC_PP"
)


def size(nodes: int, gpus_per_node: int) -> Allocation:
    return Allocation(nodes, gpus_per_node, 1, 8, 64_000, 3600)


def plan(words: str, nodes: int, gpus: int, gib: float | None = 80, gpu_type: str = "a100") -> ParallelPlan | None:
    return plan_for(facts_of_words(words.split()), size(nodes, gpus), gib, gpu_type)


@pytest.mark.parametrize("gib", [None, 80.0])
def test_data_parallelism_alone_where_nothing_is_known(gib: float | None) -> None:
    assert plan("nproc-per-node=gpu", 2, 4, gib) == ParallelPlan(8, 1, 1)
    assert plan("", 1, 3, gib) == ParallelPlan(3, 1, 1)


@pytest.mark.parametrize(
    ("words", "nodes", "gpus", "expected"),
    [
        ("tensor-parallel-size=4", 2, 8, ParallelPlan(4, 4, 1)),
        ("tensor-model-parallel-size=2 pipeline-model-parallel-size=4", 2, 8, ParallelPlan(2, 2, 4)),
        ("vllm-serve=meta-llama/Llama-2-7b-hf tensor-parallel-size=4", 1, 4, ParallelPlan(1, 4, 1)),
        ("vllm-serve=meta-llama/Llama-2-7b-hf tensor-parallel-size=4", 1, 8, None),  # 4 GPUs would stay idle
        ("tensor-parallel-size=$SLURM_GPUS_ON_NODE", 2, 4, ParallelPlan(2, 4, 1)),
        ("tensor-parallel-size=3", 1, 8, None),
        ("tensor-parallel-size=8", 4, 4, None),  # it would leave the node
    ],
)
def test_what_the_script_states_stays(words: str, nodes: int, gpus: int, expected: ParallelPlan | None) -> None:
    assert plan(words, nodes, gpus) == expected


def test_a_server_has_the_smallest_copies_that_fit() -> None:
    """Llama 2 70B has 129 GiB of weights, 7B has 13, Llama 3.1 405B 756."""
    assert plan(SERVE.format("meta-llama/Llama-2-7b-hf"), 1, 8) == ParallelPlan(8, 1, 1)
    assert plan(SERVE.format("meta-llama/Llama-2-70b-hf"), 1, 8) == ParallelPlan(4, 2, 1)
    assert plan(SERVE.format("meta-llama/Llama-2-70b-hf"), 1, 8, gib=40) == ParallelPlan(2, 4, 1)
    assert plan(SERVE.format("meta-llama/Llama-3.1-405B"), 2, 8) == ParallelPlan(1, 8, 2)


def test_a_server_that_does_not_take_its_copies_from_the_plan_has_one_on_all_gpus() -> None:
    assert plan(ONE_COPY.format("meta-llama/Llama-2-7b-hf"), 1, 8) == ParallelPlan(1, 8, 1)


def test_a_known_model_on_gpus_of_unknown_memory_has_no_plan_unless_there_is_no_choice() -> None:
    assert plan(SERVE.format("meta-llama/Llama-2-7b-hf"), 1, 8, gib=None) is None
    assert plan(SERVE.format("meta-llama/Llama-2-7b-hf"), 1, 1, gib=None) == ParallelPlan(1, 1, 1)


def test_a_model_that_fits_nowhere_is_divided_as_far_as_possible() -> None:
    """The estimate may be wrong, and the user asked for these GPUs."""
    found = plan(SERVE.format("meta-llama/Llama-3.1-405B"), 1, 8)
    assert found is not None
    assert found.tensor * found.pipeline == 8


def test_training_keeps_tensor_parallelism_small_as_long_as_memory_lasts() -> None:
    small = plan(GPT.format(24, 2304, 24, 512), 4, 8)
    assert small == ParallelPlan(32, 1, 1)
    large = plan(GPT.format(96, 12288, 96, 1536), 96, 8)  # GPT-3 needs both
    assert large is not None
    assert large.tensor > 1
    assert large.pipeline > 1


def test_a_shard_of_everything_needs_no_tensor_parallelism() -> None:
    words = "model=llama-2-7b bf16 fsdp=full_shard gradient-checkpointing max-seq-length=2048"
    assert plan(words, 1, 4) == ParallelPlan(4, 1, 1)


@pytest.mark.parametrize(
    "words", ["model=llama-2-7b bf16", "parallelism-config-tp-size=${RLALLOC_TP:-1} model=llama-2-7b"]
)
def test_a_script_that_does_not_take_its_pipeline_from_the_plan_has_none(words: str) -> None:
    """Accelerate knows data- and tensor-parallel sizes: their product has to be its number of processes."""
    found = plan(words, 1, 8, gib=40)
    assert found is not None
    assert found.pipeline == 1
    assert found.tensor > 1  # 100 GiB of weights, gradients and optimizer


def test_a_script_that_follows_the_plan_needs_what_the_best_plan_needs() -> None:
    follows = facts_of_words(SERVE.format("meta-llama/Llama-2-70b-hf").split())
    memory = memory_on(follows, 4, 8)
    alone = memory_on(with_plan(follows, ParallelPlan(4, 1, 1)), 4, 8)
    assert memory is not None
    assert alone is not None
    assert memory.needed_gib < 60 < alone.needed_gib


def test_the_variables_are_found_in_whole_scripts_too() -> None:
    text = "#!/bin/sh\nTP=${RLALLOC_TP:-2}\nvllm serve meta-llama/Llama-2-70b-hf --tensor-parallel-size $TP"
    copies = f"{text} --data-parallel-size ${{RLALLOC_DP:-1}}"
    for script, expected in ((text, ParallelPlan(1, 8, 1)), (copies, ParallelPlan(4, 2, 1))):
        assert plan_for(facts_of_script(script, lambda _name: None), size(1, 8), 80, "h100") == expected


MODELS = (
    SERVE.format("Qwen/Qwen2.5-14B"),
    SERVE.format("my-13b"),
    GPT.format(40, 6144, 48, 1024),
    "",
    "model=gpt2-xl",
)


@given(
    words=st.sampled_from(MODELS),
    nodes=st.integers(1, 12),
    gpus=st.integers(1, 8),
    gib=st.sampled_from([None, 16.0, 80.0]),
)
def test_any_plan_uses_every_gpu_and_keeps_tensor_parallelism_in_a_node(
    words: str, nodes: int, gpus: int, gib: float | None
) -> None:
    facts = facts_of_words(words.split())
    found = plan_for(facts, size(nodes, gpus), gib)
    if found is None:
        return
    assert found.gpus == nodes * gpus
    assert gpus % found.tensor == 0
    if facts.architecture is not None and facts.architecture.exact:
        assert facts.architecture.heads % found.tensor == 0
        assert facts.architecture.layers % found.pipeline == 0


def test_serving_has_a_plan_for_every_usual_size() -> None:
    for nodes, gpus in product((1, 2), (1, 2, 4, 8)):
        assert plan(SERVE.format("meta-llama/Llama-2-7b-hf"), nodes, gpus) is not None
