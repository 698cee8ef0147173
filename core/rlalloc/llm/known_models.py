"""Architectures of well-known models, by name. Each row is the model's public config.json on the Hugging Face hub.

A row gives ``model_type``, layers, hidden size, heads, key-value heads, intermediate size and vocabulary, and what
else its configuration says. A name that is not here may still tell a size: ``my-13b-run`` has 13 billion parameters.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from rlalloc.llm.architecture import UNKNOWN_FAMILY, Architecture, architecture_of_config

_Row = tuple[str, int, int, int, int, int, int, dict[str, Any]]
_TIED: Final[dict[str, Any]] = {"tie_word_embeddings": True}
_MLA_V2: Final[dict[str, Any]] = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_V3: Final[dict[str, Any]] = {
    **_MLA_V2,
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
}


def _gpt(kind: str, layers: int, hidden: int, heads: int, vocabulary: int, **more: Any) -> _Row:
    return kind, layers, hidden, heads, heads, 4 * hidden, vocabulary, more


def _moe(experts: int, per_token: int, width: int, **more: Any) -> dict[str, Any]:
    return {"num_experts": experts, "num_experts_per_tok": per_token, "moe_intermediate_size": width, **more}


_ROWS: Final[Mapping[str, _Row]] = {
    "llama-7b": ("llama", 32, 4096, 32, 32, 11008, 32000, {}),
    "llama-13b": ("llama", 40, 5120, 40, 40, 13824, 32000, {}),
    "llama-30b": ("llama", 60, 6656, 52, 52, 17920, 32000, {}),
    "llama-65b": ("llama", 80, 8192, 64, 64, 22016, 32000, {}),
    "llama-2-70b": ("llama", 80, 8192, 64, 8, 28672, 32000, {}),
    "codellama-34b": ("llama", 48, 8192, 64, 8, 22016, 32000, {}),
    "llama-3-8b": ("llama", 32, 4096, 32, 8, 14336, 128256, {}),
    "llama-3-70b": ("llama", 80, 8192, 64, 8, 28672, 128256, {}),
    "llama-3-1-405b": ("llama", 126, 16384, 128, 8, 53248, 128256, {}),
    "llama-3-2-1b": ("llama", 16, 2048, 32, 8, 8192, 128256, _TIED),
    "llama-3-2-3b": ("llama", 28, 3072, 24, 8, 8192, 128256, {**_TIED, "head_dim": 128}),
    "tinyllama-1-1b": ("llama", 22, 2048, 32, 4, 5632, 32000, {}),
    "mistral-7b": ("mistral", 32, 4096, 32, 8, 14336, 32000, {}),
    "mistral-nemo": ("mistral", 40, 5120, 32, 8, 14336, 131072, {"head_dim": 128}),
    "mistral-small-24b": ("mistral", 40, 5120, 32, 8, 32768, 131072, {"head_dim": 128}),
    "mistral-large": ("mistral", 88, 12288, 96, 8, 28672, 32768, {}),
    "mixtral-8x7b": ("mixtral", 32, 4096, 32, 8, 14336, 32000, {"num_local_experts": 8}),
    "mixtral-8x22b": ("mixtral", 56, 6144, 48, 8, 16384, 32000, {"num_local_experts": 8}),
    "qwen-1-8b": ("qwen", 24, 2048, 16, 16, 11008, 151936, {}),
    "qwen-7b": ("qwen", 32, 4096, 32, 32, 22016, 151936, {}),
    "qwen-14b": ("qwen", 40, 5120, 40, 40, 27392, 152064, {}),
    "qwen-72b": ("qwen", 80, 8192, 64, 64, 49152, 152064, {}),
    "qwen-2-0-5b": ("qwen2", 24, 896, 14, 2, 4864, 151936, _TIED),
    "qwen-2-1-5b": ("qwen2", 28, 1536, 12, 2, 8960, 151936, _TIED),
    "qwen-2-7b": ("qwen2", 28, 3584, 28, 4, 18944, 152064, {}),
    "qwen-2-72b": ("qwen2", 80, 8192, 64, 8, 29568, 152064, {}),
    "qwen-2-57b-a14b": (
        "qwen2_moe", 28, 3584, 28, 4, 18944, 151936, _moe(64, 8, 2560, shared_expert_intermediate_size=20480)
    ),
    "qwen-2-5-3b": ("qwen2", 36, 2048, 16, 2, 11008, 151936, _TIED),
    "qwen-2-5-14b": ("qwen2", 48, 5120, 40, 8, 13824, 152064, {}),
    "qwen-2-5-32b": ("qwen2", 64, 5120, 40, 8, 27648, 152064, {}),
    "qwen-3-0-6b": ("qwen3", 28, 1024, 16, 8, 3072, 151936, {**_TIED, "head_dim": 128}),
    "qwen-3-1-7b": ("qwen3", 28, 2048, 16, 8, 6144, 151936, {**_TIED, "head_dim": 128}),
    "qwen-3-4b": ("qwen3", 36, 2560, 32, 8, 9728, 151936, {**_TIED, "head_dim": 128}),
    "qwen-3-8b": ("qwen3", 36, 4096, 32, 8, 12288, 151936, {"head_dim": 128}),
    "qwen-3-14b": ("qwen3", 40, 5120, 40, 8, 17408, 151936, {"head_dim": 128}),
    "qwen-3-32b": ("qwen3", 64, 5120, 64, 8, 25600, 151936, {"head_dim": 128}),
    "qwen-3-30b-a3b": ("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, _moe(128, 8, 768, head_dim=128)),
    "qwen-3-235b-a22b": ("qwen3_moe", 94, 4096, 64, 4, 12288, 151936, _moe(128, 8, 1536, head_dim=128)),
    "gemma-2b": ("gemma", 18, 2048, 8, 1, 16384, 256000, {"head_dim": 256}),
    "gemma-7b": ("gemma", 28, 3072, 16, 16, 24576, 256000, {"head_dim": 256}),
    "gemma-2-2b": ("gemma2", 26, 2304, 8, 4, 9216, 256000, {"head_dim": 256}),
    "gemma-2-9b": ("gemma2", 42, 3584, 16, 8, 14336, 256000, {"head_dim": 256}),
    "gemma-2-27b": ("gemma2", 46, 4608, 32, 16, 36864, 256000, {"head_dim": 128}),
    "gemma-3-1b": ("gemma3_text", 26, 1152, 4, 1, 6912, 262144, {"head_dim": 256}),
    "gpt-2": _gpt("gpt2", 12, 768, 12, 50257, n_positions=1024),
    "gpt-2-medium": _gpt("gpt2", 24, 1024, 16, 50257, n_positions=1024),
    "gpt-2-large": _gpt("gpt2", 36, 1280, 20, 50257, n_positions=1024),
    "gpt-2-xl": _gpt("gpt2", 48, 1600, 25, 50257, n_positions=1024),
    "gpt-3": _gpt("gpt2", 96, 12288, 96, 50257, n_positions=2048),
    "gpt-neo-1-3b": _gpt("gpt_neo", 24, 2048, 16, 50257, max_position_embeddings=2048),
    "gpt-neo-2-7b": _gpt("gpt_neo", 32, 2560, 20, 50257, max_position_embeddings=2048),
    "gpt-j-6b": _gpt("gptj", 28, 4096, 16, 50400),
    "gpt-neox-20b": _gpt("gpt_neox", 44, 6144, 64, 50432),
    "pythia-70m": _gpt("gpt_neox", 6, 512, 8, 50304),
    "pythia-160m": _gpt("gpt_neox", 12, 768, 12, 50304),
    "pythia-410m": _gpt("gpt_neox", 24, 1024, 16, 50304),
    "pythia-1b": _gpt("gpt_neox", 16, 2048, 8, 50304),
    "pythia-1-4b": _gpt("gpt_neox", 24, 2048, 16, 50304),
    "pythia-2-8b": _gpt("gpt_neox", 32, 2560, 32, 50304),
    "pythia-6-9b": _gpt("gpt_neox", 32, 4096, 32, 50432),
    "pythia-12b": _gpt("gpt_neox", 36, 5120, 40, 50688),
    "opt-125m": _gpt("opt", 12, 768, 12, 50272, max_position_embeddings=2048),
    "opt-350m": _gpt("opt", 24, 1024, 16, 50272, max_position_embeddings=2048, word_embed_proj_dim=512),
    "opt-1-3b": _gpt("opt", 24, 2048, 32, 50272, max_position_embeddings=2048),
    "opt-2-7b": _gpt("opt", 32, 2560, 32, 50272, max_position_embeddings=2048),
    "opt-6-7b": _gpt("opt", 32, 4096, 32, 50272, max_position_embeddings=2048),
    "opt-13b": _gpt("opt", 40, 5120, 40, 50272, max_position_embeddings=2048),
    "opt-30b": _gpt("opt", 48, 7168, 56, 50272, max_position_embeddings=2048),
    "opt-66b": _gpt("opt", 64, 9216, 72, 50272, max_position_embeddings=2048),
    "opt-175b": _gpt("opt", 96, 12288, 96, 50272, max_position_embeddings=2048),
    "bloom-560m": _gpt("bloom", 24, 1024, 16, 250880),
    "bloom-1b7": _gpt("bloom", 24, 2048, 16, 250880),
    "bloom-3b": _gpt("bloom", 30, 2560, 32, 250880),
    "bloom-7b1": _gpt("bloom", 30, 4096, 32, 250880),
    "bloom": _gpt("bloom", 70, 14336, 112, 250880),
    "falcon-7b": _gpt("falcon", 32, 4544, 71, 65024),
    "falcon-40b": (
        "falcon", 60, 8192, 128, 8, 32768, 65024, {"new_decoder_architecture": True}
    ),
    "falcon-180b": (
        "falcon", 80, 14848, 232, 8, 59392, 65024, {"new_decoder_architecture": True}
    ),
    "phi-1-5": _gpt("phi", 24, 2048, 32, 51200),
    "phi-2": _gpt("phi", 32, 2560, 32, 51200),
    "phi-3-mini": ("phi3", 32, 3072, 32, 32, 8192, 32064, {}),
    "phi-3-medium": ("phi3", 40, 5120, 40, 10, 17920, 32064, {}),
    "phi-4": ("phi3", 40, 5120, 40, 10, 17920, 100352, {}),
    "mpt-7b": _gpt("mpt", 32, 4096, 32, 50432),
    "mpt-30b": _gpt("mpt", 48, 7168, 64, 50432),
    "starcoder-2-3b": ("starcoder2", 30, 3072, 24, 2, 12288, 49152, {}),
    "starcoder-2-15b": ("starcoder2", 40, 6144, 48, 4, 24576, 49152, {"tie_word_embeddings": False}),
    "command-r-35b": ("cohere", 40, 8192, 64, 64, 22528, 256000, {}),
    "yi-6b": ("llama", 32, 4096, 32, 4, 11008, 64000, {}),
    "yi-34b": ("llama", 60, 7168, 56, 8, 20480, 64000, {}),
    "deepseek-llm-7b": ("llama", 30, 4096, 32, 32, 11008, 102400, {}),
    "deepseek-llm-67b": ("llama", 95, 8192, 64, 8, 22016, 102400, {}),
    "deepseek-v2-lite": (
        "deepseek_v2", 27, 2048, 16, 16, 10944, 102400,
        {**_MLA_V2, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
         "n_shared_experts": 2, "first_k_dense_replace": 1},
    ),
    "deepseek-v2": (
        "deepseek_v2", 60, 5120, 128, 128, 12288, 102400,
        {**_MLA_V2, "q_lora_rank": 1536, "n_routed_experts": 160, "num_experts_per_tok": 6,
         "moe_intermediate_size": 1536, "n_shared_experts": 2, "first_k_dense_replace": 1},
    ),
    "gpt-oss-20b": (
        "gpt_oss", 24, 2880, 64, 8, 2880, 201088, _moe(32, 4, 2880, head_dim=64)
    ),
    "gpt-oss-120b": (
        "gpt_oss", 36, 2880, 64, 8, 2880, 201088, _moe(128, 4, 2880, head_dim=64)
    ),
    "deepseek-v3": ("deepseek_v3", 61, 7168, 128, 128, 18432, 129280, _V3),
}  # fmt: skip
_ALIASES: Final[Mapping[str, str]] = {
    "llama-2-7b": "llama-7b",
    "llama-2-13b": "llama-13b",
    "llama-33b": "llama-30b",
    "vicuna-7b": "llama-7b",
    "vicuna-13b": "llama-13b",
    "codellama-7b": "llama-7b",
    "codellama-13b": "llama-13b",
    "codellama-70b": "llama-2-70b",
    "llama-3-1-8b": "llama-3-8b",
    "llama-3-1-70b": "llama-3-70b",
    "llama-3-3-70b": "llama-3-70b",
    "llama-3-405b": "llama-3-1-405b",
    "tinyllama": "tinyllama-1-1b",
    "zephyr-7b": "mistral-7b",
    "qwen-2-5-0-5b": "qwen-2-0-5b",
    "qwen-2-5-1-5b": "qwen-2-1-5b",
    "qwen-2-5-7b": "qwen-2-7b",
    "qwen-2-5-72b": "qwen-2-72b",
    "qwq-32b": "qwen-2-5-32b",
    "qwen-2-5-coder-7b": "qwen-2-7b",
    "qwen-2-5-coder-14b": "qwen-2-5-14b",
    "qwen-2-5-coder-32b": "qwen-2-5-32b",
    "qwen-2-5-math-7b": "qwen-2-7b",
    "qwen-2-5-math-72b": "qwen-2-72b",
    "gpt-3-175b": "gpt-3",
    "gptj-6b": "gpt-j-6b",
    "command-r": "command-r-35b",
    "c4ai-command-r": "command-r-35b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3-1": "deepseek-v3",
    "deepseek-r1-distill-llama-8b": "llama-3-8b",
    "deepseek-r1-distill-llama-70b": "llama-3-70b",
    "deepseek-r1-distill-qwen-1-5b": "qwen-2-1-5b",
    "deepseek-r1-distill-qwen-7b": "qwen-2-7b",
    "deepseek-r1-distill-qwen-14b": "qwen-2-5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen-2-5-32b",
}
_OWN_WEIGHTS: Final[Mapping[str, str]] = {"deepseek-v3": "8-bit", "gpt-oss-20b": "mxfp4", "gpt-oss-120b": "mxfp4"}
"""Models that are published with fewer than 16 bits a weight, and how (keys of BYTES_PER_WEIGHT)."""
KNOWN_MODELS: Final = tuple(sorted({*_ROWS, *_ALIASES}))
"""Names as ``architecture_named`` sees them: lower case, every separator a hyphen."""
_LONGEST_NAME: Final = 300
_SIZE: Final = re.compile(r"(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bm])(?![a-z0-9])")
_SHAPES: Final = (
    "qwen-2-0-5b",
    "tinyllama-1-1b",
    "llama-3-2-3b",
    "llama-7b",
    "llama-13b",
    "llama-30b",
    "llama-2-70b",
    "llama-3-1-405b",
)
"""Shapes that stand for a model of which only the size is known."""
_OWN_EXPERTS: Final = 0.82
"""Part of experts times size that ``8x7B`` has, since experts share attention: Mixtral 8x7B .834, 8x22B .799."""


@lru_cache(maxsize=1024)
def architecture_named(name: str) -> Architecture | None:
    """The architecture of a model from its name, its path, or a size in either; None if the name tells neither.

    ``meta-llama/Llama-2-7b-hf``, ``/models/Qwen2.5-72B-Instruct-AWQ``, ``llama2/70B`` and ``my-1.3b-run`` are
    understood. Of several known names in one, the longest counts.
    """
    lowered = name.strip().rstrip("/").lower()[-_LONGEST_NAME:]
    parts = lowered.split("/")
    for text in (parts[-1], "-".join(parts[-2:])):
        if (key := _known_key(text)) is not None:
            return _build(_ALIASES.get(key, key))
    return _of_size(parts[-1]) or _of_size("-".join(parts[-2:]))


def own_weights(name: str) -> str | None:
    """How the weights of a model are published, a key of BYTES_PER_WEIGHT; None for 16 bits, or where it is unknown.

    ``DeepSeek-R1`` and ``DeepSeek-V3`` have 8 bits a weight, ``gpt-oss-120b`` has 4.25; ``DeepSeek-V3-bf16`` has 16.
    """
    lowered = name.strip().rstrip("/").lower()[-_LONGEST_NAME:]
    if re.search(r"bf16|fp16|16bit", lowered):
        return None
    key = _known_key(lowered.rpartition("/")[2])
    return None if key is None else _OWN_WEIGHTS.get(_ALIASES.get(key, key))


def architecture_of_size(parameters: int) -> Architecture:
    """Return the Llama nearest in size (on a log scale), with ``parameters`` stated instead of counted."""
    shapes = [_build(key) for key in _SHAPES]
    nearest = min(shapes, key=lambda each: abs(math.log(each.parameters / parameters)))
    return msgspec.structs.replace(nearest, family=UNKNOWN_FAMILY, stated_parameters=parameters)


def _known_key(text: str) -> str | None:
    # llama2-7b and qwen2.5_7b are written as llama-2-7b and qwen-2-5-7b; 8x7b, v2 and r1 stay.
    spaced = re.sub(r"(?<=[a-z]{2})(?=\d)", "-", text)
    canonical = f"-{re.sub(r'[^a-z0-9]+', '-', spaced)}-"
    found = [key for key in KNOWN_MODELS if f"-{key}-" in canonical]
    bare = max(found, key=len, default=None)
    # "bloom-chat-1b" or "gpt-2-my-350m" is no bloom of 176 billion: a size that the known name lacks wins.
    if bare is not None and not _SIZE.search(bare) and not re.search(r"\d[bm]\d?$", bare) and _SIZE.search(text):
        stated = _of_size(text)
        known = _build(_ALIASES.get(bare, bare))
        if stated is not None and abs(math.log(stated.parameters / known.parameters)) > math.log(1.25):
            return None
    return bare


def _of_size(text: str) -> Architecture | None:
    match = _SIZE.search(text)
    if match is None or float(match[2]) <= 0:
        return None
    parameters = float(match[2]) * (1e9 if match[3] == "b" else 1e6)
    if match[1] is not None:
        parameters *= int(match[1]) * _OWN_EXPERTS
    return architecture_of_size(round(parameters)) if parameters >= 1e6 else None


@lru_cache(maxsize=256)
def _build(key: str) -> Architecture:
    kind, layers, hidden, heads, kv_heads, intermediate, vocabulary, more = _ROWS[key]
    built = architecture_of_config(
        {
            "model_type": kind,
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "num_kv_heads": kv_heads,
            "intermediate_size": intermediate,
            "vocab_size": vocabulary,
            **more,
        }
    )
    if built is None:
        raise ValueError(f"{key}: a row without dimensions")
    return built
