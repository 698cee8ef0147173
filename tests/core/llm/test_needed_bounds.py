"""A model's needs raise the least count of a job's bounds, and nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation, Bounds
from rlalloc.llm.facts import facts_of_words
from rlalloc.llm.needed_bounds import with_model_needs

SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
FULL_7B = "model=llama-2-7b bf16 fsdp=full_shard gradient-checkpointing max-seq-length=2048"


def request(gpus: int) -> Allocation:
    nodes = max(1, gpus // 8)
    return Allocation(nodes, gpus // nodes, 1, 8, 64_000, 3600)


def bounds(asked: int, least: int, most: int) -> Bounds:
    return bounds_for(request(asked), Directives(gpus=(least, most)), SiteBounds(), SHAPE)


def needed(words: str, asked: int, least: int, most: int, memory_gib: float | None = 80) -> Bounds:
    facts = facts_of_words(words.split())
    return with_model_needs(bounds(asked, least, most), request(asked), (facts,), memory_gib, 8)


def test_the_least_count_is_raised_and_says_why() -> None:
    found = needed(FULL_7B, asked=8, least=1, most=16)
    assert found.gpu_counts == (2, 4, 8, 16)
    assert (found.gpus.minimum, found.gpus.minimum_from) == (2, "model")
    assert (found.gpus.maximum, found.gpus.maximum_from) == (16, "script")


@pytest.mark.parametrize(("memory_gib", "least"), [(24, 8), (40, 4), (80, 2), (192, 1)])
def test_larger_gpus_need_fewer(memory_gib: float, least: int) -> None:
    assert needed(FULL_7B, asked=8, least=1, most=8, memory_gib=memory_gib).gpu_counts[0] == least


def test_what_a_user_declared_is_never_lowered() -> None:
    before = bounds(8, 4, 8)
    assert needed(FULL_7B, asked=8, least=4, most=8) == before


def test_the_request_stays_where_it_seems_too_small() -> None:
    """The user's experience counts more than our estimate: only counts that need more on each GPU are left out."""
    found = needed("model=llama-2-70b bf16 fsdp=full_shard", asked=4, least=1, most=8)
    assert found.gpu_counts == (4, 8)
    assert found.gpus.minimum == 4


def test_what_needs_no_more_than_the_request_stays() -> None:
    """Unsharded, each GPU holds the same on any count: what the script does not show makes it fit."""
    assert needed("model=llama-2-70b bf16", asked=4, least=1, most=8) == bounds(4, 1, 8)


def consented(words: str, asked: int, least: int, most: int, memory_gib: float | None = 80) -> Bounds:
    """The bounds of a script that takes its size from Slurm, without a word of its user."""
    before = bounds(asked, least, most)
    gpus = msgspec.structs.replace(before.gpus, minimum_from="consent", maximum_from="consent")
    before = msgspec.structs.replace(before, gpus=gpus)
    facts = facts_of_words(words.split())
    return with_model_needs(before, request(asked), (facts,), memory_gib, 8, fit_may_be_unknown=False)


def test_a_model_that_seems_too_large_is_spread_and_gets_no_fewer_gpus() -> None:
    """``llama_recipes/finetuning.py --enable_fsdp --model_name meta-llama/Llama-2-70b-hf``, however it is read."""
    for words in ("model-name=meta-llama/Llama-2-70b-hf pure-bf16", "model=llama-2-70b enable-fsdp pure-bf16"):
        assert consented(f"{words} batch-size-training=4", asked=4, least=2, most=8).gpu_counts[0] == 4


@pytest.mark.parametrize(
    ("words", "memory_gib", "least"),
    [
        ("model=gpt2 micro-batch-size=4 seq-length=1024", 80, 1),
        ("model=gpt2 micro-batch-size=4", 80, 1),  # of a model with 1,024 positions
        ("model=gpt2 micro-batch-size=4 seq-length=1024", None, 8),
        ("micro-batch-size=4 seq-length=1024", 80, 8),
        ("model=gpt2 seq-length=1024", 80, 8),  # the program may divide a global batch that nobody knows
        ("model=gpt2 seq-length=1024 global-batch-size=160", 80, 4),  # 40 sequences on a GPU fit, 80 do not
        ("model=llama-2-7b micro-batch-size=1 lora-r=8 seq-length=2048 bf16", 80, 1),
        ("model=llama-2-7b micro-batch-size=1 lora-r=8 bf16", 40, 8),  # 8,192 tokens are assumed
        ("model=llama-2-7b micro-batch-size=1 seq-length=2048 bf16", 80, 8),  # 18 bytes a parameter
    ],
)
def test_fewer_gpus_only_if_they_are_enough_at_worst(words: str, memory_gib: float | None, least: int) -> None:
    assert consented(words, asked=8, least=1, most=8, memory_gib=memory_gib).gpu_counts[0] == least


def test_tensor_parallelism_that_follows_the_gpus_needs_a_known_model() -> None:
    """28 heads are not divisible by 8 (Qwen2 7B); of an unknown model nobody can say."""
    follows = "vllm tensor-parallel-size=$SLURM_GPUS_ON_NODE"
    assert consented(f"{follows} model=Qwen/Qwen2.5-72B", asked=4, least=4, most=8).gpu_counts == (4, 8)
    assert consented(f"{follows} model=Qwen/Qwen2.5-7B", asked=4, least=4, most=8).gpu_counts == (4,)
    assert consented(f"{follows} model=our/own-13b", asked=4, least=4, most=8).gpu_counts == (4,)
    assert consented(f"{follows} model=our/own", asked=4, least=4, most=8).gpu_counts == (4,)


def test_counts_that_the_parallel_sizes_rule_out_are_left_out() -> None:
    words = "model=llama-2-7b tensor-model-parallel-size=2 pipeline-model-parallel-size=2 bf16 global-batch-size=8"
    assert needed(words, asked=16, least=1, most=32).gpu_counts == (4, 8, 16, 32)
    assert needed(words, asked=16, least=1, most=32, memory_gib=None).gpu_counts == (4, 8, 16, 32)


def test_facts_that_the_request_contradicts_are_not_believed() -> None:
    words = "model=llama-2-70b tensor-model-parallel-size=3"
    assert needed(words, asked=8, least=1, most=8) == bounds(8, 1, 8)


@pytest.mark.parametrize("words", ["", "bf16", "model=unknown bf16", "torchrun"])
def test_nothing_known_changes_nothing(words: str) -> None:
    assert needed(words, asked=8, least=1, most=8) == bounds(8, 1, 8)


def test_an_unknown_type_of_gpu_raises_nothing() -> None:
    assert needed(FULL_7B, asked=8, least=1, most=8, memory_gib=None) == bounds(8, 1, 8)


def test_an_engine_takes_counts_that_divide_its_heads() -> None:
    found = needed(
        "vllm-serve=Qwen/Qwen2.5-72B-Instruct tensor-parallel-size=$SLURM_GPUS max-model-len=32768", 8, 1, 16
    )
    assert found.gpu_counts == (4, 8, 16)


WORDS = [
    "model=7b",
    "model=llama-2-70b",
    "bf16",
    "fsdp=full_shard",
    "deepspeed=z3.json",
    "tensor-parallel-size=$N",
    "tensor-model-parallel-size=4",
    "global-batch-size=12",
    "micro-batch-size=3",
    "vllm",
    "lora-r=8",
]


@given(
    asked=st.sampled_from([1, 2, 4, 8, 16]),
    least=st.sampled_from([1, 2, 4, 8]),
    most=st.sampled_from([8, 16, 32]),
    memory_gib=st.sampled_from([None, 16.0, 80.0, 192.0]),
    words=st.lists(st.sampled_from(WORDS), max_size=6),
)
def test_bounds_only_narrow(asked: int, least: int, most: int, memory_gib: float | None, words: list[str]) -> None:
    before = bounds(asked, least, most)
    after = with_model_needs(before, request(asked), (facts_of_words(words),), memory_gib, 8)
    assert set(after.gpu_counts) <= set(before.gpu_counts)
    assert after.gpu_counts
    assert after.gpus.minimum >= before.gpus.minimum
    assert after.gpus.maximum == before.gpus.maximum
    assert (asked in after.gpu_counts) == (asked in before.gpu_counts)
    assert all(after.gpus.minimum <= count <= after.gpus.maximum for count in after.gpu_counts)
