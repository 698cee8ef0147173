"""What is measured: models by the values of their public config.json, and settings of Hugging Face's Trainer.

Each setup has the batch script that a user would write for it. rlalloc reads that script, and nothing else of the
setup.
"""

import random
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

_SPLIT_SEED: Final = 19
Precision = Literal["fp32", "amp", "bf16"]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. ``serve``: a prompt of ``sequence`` tokens is answered; else three steps are trained.

    ``precision`` amp: weights in 32 bits and bfloat16 autocast; bf16: weights, gradients and moments in 16 bits.
    ``lora`` is the rank of adapters on ``targets``, 0 for none. ``base`` nf4: the frozen weights are quantised.
    ``ddp``: as a job of several GPUs is, though there is one: with DistributedDataParallel's buckets.
    ``accumulation``: micro-batches of a step.
    """

    model: str
    sequence: int
    micro_batch: int = 1
    serve: bool = False
    precision: Precision = "bf16"
    checkpointing: bool = False
    optimizer: str = "adamw_torch_fused"
    lora: int = 0
    targets: str = "q_proj,v_proj"
    base: Literal["16-bit", "nf4"] = "16-bit"
    ddp: bool = False
    accumulation: int = 1

    def describe(self) -> str:
        """One line for people."""
        if self.serve:
            return f"{self.model}, inference, {self.sequence} tokens"
        words = [self.model, self.precision]
        if self.lora:
            how = "Q-LoRA" if self.base == "nf4" else "LoRA"
            words[1] = f"{how} {self.lora} on {'all' if self.targets == 'all-linear' else self.targets}"
        words.append(f"{self.micro_batch} x {self.sequence} tokens")
        words += ["checkpointing"] * self.checkpointing + ["DDP"] * self.ddp
        if self.accumulation > 1:
            words.append(f"accumulation {self.accumulation}")
        if self.optimizer != "adamw_torch_fused":
            words.append(self.optimizer)
        return ", ".join(words)

    def script(self) -> str:
        """The batch script of such a job, with the options of vLLM, or of Hugging Face's Trainer and TRL."""
        if self.serve:
            command = f"vllm serve models/{self.model} --max-model-len {self.sequence}"
        else:
            dtype = "float32" if self.precision in ("fp32", "amp") else "bfloat16"
            words = [f"--model_name_or_path models/{self.model}", f"--dtype {dtype}"]
            words += ["--bf16 True"] * (self.precision == "amp" or bool(self.lora))
            words += [f"--per_device_train_batch_size {self.micro_batch}", f"--block_size {self.sequence}"]
            words.append(f"--optim {self.optimizer}")
            words += ["--gradient_checkpointing True"] * self.checkpointing
            words += [f"--gradient_accumulation_steps {self.accumulation}"] * (self.accumulation > 1)
            if self.lora:
                words.append(f"--use_peft --lora_r {self.lora} --lora_target_modules {self.targets}")
            words += ["--load_in_4bit"] * (self.base == "nf4")
            start = "torchrun --nproc-per-node=2" if self.ddp else "python"
            command = f"{start} train.py {' '.join(words)}"
        return f"#!/bin/bash\n#SBATCH --gpus={2 if self.ddp else 1}\n{command}\n"


def _llama(hidden: int, intermediate: int, layers: int, heads: int, kv: int, vocabulary: int, **more: Any) -> Any:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        **more,
    }


def _gpt2(hidden: int, layers: int, heads: int) -> Any:
    return {
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": 1024,
        "vocab_size": 50257,
    }


_TIED: Final = {"tie_word_embeddings": True}
_QWEN2: Final = {"model_type": "qwen2", "max_position_embeddings": 32768}
_QWEN3: Final = {"model_type": "qwen3", "head_dim": 128, "max_position_embeddings": 40960}
_GEMMA: Final = {**_TIED, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"}
CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2048,
        "ffn_dim": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 2048,
    },
    "pythia-410m": {
        "model_type": "gpt_neox",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 50304,
        "max_position_embeddings": 2048,
    },
    "tinyllama-1.1b": _llama(2048, 5632, 22, 32, 4, 32000),
    "llama-3.2-1b": _llama(2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 8, 128256, head_dim=128, **_TIED),
    "llama-3.1-8b": _llama(4096, 14336, 32, 32, 8, 128256),
    "mistral-7b": _llama(4096, 14336, 32, 32, 8, 32768, model_type="mistral", sliding_window=None),
    "qwen2.5-0.5b": _llama(896, 4864, 24, 14, 2, 151936, **_QWEN2, **_TIED),
    "qwen2.5-1.5b": _llama(1536, 8960, 28, 12, 2, 151936, **_QWEN2, **_TIED),
    "qwen2.5-7b": _llama(3584, 18944, 28, 28, 4, 152064, **_QWEN2),
    "qwen3-0.6b": _llama(1024, 3072, 28, 16, 8, 151936, **_QWEN3, **_TIED),
    "qwen3-1.7b": _llama(2048, 6144, 28, 16, 8, 151936, **_QWEN3, **_TIED),
    "qwen3-4b": _llama(2560, 9728, 36, 32, 8, 151936, **_QWEN3, **_TIED),
    "qwen3-8b": _llama(4096, 12288, 36, 32, 8, 151936, **_QWEN3),
    "qwen3-30b-a3b": _llama(
        2048,
        6144,
        48,
        32,
        4,
        151936,
        **{**_QWEN3, "model_type": "qwen3_moe"},
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        norm_topk_prob=True,
        decoder_sparse_step=1,
    ),
    "gemma-2b": _llama(2048, 16384, 18, 8, 1, 256000, model_type="gemma", **_GEMMA),
    "gemma-2-2b": _llama(2304, 9216, 26, 8, 4, 256000, model_type="gemma2", **_GEMMA),
    "gemma-3-1b": _llama(1152, 6912, 26, 4, 1, 262144, model_type="gemma3_text", sliding_window=512, **_GEMMA),
    "phi-3-mini": _llama(3072, 8192, 32, 32, 32, 32064, model_type="phi3"),
}
"""The values of each model's public config.json that decide its memory."""


def _full(model: str, precision: Precision, micro_batch: int, sequence: int, **more: Any) -> Setup:
    return Setup(model=model, precision=precision, micro_batch=micro_batch, sequence=sequence, **more)


def _lora(model: str, rank: int, targets: str, micro_batch: int, sequence: int, **more: Any) -> Setup:
    return Setup(
        model=model, lora=rank, targets=targets, micro_batch=micro_batch, sequence=sequence,
        **{"checkpointing": True, **more},
    )  # fmt: skip


_ALL: Final = "all-linear"
_QV: Final = "q_proj,v_proj"
_CHECKPOINTING: Final[dict[str, Any]] = {"checkpointing": True}
SETUPS: Final[tuple[Setup, ...]] = (
    _full("gpt2", "fp32", 8, 1024),
    _full("gpt2", "amp", 8, 1024),
    _full("gpt2", "amp", 4, 512, **_CHECKPOINTING),
    _full("gpt2-medium", "bf16", 4, 1024),
    _full("gpt2-xl", "amp", 1, 1024),
    _full("gpt2-xl", "fp32", 2, 1024, **_CHECKPOINTING),
    _full("opt-1.3b", "amp", 1, 2048),
    _full("pythia-410m", "amp", 4, 2048),
    _full("tinyllama-1.1b", "amp", 4, 2048),
    _full("tinyllama-1.1b", "fp32", 1, 2048, **_CHECKPOINTING),
    _full("llama-3.2-1b", "fp32", 1, 1024),
    _full("llama-3.2-1b", "amp", 1, 2048),
    _full("llama-3.2-1b", "amp", 2, 2048, **_CHECKPOINTING),
    _full("llama-3.2-1b", "bf16", 1, 4096),
    _full("llama-3.2-1b", "bf16", 1, 8192, **_CHECKPOINTING),
    _full("llama-3.2-3b", "bf16", 2, 2048, **_CHECKPOINTING),
    _full("llama-3.2-3b", "amp", 1, 1024, **_CHECKPOINTING),
    _full("llama-3.1-8b", "bf16", 1, 2048, **_CHECKPOINTING),
    _full("llama-3.1-8b", "bf16", 1, 8192, **_CHECKPOINTING),
    _full("mistral-7b", "bf16", 1, 2048, **_CHECKPOINTING),
    _full("mistral-7b", "bf16", 2, 4096, **_CHECKPOINTING),
    _full("qwen2.5-0.5b", "amp", 4, 2048),
    _full("qwen2.5-0.5b", "amp", 1, 256),
    _full("qwen2.5-0.5b", "fp32", 2, 512),
    _full("qwen2.5-0.5b", "bf16", 1, 8192, **_CHECKPOINTING),
    _full("qwen2.5-1.5b", "amp", 1, 2048, **_CHECKPOINTING),
    _full("qwen2.5-1.5b", "bf16", 4, 1024),
    _full("qwen2.5-7b", "bf16", 1, 4096, **_CHECKPOINTING),
    _full("qwen3-0.6b", "amp", 1, 4096),
    _full("qwen3-1.7b", "bf16", 2, 2048),
    _full("qwen3-4b", "bf16", 2, 2048, **_CHECKPOINTING),
    _full("gemma-2b", "bf16", 1, 2048, **_CHECKPOINTING),
    _full("gemma-2b", "amp", 1, 1024),
    _full("gemma-2-2b", "bf16", 1, 2048),
    _full("gemma-3-1b", "amp", 1, 2048, **_CHECKPOINTING),
    _full("phi-3-mini", "bf16", 1, 2048, **_CHECKPOINTING),
    _full("llama-3.2-1b", "amp", 1, 1024, optimizer="adamw_torch"),
    _full("llama-3.2-3b", "bf16", 1, 512, optimizer="adamw_torch"),
    _full("llama-3.2-1b", "bf16", 1, 1024, optimizer="adamw_8bit"),
    _full("qwen2.5-1.5b", "bf16", 1, 1024, optimizer="adafactor"),
    _full("llama-3.2-1b", "amp", 1, 1024, ddp=True),
    _full("gpt2-xl", "amp", 1, 1024, ddp=True),
    _full("tinyllama-1.1b", "bf16", 2, 2048, ddp=True),
    _lora("qwen2.5-1.5b", 64, _ALL, 1, 256),
    _lora("qwen2.5-1.5b", 64, _ALL, 1, 2048),
    _lora("qwen2.5-1.5b", 64, _ALL, 1, 8192),
    _lora("qwen2.5-7b", 64, _ALL, 1, 256),
    _lora("qwen2.5-7b", 64, _ALL, 1, 8192),
    _lora("llama-3.1-8b", 16, _ALL, 1, 4096),
    _lora("llama-3.1-8b", 8, _QV, 2, 2048),
    _lora("mistral-7b", 16, _QV, 2, 2048, checkpointing=False),
    _lora("mistral-7b", 16, _ALL, 8, 512),
    _lora("qwen3-8b", 16, _ALL, 1, 2048),
    _lora("gemma-2b", 16, _ALL, 1, 2048, checkpointing=False),
    _lora("qwen3-30b-a3b", 16, _QV, 1, 1024),
    _lora("qwen2.5-1.5b", 64, _ALL, 1, 256, base="nf4"),
    _lora("qwen2.5-1.5b", 64, _ALL, 1, 8192, base="nf4"),
    _lora("qwen2.5-7b", 64, _ALL, 1, 256, base="nf4"),
    _lora("qwen2.5-7b", 64, _ALL, 1, 8192, base="nf4"),
    _lora("llama-3.1-8b", 16, _ALL, 1, 2048, base="nf4"),
    *(
        Setup(model=model, sequence=sequence, serve=True)
        for model, sequence in (
            ("gpt2-xl", 1024),
            ("opt-1.3b", 2048),
            ("qwen2.5-0.5b", 8192),
            ("qwen2.5-7b", 256),
            ("qwen2.5-7b", 8192),
            ("llama-3.1-8b", 8192),
            ("mistral-7b", 4096),
            ("gemma-2b", 8192),
            ("qwen3-8b", 4096),
            ("phi-3-mini", 4096),
            ("qwen3-30b-a3b", 2048),
        )
    ),
)


def held_out(setup: Setup) -> bool:
    """Whether no formula may be mended by this setup: half of them, drawn by a seed before anything was measured.

    Setups of other sets are all held out.
    """
    return setup in _HELD_OUT or setup not in SETUPS


_HELD_OUT: Final = frozenset(random.Random(_SPLIT_SEED).sample(SETUPS, len(SETUPS) // 2))
