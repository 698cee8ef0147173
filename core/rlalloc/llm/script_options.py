"""The options of LLM programs that tell a fact, and how each value is read. Add an option by adding a row."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from rlalloc.llm.shell_words import PLAN_MARK, UNKNOWN

FOLLOWS_GPUS: Final = 0
"""A parallel size that the script takes from a variable which only the job knows, such as $SLURM_GPUS_ON_NODE."""
PLANNED: Final = -1
"""A parallel size that the script takes from rlalloc's plan: $RLALLOC_TP, $RLALLOC_PP."""
EVALUATION_BACKENDS: Final = ("hf", "hf-auto", "huggingface", "vllm", "sglang")
"""What lm_eval's ``--model`` can be, for models that run on the job's GPUs."""
Value = int | float | str | bool
Reader = Callable[[str], Value | None]


def read_whole(text: str) -> int | None:
    """A number from 1 to 999,999,999, or None."""
    if UNKNOWN in text:
        return None
    text = text.replace("_", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0 else None


def _size(text: str) -> int | None:
    """A parallel size; a variable that only the job knows makes it follow the GPUs."""
    if PLAN_MARK in text:
        return PLANNED
    if UNKNOWN in text or text in ("auto", "gpu", "torch.cuda.device_count"):
        return FOLLOWS_GPUS
    found = read_whole(text)
    return found if found is not None and found <= 4096 else None


def _fraction(text: str) -> float | None:
    if not re.fullmatch(r"[0-9]{0,3}(\.[0-9]{0,9})?", text) or text in ("", "."):
        return None
    value = float(text)
    return value if 0 < value <= 1 else None


def _stage(text: str) -> int | None:
    return int(text) if text in ("0", "1", "2", "3") else None


def read_flag(text: str) -> bool | None:
    """Yes or no as options and files write it; an option without a value means yes. Else None."""
    return {"": True, "true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False,
            "off": False, "none": False}.get(text.lower())  # fmt: skip


def _name(text: str) -> str | None:
    """A name or a path, without what cannot be known in front of it: $ROOT/llama-2-7b."""
    text = text.lstrip(UNKNOWN + "/") if text.startswith(UNKNOWN) else text
    return text if text and UNKNOWN not in text and len(text) <= 1000 else None


def _model(text: str) -> str | None:
    """The name of a model; lm_eval's ``--model`` names the program that runs it."""
    return None if text in EVALUATION_BACKENDS else _name(text)


def _always(_: str) -> bool:
    return True


def _one_of(table: Mapping[str, Value]) -> Reader:
    return lambda text: table.get(text.strip().lower())


def _when(true: Value, false: Value | None = None) -> Reader:
    def read(text: str) -> Value | None:
        flag = read_flag(text)
        return None if flag is None else (true if flag else false)

    return read


def _optimizer(text: str) -> str | None:
    text = text.lower().rpartition(".")[2]
    if "paged" in text:
        return "adamw-paged"
    if "8bit" in text or "8-bit" in text:
        return "adamw-8bit"
    if "fused" in text and "adam" in text:
        return "adamw-fused"
    for part, name in (("adafactor", "adafactor"), ("lion", "lion"), ("adam", "adamw"), ("sgd", "sgd-momentum")):
        if part in text:
            return name
    return None


def _fsdp_stage(text: str) -> int | None:
    text = text.lower()
    for part, stage in (("no_shard", 0), ("shard_grad_op", 2), ("hybrid_shard", 3), ("full_shard", 3)):
        if part in text:
            return stage
    return {"true": 3, "1": 3, "2": 2, "3": 0, "4": 3}.get(text)


def _fsdp_offload(text: str) -> bool | None:
    """The word ``offload`` in the value of Hugging Face's ``--fsdp``."""
    return True if "offload" in text.lower() else None


def _gib(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) and float(text) > 0 else None


_PRECISION: Final = _one_of(
    {"bf16": "16-bit", "fp16": "16-bit", "no": "fp32", "fp8": "16-bit", "bf16-mixed": "16-bit", "16-mixed": "16-bit",
     "bfloat16": "16-bit", "float16": "16-bit", "fp32": "fp32", "float32": "fp32", "32": "fp32", "16": "16-bit",
     "bf16-true": "pure-16-bit", "16-true": "pure-16-bit"}
)  # fmt: skip
_DTYPE: Final = _one_of(
    {"bfloat16": "16-bit", "float16": "16-bit", "half": "16-bit", "bf16": "16-bit", "fp16": "16-bit",
     "float32": "fp32", "fp32": "fp32", "float": "fp32"}
)  # fmt: skip
QUANTISATION: Final = _one_of(
    {"awq": "4-bit", "awq_marlin": "4-bit", "gptq": "4-bit", "gptq_marlin": "4-bit", "marlin": "4-bit",
     "squeezellm": "4-bit", "bitsandbytes": "nf4", "bitsandbytes-nf4": "nf4", "mxfp4": "mxfp4", "eetq": "8-bit",
     "fp8": "8-bit", "w8a8_fp8": "8-bit", "w8a8_int8": "8-bit", "int8": "8-bit", "4": "nf4", "8": "8-bit",
     "int4": "4-bit"}
)  # fmt: skip
_OTHER_MODELS: Final = " ".join(
    f"{role}{model}{name}"
    for role in ("teacher", "ref", "reference", "reward", "critic", "judge", "draft")
    for model in ("", "-model")
    for name in ("", "-name", "-path", "-name-or-path")
)
_OFFLOAD: Final = _one_of({"cpu": True, "nvme": True, "none": False})
_NAMES: Final[tuple[tuple[str, str, Reader], ...]] = (
    (
        "model",
        "model model-name-or-path model-name base-model pretrained-model-name-or-path model-path model-id",
        _model,
    ),
    ("other_models", _OTHER_MODELS, _always),
    ("other_models", "sft-model-path reward-pretrain critic-pretrain ref-pretrain", _always),
    ("layers", "num-layers num-hidden-layers", read_whole),
    ("hidden", "hidden-size", read_whole),
    ("heads", "num-attention-heads", read_whole),
    ("kv_heads", "num-query-groups num-key-value-heads", read_whole),
    ("intermediate", "ffn-hidden-size intermediate-size", read_whole),
    ("vocabulary", "vocab-size padded-vocab-size", read_whole),
    ("gated", "swiglu", read_flag),
    ("experts", "num-experts", read_whole),
    ("tensor_parallel", "tensor-model-parallel-size tensor-parallel-size tensor-parallel-degree", _size),
    ("tensor_parallel", "tp-size tp num-shard parallelism-config-tp-size", _size),
    ("tensor_parallel", "model-parallel-size tp-degree tensor-parallel", _size),
    ("pipeline_parallel", "pipeline-model-parallel-size pipeline-parallel-size pp-size pp", _size),
    ("pipeline_parallel", "pp-degree pipeline-parallel pipe-parallel-size", _size),
    ("context_parallel", "context-parallel-size context-parallel-degree sequence-parallel-size cp-size", _size),
    ("context_parallel", "ds-sequence-parallel-size ulysses-degree", _size),
    ("expert_parallel", "expert-model-parallel-size expert-parallel-degree expert-parallel-size ep-size", _size),
    ("expert_parallel", "moe-expert-parallel-size", _size),
    ("data_parallel", "data-parallel-size dp-size dp", _size),
    ("data_parallel_attention", "enable-dp-attention", read_flag),
    ("sequence_parallel", "sequence-parallel", read_flag),
    ("zero_stage", "zero-stage zero-optimization.stage deepspeed-config.zero-stage", _stage),
    ("zero_stage", "fsdp fsdp-sharding-strategy sharding-strategy", _fsdp_stage),
    ("zero_stage", "use-fsdp use-torch-fsdp2 enable-fsdp use-megatron-fsdp", _when(3)),
    ("zero_stage", "data-parallel-shard-degree", lambda text: None if text == "1" else 3),
    ("offload_optimizer", "offload-optimizer-device offload-optimizer.device", _OFFLOAD),
    ("offload_optimizer", "fsdp", _fsdp_offload),
    ("offload_weights", "fsdp", _fsdp_offload),
    ("offload_optimizer", "fsdp-offload-params cpu-offload optimizer-cpu-offload fsdp-cpu-offload", read_flag),
    ("offload_weights", "offload-param-device offload-param.device", _OFFLOAD),
    ("offload_weights", "fsdp-offload-params fsdp-cpu-offload", read_flag),
    ("distributed_optimizer", "use-distributed-optimizer", read_flag),
    ("micro_batch", "micro-batch-size per-device-train-batch-size device-train-microbatch-size", read_whole),
    ("micro_batch", "train-micro-batch-size-per-gpu local-batch-size batch-size-training", read_whole),
    ("global_batch", "global-batch-size global-train-batch-size", read_whole),
    ("accumulation", "gradient-accumulation-steps", read_whole),
    ("sequence", "seq-length max-seq-length max-seq-len cutoff-len sequence-len max-length", read_whole),
    ("sequence", "model-max-length block-size encoder-seq-length seq-len context-length", read_whole),
    ("precision", "bf16 fp16 bf16.enabled fp16.enabled", _when("16-bit")),
    ("precision", "mixed-precision precision", _PRECISION),
    ("dtype", "dtype torch-dtype", _DTYPE),
    ("precision", "pure-bf16", _when("pure-16-bit")),
    ("distributed_optimizer", "optim.name", lambda text: True if "distributed" in text else None),
    ("optimizer", "optimizer optimizer.type optimizer.-component-", _optimizer),
    # Hugging Face's Trainer has no momentum; FactFinder.facts looks whether it is the Trainer.
    ("optimizer", "optim", lambda text: "sgd" if text.lower() == "sgd" else _optimizer(text)),
    ("checkpointing", "gradient-checkpointing activation-checkpointing", _when("full", "none")),
    ("checkpointing", "enable-activation-checkpointing fsdp-activation-checkpointing", _when("full", "none")),
    ("checkpointing", "activation-checkpoint.mode", _one_of({"selective": "selective", "full": "full"})),
    ("checkpointing", "recompute-activations", _when("selective", "none")),
    ("checkpointing", "recompute-granularity", _one_of({"selective": "selective", "full": "full"})),
    ("flash_attention", "use-flash-attn flash-attention flash-attn use-flash-attention-2", read_flag),
    ("fused_loss", "use-liger use-liger-kernel enable-liger-kernel cross-entropy-loss-fusion", read_flag),
    ("lora_rank", "lora-rank lora-r lora-dim qlora-rank", read_whole),
    ("lora_targets", "lora-target lora-target-modules lora-attn-modules", _name),
    ("weights", "load-in-4bit", _when("nf4")),
    ("weights", "load-in-8bit", _when("8-bit")),
    ("weights", "quantization quantize quantization-bit", QUANTISATION),
    ("kv_cache", "kv-cache-dtype", _name),
    ("max_length", "max-model-len context-length max-total-tokens", read_whole),
    ("max_sequences", "max-num-seqs max-running-requests max-concurrent-requests", read_whole),
    ("offload_gib", "cpu-offload-gb", _gib),
    ("memory_fraction", "gpu-memory-utilization mem-fraction-static cuda-memory-fraction", _fraction),
)
OPTIONS: Final[Mapping[str, tuple[tuple[str, Reader], ...]]] = {
    name: tuple((field, read) for field, names, read in _NAMES if name in names.split())
    for name in {each for _, names, _ in _NAMES for each in names.split()}
}
"""By option: lower case, hyphens for underscores, without leading hyphens; keys of files with their parent's name."""
FLAGS: Final = frozenset(
    name for _, names, read in _NAMES if read is read_flag or read("") is not None for name in names.split()
)
"""Options that mean something without a value."""
SERVERS: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "text-generation-launcher": "tgi",
    "lmdeploy": "lmdeploy",
    "trtllm-serve": "tensorrt-llm",
}
MODEL_OPTIONS: Final = frozenset(name for field, names, _ in _NAMES if field == "model" for name in names.split())
OF_ENGINES: Final = frozenset(
    {
        *("tensor-parallel-size", "tp-size", "tp", "num-shard", "pipeline-parallel-size", "pp-size", "pp", "ep-size"),
        *("data-parallel-size", "dp-size", "dp", "enable-dp-attention", "dtype", "quantization", "quantize"),
        *("kv-cache-dtype", "max-model-len", "context-length", "max-total-tokens", "max-num-seqs"),
        *("max-running-requests", "max-concurrent-requests", "cpu-offload-gb", "gpu-memory-utilization"),
        *("mem-fraction-static", "cuda-memory-fraction"),
    }
)
"""Options that are those of the engine, where a script has an engine and a training. A program that trains can have
some of them, too; without them it needs more memory, which is the safe side. So 32 bits count for both."""
TRAINERS: Final[Mapping[str, str]] = {
    "deepspeed": "deepspeed",
    "llamafactory-cli": "llamafactory",
    "tune": "torchtune",
}
"""Programs by their whole name."""
TRAINER_PARTS: Final[Mapping[str, str]] = {
    "megatron": "megatron",
    "pretrain_gpt": "megatron",
    "axolotl": "axolotl",
    "torchtitan": "torchtitan",
}
"""Programs and modules by a part of their name."""
FILE_OPTIONS: Final = (
    "deepspeed",
    "deepspeed-config",
    "deepspeed-config-file",
    "config",
    "config-file",
    "ds-config",
    "fsdp-config",
)
PEFT_OPTIONS: Final = ("use-peft", "finetuning-type", "adapter", "use-lora", "peft-method", "train-type")
OPTION_NAMES: Final = tuple(sorted({*(each for each in OPTIONS if "." not in each), *FILE_OPTIONS, *PEFT_OPTIONS}))
"""What a command line may say, for whoever collects words from scripts."""


def server_of(word: str) -> str | None:
    """The server whose program or command a word of a script names."""
    return next((server for part, server in SERVERS.items() if re.match(rf"{part}(?![a-z0-9])", word)), None)
