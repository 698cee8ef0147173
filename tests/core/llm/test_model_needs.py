"""Which GPU counts make sense for a job and have the memory."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.llm.architecture import architecture_of_config
from rlalloc.llm.facts import Facts, facts_of_words
from rlalloc.llm.gpu_types import GPU_MEMORY_GIB, memory_gib
from rlalloc.llm.known_models import architecture_named
from rlalloc.llm.model_needs import counts_that_fit, makes_sense, memory_on, precision_of, training_on
from rlalloc.llm.training_memory import layer_activations
from rlalloc.llm.training_setup import LORA_TARGETS, PRECISIONS, Training

LLAMA_70B = architecture_named("llama-2-70b")


def facts(words: str) -> Facts:
    return facts_of_words(words.split())


@pytest.mark.parametrize(
    ("words", "sense"),
    [
        ("model=llama-2-7b", {1, 2, 3, 4, 5, 6, 7, 8, 16}),
        ("model=llama-2-7b tensor-model-parallel-size=4", {4, 8, 16}),
        ("model=llama-2-7b tensor-model-parallel-size=4 pipeline-model-parallel-size=2", {8, 16}),
        ("model=llama-2-7b micro-batch-size=2 global-batch-size=12", {1, 2, 3, 6}),
        ("model=llama-2-7b tensor-model-parallel-size=2 micro-batch-size=1 global-batch-size=4", {2, 4, 8}),
        ("vllm model=llama-2-7b tensor-parallel-size=$N", {1, 2, 4, 8, 16}),
        ("vllm model=falcon-7b tensor-parallel-size=$N", {1}),
        # 40 query heads and 8 key-value heads: 5 divides only the query heads.
        ("vllm model=qwen2.5-32b tensor-parallel-size=$N", {1, 2, 4, 8, 16}),
        ("model=qwen2.5-32b tensor-model-parallel-size=5", set()),
        ("vllm model=qwen2.5-7b tensor-parallel-size=$N", {1, 2, 4}),
        # One key head, copied to each rank: 8 divides the 8 query heads.
        ("vllm model=gemma-2b tensor-parallel-size=$N", {1, 2, 4, 8, 16}),
        ("vllm model=my-13b tensor-parallel-size=$N", {1, 2, 4, 8, 16}),
        ("vllm model=my-13b tensor-parallel-size=5", {5}),
        ("model=llama-2-7b tensor-model-parallel-size=3", set()),
        # Of an engine: its ranks and copies, and no GPU more.
        ("vllm model=llama-2-7b", {1}),
        ("vllm model=llama-2-70b tensor-parallel-size=4", {4}),
        ("vllm model=llama-2-70b tensor-parallel-size=4 pipeline-parallel-size=2", {8}),
        ("vllm model=llama-2-7b tensor-parallel-size=2 data-parallel-size=4", {8}),
        ("vllm model=llama-2-7b tensor-parallel-size=2 data-parallel-size=$N", {2, 4, 6, 8, 16}),
        ("sglang model=llama-2-7b tp=8 dp=8 enable-dp-attention", {8, 16}),
        # Groups of 128 weights: 11,008 / 128 = 86 are divided by 2, and not by 4.
        ("vllm model=TheBloke/Llama-2-7B-AWQ tensor-parallel-size=$N", {1, 2}),
        # 8 experts on 8 ranks; 16 ranks have none for half of them.
        ("model=mixtral-8x7b expert-model-parallel-size=8 pipeline-model-parallel-size=2", {16}),
        ("model=mixtral-8x7b expert-model-parallel-size=16", set()),
    ],
)
def test_counts_that_make_sense(words: str, sense: set[int]) -> None:
    found = facts(words)
    assert {gpus for gpus in (*range(1, 9), 16) if makes_sense(found, gpus, 8)} == sense


def test_models_that_are_published_with_few_bits_fit_fewer_gpus() -> None:
    """GPT-OSS 120B on one 80 GB GPU (its model card); DeepSeek R1's 8 bits on 8 H200 (141 GB), and not on 8 H100."""
    assert counts_that_fit(facts("vllm-serve=openai/gpt-oss-120b max-model-len=32768"), 80, 8, 8) == (1,)
    r1 = facts("vllm-serve=deepseek-ai/DeepSeek-R1 tensor-parallel-size=8 max-model-len=32768")
    assert counts_that_fit(r1, 80, 8, 8) == ()
    assert counts_that_fit(r1, 141, 8, 8) == (8,)


def test_weights_in_the_hosts_memory_need_none_of_the_gpus() -> None:
    words = "vllm-serve=meta-llama/Llama-2-70b-hf max-model-len=2048"
    assert counts_that_fit(facts(words), 80, 8, 8) == ()
    assert counts_that_fit(facts(f"{words} cpu-offload-gb=80"), 80, 8, 8) == (1,)


def test_sharding_needs_fewer_gpus_than_none() -> None:
    """Full fine-tuning of 7B: 16 bytes a parameter fit no 80 GB unsharded; with ZeRO-3 on two they do."""
    common = "model=llama-2-7b bf16 gradient-checkpointing max-seq-length=2048"
    assert counts_that_fit(facts(common), 80, 8, 64) == ()
    assert counts_that_fit(facts(f"{common} fsdp=full_shard"), 80, 8, 64)[0] == 2
    assert counts_that_fit(facts(f"{common} deepspeed=zero3.json"), 80, 8, 64)[0] == 2


def test_qlora_of_65b_fits_48_gb() -> None:
    """QLoRA's abstract: a 65B model on a single 48 GB GPU; its code has a paged optimizer by default."""
    words = "model=llama-65b load-in-4bit lora-r=64 lora-target-modules=all-linear gradient-checkpointing"
    assert counts_that_fit(facts(f"{words} max-seq-length=512"), 48, 8, 8) == ()
    assert counts_that_fit(facts(f"{words} max-seq-length=512 optim=paged_adamw_32bit"), 48, 8, 8)[0] == 1


def test_an_engine_must_hold_one_sequence() -> None:
    short = counts_that_fit(facts("vllm model=llama-3-8b max-model-len=8192"), 24, 8, 8)
    long = counts_that_fit(facts("vllm model=llama-3-8b max-model-len=131072"), 24, 8, 8)
    assert short[0] == 1
    assert long == ()


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    shared = memory_on(facts("vllm model=gemma-2b tensor-parallel-size=1 max-model-len=4096"), 1, 8)
    copied = memory_on(facts("vllm model=gemma-2b tensor-parallel-size=8 max-model-len=4096"), 8, 8)
    assert shared is not None
    assert copied is not None
    cache = {each.parts[0].name: each.parts[1].gib for each in (shared, copied)}
    assert shared.parts[1].gib == pytest.approx(copied.parts[1].gib)
    assert cache


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ("model=7b", "mixed"),
        ("model=7b bf16", "amp"),
        ("model=7b torch-dtype=bfloat16", "bf16"),
        ("model=7b dtype=float32", "fp32"),
        # --bf16 names the arithmetic, --dtype the weights: in whatever order they stand.
        ("model=7b bf16 dtype=bfloat16", "bf16"),
        ("model=7b dtype=bfloat16 bf16", "bf16"),
        ("model=7b bf16 dtype=float32", "amp"),
        ("model=7b mixed-precision=no dtype=bfloat16", "bf16"),
        ("model=7b use-peft bf16 dtype=bfloat16", "amp"),
        ("model=7b deepspeed=x.json dtype=bfloat16", "deepspeed"),
        ("model=7b fsdp=full_shard bf16 dtype=bfloat16", "fsdp"),
        ("model=7b fsdp=full_shard dtype=bfloat16", "bf16"),
        ("pretrain_gpt.py dtype=bfloat16", "fp32"),
        ("model=7b fsdp=full_shard bf16", "fsdp"),
        ("model=7b deepspeed=x.json bf16", "deepspeed"),
        ("pretrain_gpt.py bf16", "megatron"),
        ("pretrain_gpt.py", "fp32"),
        ("model=7b mixed-precision=no", "fp32"),
    ],
)
def test_how_a_framework_keeps_its_states(words: str, precision: str) -> None:
    assert precision_of(facts(words)) == precision


def test_an_unknown_model_needs_nothing_that_is_known() -> None:
    assert memory_on(facts("bf16 model=unknown"), 8, 8) is None
    assert counts_that_fit(facts("bf16 model=unknown"), 80, 8, 64) == ()


@given(
    gpus=st.sampled_from([1, 2, 4, 8, 16, 64]),
    stage=st.sampled_from([None, 0, 1, 2, 3]),
    changes=st.fixed_dictionaries(
        {
            "micro_batch": st.integers(1, 8),
            "sequence": st.sampled_from([128, 2048, 8192]),
            "checkpointing": st.sampled_from([None, "none", "selective", "full"]),
            "precision": st.sampled_from([None, "fp32", "16-bit", "pure-16-bit"]),
            "lora_rank": st.sampled_from([None, 8]),
            "weights": st.sampled_from([None, "4-bit", "nf4"]),
            "framework": st.sampled_from(["", "deepspeed", "megatron"]),
        }
    ),
)
def test_more_of_anything_never_needs_less(gpus: int, stage: int | None, changes: dict[str, Any]) -> None:
    """More GPUs or sharding need no more memory on each; longer sequences and more of them no less.

    Only the second GPU of a job without sharding may need more on each: it brings DistributedDataParallel's buckets.
    """
    base = Facts(architecture=LLAMA_70B, zero_stage=stage, **changes)

    def needed(found: Facts, count: int) -> float:
        memory = memory_on(found, count, 8)
        assert memory is not None
        return memory.needed_gib

    here = needed(base, gpus)
    assert here > 0
    if gpus > 1 or stage or changes["framework"]:
        assert needed(base, 2 * gpus) <= here
    longer = Facts(architecture=LLAMA_70B, zero_stage=stage, **{**changes, "sequence": 2 * changes["sequence"]})
    assert needed(longer, gpus) >= here
    more = Facts(architecture=LLAMA_70B, zero_stage=stage, **{**changes, "micro_batch": 9})
    assert needed(more, gpus) >= here


LLAMA_8B = "model=llama-3.1-8b dtype=bfloat16 bf16 optim=adamw_torch_fused gradient-checkpointing block-size=8192"


def test_gradients_and_the_loss_are_not_there_at_the_same_time() -> None:
    """Measured on an H100: 60.7 GiB, 8 bytes for each parameter and little more. Accumulated gradients are."""

    def allocated(words: str) -> float:
        memory = memory_on(facts(words), 1, 8)
        assert memory is not None
        return sum(part.gib for part in memory.parts if part.name not in ("CUDA", "fragmentation"))

    assert allocated(LLAMA_8B) == pytest.approx(60.7, rel=0.03)
    for more in ("gradient-accumulation-steps=4", "per-device-train-batch-size=1 global-batch-size=8"):
        assert allocated(f"{LLAMA_8B} {more}") == pytest.approx(72.0, rel=0.03)
    one = "gradient-accumulation-steps=1"
    assert allocated(f"{LLAMA_8B} {one}") == allocated(LLAMA_8B)
    # AdamW that is not fused needs the root of all second moments: 2 bytes for each parameter in 16 bits.
    slower = allocated(LLAMA_8B.replace("adamw_torch_fused", "adamw_torch"))
    assert slower - 8.03 * 10e9 / 1024**3 == pytest.approx(0.0, abs=1.5)


def _total(words: str) -> float:
    memory = memory_on(facts(words), 1, 8)
    assert memory is not None
    return sum(part.gib for part in memory.parts if part.name not in ("CUDA", "fragmentation"))


def _optimizer(words: str) -> float:
    memory = memory_on(facts(words), 1, 8)
    assert memory is not None
    return next(part.gib for part in memory.parts if part.name == "optimizer")


def test_sgd_of_the_trainer_has_no_momentum() -> None:
    """Hugging Face's ``--optim sgd``, which its other options show; elsewhere SGD may have one."""
    assert _optimizer("model=phi-2 bf16 optim=sgd per-device-train-batch-size=1") == 0
    assert _optimizer("model=phi-2 bf16 optim=sgd batch-size=1") > 0
    assert _optimizer("model=phi-2 bf16 optimizer=sgd per-device-train-batch-size=1") > 0


def test_an_optimizers_step_counts_where_gradients_accumulate() -> None:
    """Adafactor's 16 bytes for each value of the largest matrix are more than the activations of 256 tokens."""
    words = "model=llama-3.1-8b dtype=bfloat16 gradient-checkpointing block-size=256 gradient-accumulation-steps=4"
    words += " per-device-train-batch-size=1"
    more = _total(f"{words} optim=adafactor") - _total(f"{words} optim=sgd")
    assert more == pytest.approx(16 * 128256 * 4096 / 2**30, rel=0.1)


def test_a_tied_heads_gradient_is_beside_those_of_earlier_micro_batches() -> None:
    words = "model=llama-3.2-1b dtype=float32 gradient-checkpointing block-size=256 gradient-accumulation-steps=4"
    embedding = 4 * 128256 * 2048 / 2**30
    states = 16 * 1.2358e9 / 2**30
    assert _total(f"{words} optim=adamw_torch_fused") > states + embedding


def test_attention_without_a_fused_kernel_keeps_its_scores() -> None:
    """Hugging Face's GPT-J computes the softmax in 32 bits and copies it in 16: 28 x 16 x 2048² x (4 + 1 + 2)."""
    words = "model=gpt-j-6b dtype=bfloat16 optim=sgd block-size=2048"
    scores = 28 * 16 * 2048**2 * 7 / 2**30
    assert _total(words) - _total(f"{words} use-flash-attn=true") == pytest.approx(scores)


def test_the_masks_of_scores_are_those_of_the_attentions_dropout() -> None:
    """A byte for each score. The dropout of what layers add has masks of its own."""
    sizes = {"n_embd": 128, "n_layer": 8, "n_head": 2, "n_positions": 1024, "vocab_size": 2000}
    for kind, name in ("gpt2", "attn_pdrop"), ("gpt_neo", "attention_dropout"):
        with_masks, without = (
            architecture_of_config({"model_type": kind, **sizes, "resid_pdrop": 0.1, name: rate}) for rate in (0.1, 0)
        )
        assert with_masks is not None
        assert without is not None
        training = Training(transformers=True, flash_attention=False, sequence=1024, precision="bf16")
        more = layer_activations(with_masks, training) - layer_activations(without, training)
        assert more == 2 * 1024**2


@pytest.mark.parametrize(
    ("names", "targets"),
    [
        ("q_proj,v_proj", ("q", "v")),
        ("['k_proj', 'o_proj']", ("k", "o")),
        ("query_key_value", ("qkv",)),
        ("qkv_proj,gate_up_proj", ("gate", "up", "qkv")),
        ("q_proj,dense,fc1,fc2", ("q", "o", "up", "down")),
        ("c_attn,c_proj", ("o", "down", "qkv")),
        ("wqkv,wo,w1,w2,w3", ("o", "gate", "up", "down", "qkv")),
        ("w2", ("gate", "up", "down")),
        ("all-linear", LORA_TARGETS),
        ("something", LORA_TARGETS),
    ],
)
def test_matrices_with_adapters(names: str, targets: tuple[str, ...]) -> None:
    found = Facts(lora_rank=8, lora_targets=names, architecture=LLAMA_70B)
    lora = training_on(found, 1, 8).lora
    assert lora is not None
    assert lora.targets == targets


def test_frozen_matrices_keep_no_inputs() -> None:
    """An adapter has a copy of its matrix's input: 16 bits of the hidden values for each of q and v in each layer."""
    words = "model=llama-2-7b dtype=bfloat16 bf16 use-peft lora-r=1 block-size=2048"
    copy = 32 * 4096 * 2048 * 2 / 2**30
    more = _total(f"{words} lora-target-modules=q_proj,v_proj") - _total(f"{words} lora-target-modules=q_proj")
    assert more == pytest.approx(copy, rel=0.02)


@pytest.mark.parametrize(
    ("base", "two", "seven"),
    [("", 17_465, 24_400), ("load-in-4bit", 26_290, 33_166), ("load-in-8bit", 35_519, 42_453)],
)
def test_what_a_layer_keeps_for_the_backward_pass(base: str, two: int, seven: int) -> None:
    """Bytes of a token, measured with transformers 5.17, PEFT 0.21 and bitsandbytes 0.50 on a CPU.

    What PEFT prepared computes in 32 bits, and the 8-bit matrices of bitsandbytes keep their inputs.
    """
    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "vocab_size": 2000}
    small = architecture_of_config({**sizes, "num_attention_heads": 8, "num_key_value_heads": 2})
    assert small is not None
    for targets, measured in ("q_proj,v_proj", two), ("all-linear", seven):
        found = facts(f"dtype=bfloat16 bf16 lora-r=8 lora-target-modules={targets} block-size=1024 {base}")
        training = training_on(msgspec.structs.replace(found, architecture=small), 1, 8)
        assert layer_activations(small, training) / 1024 == pytest.approx(measured, rel=0.03)


def test_a_job_of_several_gpus_without_sharding_has_gradient_buckets() -> None:
    one, two = (memory_on(facts("model=llama-3.2-1b bf16 dtype=float32"), gpus, 8) for gpus in (1, 2))
    assert one is not None
    assert two is not None
    assert two.parts[1].gib - one.parts[1].gib == pytest.approx(4 * 1.236e9 / 1024**3, rel=0.01)


def test_every_precision_has_its_bytes() -> None:
    assert set(PRECISIONS) == {"fp32", "amp", "mixed", "deepspeed", "fsdp", "megatron", "bf16"}


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("a100", 80),
        ("A100-SXM4-40GB", 40),
        ("nvidia_a100-pcie-80gb", 80),
        ("nvidia_h100_80gb_hbm3", 80),
        ("h200", 141),
        ("nvidia_h200_141gb_hbm3e", 141),
        ("H200NVL", 141),
        ("a100pcie", 80),
        ("amd_instinct_mi300x_oam", 192),
        ("mi300", None),
        ("tesla_v100-sxm2-16gb", 16),
        ("rtx_a6000", 48),
        ("nvidia_geforce_rtx_4090", 24),
        ("mi250x", 64),
        ("MI300X", 192),
        ("l40s", 45),
        ("gh200", 96),
        ("3g.20gb", 19),
        ("a100_3g.20gb", 19),
        ("intel_data_center_gpu_max_1550", 128),
        ("max1100", 48),
        ("nvidia_rtx_pro_6000_blackwell_server_edition", 96),
        ("gaudi3", 128),
        ("shard", None),
        ("", None),
        ("tesla", None),
    ],
)
def test_memory_of_a_gpu_type(name: str, gib: float | None) -> None:
    assert memory_gib(name) == gib


def test_the_site_knows_better() -> None:
    assert memory_gib("a100", {"a100": 40}) == 40
    assert memory_gib("ours", {"ours": 33}) == 33


@given(st.text(max_size=200))
def test_no_gpu_type_raises(name: str) -> None:
    found = memory_gib(name)
    assert found is None or found in GPU_MEMORY_GIB.values() or found > 0
