"""Published figures of LLM memory and size, and what ``rlalloc.llm`` computes for each.

A case is what its source describes, put into ``Training`` or ``Serving`` as it stands; no case has a constant of its
own. Where a source leaves something open, ``assumed`` says what was taken: the default of the program that it used.
Sources print GiB as "GB" where PyTorch's counters were read; the unit here is the one meant.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rlalloc.llm.architecture import Architecture, architecture_of_config
from rlalloc.llm.known_models import architecture_named, architecture_of_size
from rlalloc.llm.serving_memory import Serving, kv_bytes_per_token, serving_memory
from rlalloc.llm.training_memory import layer_activations, training_memory, weight_bytes
from rlalloc.llm.training_setup import LORA_TARGETS, Lora, Training

GB: Final = 1e9
GIB: Final = 1024.0**3

SOURCES: Final[Mapping[str, str]] = {
    "zero": "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020",
    "deepspeed": "DeepSpeed documentation, Memory Requirements (docs/code-docs/source/memory.rst), 2021-2026",
    "transformers": "Hugging Face transformers documentation, DeepSpeed, Memory requirements, 2023",
    "korthikanti": "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023",
    "megatron": "Narayanan et al., Efficient Large-Scale LM Training on GPU Clusters Using Megatron-LM, SC 2021",
    "lora": "Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022",
    "qlora": "Dettmers et al., QLoRA: Efficient Finetuning of Quantized LLMs, NeurIPS 2023",
    "vllm": "Kwon et al., Efficient Memory Management for LLM Serving with PagedAttention, SOSP 2023",
    "hf-llama31": "Hugging Face blog, Llama 3.1: 405B, 70B & 8B with multilinguality and long context, 2024",
    "factory": "LLaMA-Factory README, Hardware Requirement, 2025",
    "torchtune": "torchtune README, Memory and training speed (Llama 3.1, batch 2 x 2048 tokens), 2024",
    "torchtitan": "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, 2024",
    "qwen": "Qwen README, Inference Performance; Profiling of Memory and Speed, 2023 (one A100-80GB)",
    "qwen25": "Qwen2.5 documentation, Speed Benchmark (transformers, one A100-80GB), 2024",
}


class Case(msgspec.Struct, frozen=True):
    """One published figure. ``unit`` is what both are printed in; figures are in bytes, parameters or a ratio."""

    source: str
    what: str
    published: float
    estimate: float
    unit: str
    measured: bool = False
    assumed: str = ""

    @property
    def error(self) -> float:
        """The estimate over the published figure, less 1."""
        return self.estimate / self.published - 1


def model(name: str) -> Architecture:
    """A known model. Raises KeyError for a name that is not in the table."""
    found = architecture_named(name)
    if found is None:
        raise KeyError(name)
    return found


def gpt(layers: int, hidden: int, heads: int) -> Architecture:
    """A GPT of Megatron-LM's papers: a vocabulary of 51,200 and 2,048 positions."""
    found = architecture_of_config(
        {
            "model_type": "megatron",
            "num_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "vocab_size": 51200,
            "max_position_embeddings": 2048,
        }
    )
    if found is None:
        raise ValueError("a GPT without dimensions")
    return found


def cases() -> tuple[Case, ...]:
    """All cases, those outside of 15% included."""
    return (
        *_parameters(),
        *_states(),
        *_activation_savings(),
        *_weights_and_cache(),
        *_measured_inference(),
        *_measured_training(),
    )


def _parameters() -> tuple[Case, ...]:
    """Table 1 of the Megatron-LM paper: billions of parameters of GPTs by layers, hidden size and heads."""
    rows = (
        (1.7, 24, 2304, 24),
        (3.6, 30, 3072, 32),
        (7.5, 36, 4096, 32),
        (18.4, 40, 6144, 48),
        (39.1, 48, 8192, 64),
        (76.1, 60, 10240, 80),
        (145.6, 80, 12288, 96),
        (310.1, 96, 16384, 128),
        (529.6, 105, 20480, 128),
        (1008.0, 128, 25600, 160),
    )
    return tuple(
        Case("megatron", f"GPT, {layers} x {hidden}", size * 1e9, gpt(layers, hidden, heads).parameters, "B")
        for size, layers, hidden, heads in rows
    )  # fmt: skip


def _states() -> tuple[Case, ...]:
    def states(parameters: float, gpus: int, stage: int, **more: Any) -> float:
        run = Training(data_parallel=gpus, zero_stage=stage, **more)
        return training_memory(architecture_of_size(round(parameters)), run).states

    def zero(billions: float, gpus: int, stage: int, published_gb: float) -> Case:
        what = f"{billions:g}B on {gpus} GPUs, stage {stage}: model states"
        return Case("zero", what, published_gb * GB, states(billions * 1e9, gpus, stage), "GB")

    def deepspeed(
        parameters: float, gpus: int, stage: int, gib: float, source: str = "deepspeed", **more: Any
    ) -> Case:
        offload = ", optimizer offloaded" if more.get("offload_optimizer") else ""
        what = f"{parameters / 1e9:.2f}B on {gpus} GPUs, ZeRO-{stage}{offload}: model states"
        return Case(source, what, gib * GIB, states(parameters, gpus, stage, precision="deepspeed", **more), "GiB")

    full = {"precision": "amp"}
    return (
        zero(7.5, 64, 0, 120),
        zero(7.5, 64, 1, 31.4),
        zero(7.5, 64, 2, 16.6),
        zero(7.5, 64, 3, 1.88),
        zero(7.5, 16, 1, 35.6),
        zero(128, 64, 3, 32),
        zero(1000, 1024, 3, 15.6),
        zero(1.5, 1, 0, 24),
        deepspeed(2851e6, 8, 2, 15.93),
        deepspeed(2851e6, 8, 2, 5.31, offload_optimizer=True),
        deepspeed(2851e6, 8, 3, 6.10),
        deepspeed(2783e6, 1, 3, 46.91, "transformers"),
        deepspeed(2783e6, 2, 3, 23.58, "transformers"),
        Case("factory", "7B, full, bf16 or fp16", 120 * GB, states(7e9, 1, 0, **full), "GB"),
        Case("factory", "70B, full, bf16 or fp16", 1200 * GB, states(70e9, 1, 0, **full), "GB"),
        Case("factory", "7B, full, pure_bf16", 60 * GB, states(7e9, 1, 0, precision="bf16"), "GB"),
        Case("hf-llama31", "405B, full fine-tuning", 3250 * GB, states(405e9, 1, 0, precision="bf16"), "GB"),
        Case(
            "lora", "GPT-3 175B, full fine-tuning with Adam", 1200 * GB, _states_of("gpt-3", precision="bf16"), "GB"
        ),
        Case(
            "lora", "GPT-3 175B, LoRA of rank 4", 350 * GB, _states_of("gpt-3", precision="bf16", lora=Lora(4)), "GB"
        ),
    )


def _states_of(name: str, **setup: Any) -> float:
    return training_memory(model(name), Training(**setup)).states


def _activation_savings() -> tuple[Case, ...]:
    """What a layer stores, and what selective recomputation saves of it (section 5)."""

    def saved(each: Architecture, heads_text: str, published: float) -> Case:
        run = Training(tensor_parallel=8, sequence_parallel=True, flash_attention=False, sequence=2048)
        selective = msgspec.structs.replace(run, checkpointing="selective")
        part = 1 - layer_activations(each, selective) / layer_activations(each, run)
        return Case("korthikanti", f"{heads_text}: saved by selective recomputation", published, part, "")

    gpt3, mt_nlg = gpt(96, 12288, 96), gpt(105, 20480, 128)
    serial = Training(flash_attention=False, sequence=2048)
    per_unit = layer_activations(gpt3, serial) / (2048 * 12288)
    return (
        Case("korthikanti", "GPT-3: a layer's activations over s·b·h (34 + 5as/h)", 114, per_unit, ""),
        saved(gpt3, "GPT-3", 0.70),
        saved(mt_nlg, "MT-NLG 530B", 0.65),
    )


def _weights_and_cache() -> tuple[Case, ...]:
    def cache(name: str, tokens: int) -> float:
        return tokens * kv_bytes_per_token(model(name), Serving())

    def weights(name: str, kind: str = "16-bit") -> float:
        return weight_bytes(model(name), kind)

    def lora64(name: str) -> float:
        """The quantised base and its adapters in 16 bits."""
        adapters = Lora(64, LORA_TARGETS, "nf4")
        return weights(name, "nf4") + 2 * adapters.parameters(model(name))

    return (
        Case("vllm", "OPT-13B: KV cache of a token", 800 * 1024, cache("opt-13b", 1), "KiB"),
        Case("vllm", "OPT-13B: weights", 26 * GB, weights("opt-13b"), "GB"),
        Case("vllm", "OPT-66B: weights", 132 * GB, weights("opt-66b"), "GB"),
        Case("vllm", "OPT-175B: weights", 346 * GB, weights("opt-175b"), "GB"),
        Case("hf-llama31", "8B: weights in FP16", 16 * GB, weights("llama-3.1-8b"), "GB"),
        Case("hf-llama31", "405B: weights in FP8", 405 * GB, weights("llama-3.1-405b", "8-bit"), "GB"),
        Case("hf-llama31", "405B: weights in INT4", 203 * GB, weights("llama-3.1-405b", "4-bit"), "GB"),
        Case("hf-llama31", "8B: KV cache of 128k tokens", 15.62 * GIB, cache("llama-3.1-8b", 128_000), "GiB"),
        Case("hf-llama31", "70B: KV cache of 128k tokens", 39.06 * GIB, cache("llama-3.1-70b", 128_000), "GiB"),
        Case("hf-llama31", "405B: KV cache of 128k tokens", 123.05 * GIB, cache("llama-3.1-405b", 128_000), "GiB"),
        Case("qlora", "LLaMA 7B: 4-bit model with adapters", 5 * GB, lora64("llama-7b"), "GB"),
        Case("qlora", "LLaMA 13B: 4-bit model with adapters", 10 * GB, lora64("llama-13b"), "GB"),
        Case("qlora", "LLaMA 33B: 4-bit model with adapters", 21 * GB, lora64("llama-33b"), "GB"),
        Case("qlora", "LLaMA 65B: 4-bit model with adapters", 41 * GB, lora64("llama-65b"), "GB"),
    )


def _measured_inference() -> tuple[Case, ...]:
    """Memory of generating 2,048 tokens from a prompt, on as many GPUs as the table says, all together."""

    def run(source: str, name: str, kind: str, prompt: int, gib: float) -> Case:
        serving = Serving(weights=kind, max_length=prompt + 2048, prefill=prompt)
        what = f"{name}, {kind}, {prompt} + 2048 tokens"
        return Case(source, what, gib * GIB, serving_memory(model(name), serving).total, "GiB", measured=True)

    def qwen(name: str, kind: str, gib: float) -> Case:
        return run("qwen", name, kind, 1, gib)

    def qwen25(name: str, kind: str, prompt: int, gib: float) -> Case:
        return run("qwen25", name, kind, prompt, gib)

    return (
        qwen("qwen-1.8b", "16-bit", 4.23),
        qwen("qwen-7b", "16-bit", 16.99),
        qwen("qwen-7b", "8-bit", 11.20),
        qwen("qwen-7b", "4-bit", 8.21),
        qwen("qwen-14b", "16-bit", 30.15),
        qwen("qwen-14b", "8-bit", 18.81),
        qwen("qwen-14b", "4-bit", 13.01),
        qwen("qwen-72b", "16-bit", 144.69),
        qwen("qwen-72b", "8-bit", 81.27),
        qwen("qwen-72b", "4-bit", 48.86),
        qwen25("qwen2.5-0.5b", "16-bit", 1, 0.97),
        qwen25("qwen2.5-0.5b", "4-bit", 30720, 1.85),
        qwen25("qwen2.5-1.5b", "16-bit", 30720, 5.62),
        qwen25("qwen2.5-7b", "16-bit", 6144, 15.38),
        qwen25("qwen2.5-7b", "16-bit", 30720, 19.97),
        qwen25("qwen2.5-7b", "8-bit", 14336, 10.96),
        qwen25("qwen2.5-7b", "4-bit", 1, 5.52),
        qwen25("qwen2.5-7b", "4-bit", 30720, 11.11),
        qwen25("qwen2.5-14b", "16-bit", 1, 28.08),
        qwen25("qwen2.5-14b", "16-bit", 30720, 36.85),
        qwen25("qwen2.5-14b", "8-bit", 14336, 19.98),
        qwen25("qwen2.5-14b", "4-bit", 30720, 18.71),
        qwen25("qwen2.5-72b", "16-bit", 1, 136.20),
        qwen25("qwen2.5-72b", "8-bit", 1, 72.61),
        qwen25("qwen2.5-72b", "4-bit", 1, 39.91),
        qwen25("qwen2.5-72b", "4-bit", 14336, 46.86),
    )


def _measured_training() -> tuple[Case, ...]:
    """Peaks that training runs reached."""
    recipe = "gradient checkpointing and adapters of rank 64 on all matrices, as in Qwen's finetune scripts"

    def qwen(name: str, base: str, length: int, gib: float, gpus: int = 1, stage: int = 0) -> Case:
        run = Training(
            data_parallel=gpus,
            zero_stage=stage,
            sequence=length,
            precision="deepspeed",
            checkpointing="full",
            lora=Lora(64, LORA_TARGETS, base),
        )
        where = f" on {gpus} GPUs, ZeRO-{stage}" if gpus > 1 else ""
        what = f"{name}, {'LoRA' if base == '16-bit' else 'Q-LoRA'}, {length} tokens{where}"
        estimate = gpus * training_memory(model(name), run).total
        return Case("qwen", what, gib * GIB, estimate, "GiB", measured=True, assumed=recipe)

    def full(name: str, gpus: int, length: int, gib: float) -> Case:
        run = Training(data_parallel=gpus, zero_stage=3, sequence=length, precision="deepspeed", checkpointing="full")
        what = f"{name}, full, {length} tokens, ZeRO-3 on {gpus} GPUs"
        estimate = gpus * training_memory(model(name), run).total
        return Case("qwen", what, gib * GIB, estimate, "GiB", measured=True, assumed=recipe)

    def torchtune(name: str, what: str, gib: float, gpus: int = 1, base: str = "16-bit") -> Case:
        run = Training(
            data_parallel=gpus,
            zero_stage=3 if gpus > 1 else 0,
            micro_batch=2,
            sequence=2048,
            precision="bf16",
            checkpointing="full",
            fused_loss=True,
            lora=Lora(8, ("q", "v", "o"), base),
        )
        estimate = training_memory(model(name), run).total
        assumed = "the recipe's defaults: activation checkpointing, chunked loss, rank 8 on q, v and output"
        return Case("torchtune", what, gib * GIB, estimate, "GiB", measured=True, assumed=assumed)

    def torchtitan(name: str, what: str, gib: float, **setup: Any) -> Case:
        run = Training(zero_stage=3, precision="fsdp", checkpointing="full", **setup)
        estimate = training_memory(model(name), run).total
        return Case("torchtitan", what, gib * GIB, estimate, "GiB", measured=True)

    return (
        qwen("qwen-1.8b", "16-bit", 256, 6.7),
        qwen("qwen-1.8b", "16-bit", 2048, 11.0),
        qwen("qwen-1.8b", "16-bit", 8192, 21.8),
        qwen("qwen-1.8b", "4-bit", 256, 5.8),
        qwen("qwen-1.8b", "4-bit", 8192, 15.8),
        full("qwen-1.8b", 1, 2048, 43.5),
        qwen("qwen-7b", "16-bit", 256, 20.1),
        qwen("qwen-7b", "16-bit", 2048, 23.8),
        qwen("qwen-7b", "16-bit", 8192, 36.6),
        qwen("qwen-7b", "4-bit", 256, 11.5),
        qwen("qwen-7b", "4-bit", 8192, 23.5),
        full("qwen-7b", 2, 256, 139.2),
        full("qwen-7b", 2, 1024, 162.0),
        qwen("qwen-14b", "16-bit", 2048, 37.4),
        qwen("qwen-14b", "16-bit", 8192, 55.2),
        qwen("qwen-14b", "4-bit", 2048, 19.9),
        qwen("qwen-14b", "4-bit", 8192, 27.9),
        qwen("qwen-72b", "16-bit", 2048, 228.8, 4, 3),
        qwen("qwen-72b", "4-bit", 2048, 64.1),
        qwen("qwen-72b", "4-bit", 8192, 75.6),
        torchtune("llama-3.1-8b", "8B, LoRA, one 4090", 16.2),
        torchtune("llama-3.1-8b", "8B, QLoRA, one 4090", 7.4, base="nf4"),
        torchtune("llama-3.1-70b", "70B, LoRA, 8 GPUs", 27.6, 8),
        torchtune("llama-3.1-405b", "405B, QLoRA, 8 GPUs", 44.8, 8, "nf4"),
        torchtitan("llama-3.1-8b", "8B, FSDP 8, 32768 tokens", 83.9, data_parallel=8, sequence=32768),
        torchtitan(
            "llama-3.1-8b",
            "8B, FSDP 2 x CP 4, 131072 tokens",
            84.0,
            data_parallel=2,
            context_parallel=4,
            sequence=131072,
        ),
        torchtitan(
            "llama-3.1-70b",
            "70B, FSDP 32 x TP 8, 16 x 8192 tokens",
            71.9,
            data_parallel=32,
            tensor_parallel=8,
            sequence_parallel=True,
            micro_batch=16,
            sequence=8192,
        ),
    )
