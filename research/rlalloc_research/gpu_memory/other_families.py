"""Two more sets of setups: models of families that ``memory_setups`` does not have, with settings drawn at random.

Models were chosen by family, before any of them was measured or estimated. A seed draws the settings of each setup. A
setup is drawn again only if a rough rule, which is not rlalloc's, says that an H200 cannot hold it or that it takes
too long. The second set was drawn after the formulas had been corrected with the first: it has new settings of the
same models, and models of further families.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rlalloc_research.gpu_memory.memory_setups import Precision, Setup

_SEEDS: Final = (2026, 2027)
_SETUPS: Final = (40, 60)
_GPU_BYTES: Final = 139 * 1024**3
_LONGEST_S: Final = 25.0
_STEPS: Final = 3
_SEQUENCES: Final = (256, 512, 1024, 2048, 4096, 8192)
_PRECISIONS: Final[tuple[Precision, ...]] = ("fp32", "amp", "bf16")


class Model(msgspec.Struct, frozen=True):
    """``config``: values of the public config.json. ``pair``: the matrices that LoRA adapts, by the family's names.

    ``billions`` of parameters, ``layers``, ``hidden`` and ``longest`` sequence are for the rough rule.
    """

    billions: float
    layers: int
    hidden: int
    longest: int
    pair: str
    config: Mapping[str, Any]


def _config(
    model_type: str, layers: int, hidden: int, heads: int, kv: int, inner: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        **more,
    }


def _model(billions: float, longest: int, *dimensions: Any, pair: str = "q_proj,v_proj", **more: Any) -> Model:
    config = _config(*dimensions, max_position_embeddings=longest, **more)
    return Model(billions, dimensions[1], dimensions[2], longest, pair, config)


_TIED: Final[dict[str, Any]] = {"tie_word_embeddings": True}
_UNTIED: Final[dict[str, Any]] = {"tie_word_embeddings": False}
FIRST_MODELS: Final[Mapping[str, Model]] = {
    "falcon-7b": Model(
        6.9, 32, 4544, 2048, "query_key_value",
        {
            "model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71,
            "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True,
            "bias": False, "alibi": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        },
    ),
    "bloom-1b7": Model(
        1.7, 24, 2048, 2048, "query_key_value",
        {
            "model_type": "bloom", "n_layer": 24, "hidden_size": 2048, "n_head": 16, "vocab_size": 250880,
            "hidden_dropout": 0.0, "attention_dropout": 0.0,
        },
    ),
    "mpt-7b": Model(
        6.6, 32, 4096, 2048, "Wqkv",
        {
            "model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "expansion_ratio": 4,
            "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True,
        },
    ),
    "gpt-neo-1.3b": Model(
        1.3, 24, 2048, 2048, "q_proj,v_proj",
        {
            "model_type": "gpt_neo", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "vocab_size": 50257,
            "intermediate_size": None, "max_position_embeddings": 2048, "window_size": 256,
            "attention_types": [[["global", "local"], 12]], "activation_function": "gelu_new",
            "embed_dropout": 0, "attention_dropout": 0, "resid_dropout": 0,
        },
    ),
    "gpt-j-6b": Model(
        6.1, 28, 4096, 2048, "q_proj,v_proj",
        {
            "model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_inner": None, "n_positions": 2048,
            "vocab_size": 50400, "rotary_dim": 64, "activation_function": "gelu_new", "attn_pdrop": 0.0,
            "embd_pdrop": 0.0, "resid_pdrop": 0.0, **_UNTIED,
        },
    ),
    "starcoderbase-1b": Model(
        1.1, 24, 2048, 8192, "c_attn",
        {
            "model_type": "gpt_bigcode", "n_layer": 24, "n_embd": 2048, "n_head": 16, "n_inner": 8192,
            "n_positions": 8192, "vocab_size": 49152, "multi_query": True,
            "activation_function": "gelu_pytorch_tanh", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
        },
    ),
    "phi-1.5": _model(
        1.4, 2048, "phi", 24, 2048, 32, 32, 8192, 51200, hidden_act="gelu_new", partial_rotary_factor=0.5, **_UNTIED
    ),
    "phi-2": _model(
        2.8, 2048, "phi", 32, 2560, 32, 32, 10240, 51200, hidden_act="gelu_new", partial_rotary_factor=0.4,
        resid_pdrop=0.1, **_UNTIED,
    ),
    "starcoder2-3b": _model(
        3.0, 16384, "starcoder2", 30, 3072, 24, 2, 12288, 49152, hidden_act="gelu_pytorch_tanh", use_bias=True,
        sliding_window=4096, residual_dropout=0.1, attention_dropout=0.1, embedding_dropout=0.1,
    ),
    "olmo-2-1b": _model(1.5, 4096, "olmo2", 16, 2048, 16, 16, 8192, 100352, **_UNTIED),
    "olmo-2-7b": _model(7.3, 4096, "olmo2", 32, 4096, 32, 32, 11008, 100352, **_UNTIED),
    "granite-3.1-2b": _model(
        2.5, 131072, "granite", 40, 2048, 32, 8, 8192, 49152, embedding_multiplier=12.0, logits_scaling=8.0,
        residual_multiplier=0.22, attention_multiplier=0.015625, attention_dropout=0.1, **_TIED,
    ),
    "stablelm-2-1.6b": _model(
        1.6, 4096, "stablelm", 24, 2048, 32, 32, 5632, 100352, use_qkv_bias=True, partial_rotary_factor=0.25,
        **_UNTIED,
    ),
    "stablelm-3b-4e1t": _model(
        2.8, 4096, "stablelm", 32, 2560, 32, 32, 6912, 50304, use_qkv_bias=False, partial_rotary_factor=0.25,
        **_UNTIED,
    ),
    "aya-expanse-8b": _model(8.0, 8192, "cohere", 32, 4096, 32, 8, 14336, 256000, use_qk_norm=False, **_TIED),
    "command-r7b": _model(
        8.0, 132096, "cohere2", 32, 4096, 32, 8, 14336, 256000, head_dim=128, sliding_window=4096, **_TIED
    ),
    "glm-4-9b": _model(
        9.4, 32768, "glm4", 40, 4096, 32, 2, 13696, 151552, head_dim=128, attention_bias=False,
        partial_rotary_factor=0.5, **_UNTIED,
    ),
    "smollm3-3b": _model(3.1, 65536, "smollm3", 36, 2048, 16, 4, 11008, 128256, **_TIED),
    "apertus-8b": _model(8.1, 65536, "apertus", 32, 4096, 32, 8, 21504, 131072, hidden_act="xielu", **_UNTIED),
    "exaone-4.0-1.2b": _model(
        1.3, 65536, "exaone4", 30, 2048, 32, 8, 4096, 102400, head_dim=64, sliding_window=None,
        layer_types=["full_attention"] * 30, **_TIED,
    ),
    "ernie-4.5-0.3b": _model(0.4, 131072, "ernie4_5", 18, 1024, 16, 2, 3072, 103424, head_dim=128, **_TIED),
    "minitron-4b": _model(
        4.2, 4096, "nemotron", 32, 3072, 24, 8, 9216, 256000, head_dim=128, hidden_act="relu2", **_UNTIED
    ),
    "olmoe-1b-7b": _model(
        6.9, 4096, "olmoe", 16, 2048, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8, **_UNTIED
    ),
    "granite-3.0-1b-a400m": _model(
        1.3, 4096, "granitemoe", 24, 1024, 16, 8, 512, 49155, num_local_experts=32, num_experts_per_tok=8, **_TIED
    ),
    "qwen1.5-moe-a2.7b": _model(
        14.3, 8192, "qwen2_moe", 24, 2048, 16, 16, 5632, 151936, num_experts=60, num_experts_per_tok=4,
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632, decoder_sparse_step=1, **_UNTIED,
    ),
    "deepseek-v2-lite": _model(
        15.7, 163840, "deepseek_v2", 27, 2048, 16, 16, 10944, 102400, pair="q_proj,kv_b_proj", kv_lora_rank=512,
        q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=64,
        num_experts_per_tok=6, moe_intermediate_size=1408, n_shared_experts=2, first_k_dense_replace=1, **_UNTIED,
    ),
    "mixtral-8x7b": _model(
        46.7, 32768, "mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2, **_UNTIED
    ),
}  # fmt: skip
FURTHER_MODELS: Final[Mapping[str, Model]] = {
    "olmo-3-7b": _model(7.3, 65536, "olmo3", 32, 4096, 32, 32, 11008, 100278, sliding_window=4096, **_UNTIED),
    "glm-4-9b-chat": _model(
        9.4, 131072, "glm", 40, 4096, 32, 2, 13696, 151552, head_dim=128, attention_bias=True, **_UNTIED
    ),
    "codegen-2b": Model(
        2.8, 32, 2560, 2048, "qkv_proj",
        {
            "model_type": "codegen", "n_layer": 32, "n_embd": 2560, "n_head": 32, "n_inner": None,
            "n_positions": 2048, "vocab_size": 51200, "rotary_dim": 64, "activation_function": "gelu_new",
            "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, **_UNTIED,
        },
    ),
    "falcon-rw-1b": Model(
        1.3, 24, 2048, 2048, "query_key_value",
        {
            "model_type": "falcon", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 32,
            "vocab_size": 50304, "multi_query": False, "new_decoder_architecture": False, "parallel_attn": False,
            "bias": True, "alibi": True, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        },
    ),
    "xglm-1.7b": Model(
        1.7, 24, 2048, 2048, "q_proj,v_proj",
        {
            "model_type": "xglm", "num_layers": 24, "d_model": 2048, "attention_heads": 16, "ffn_dim": 8192,
            "vocab_size": 256008, "max_position_embeddings": 2048, "activation_function": "gelu", "dropout": 0.1,
            "attention_dropout": 0.1, "activation_dropout": 0, "scale_embedding": True,
        },
    ),
    "persimmon-8b": _model(
        9.4, 16384, "persimmon", 36, 4096, 64, 64, 16384, 262144, pair="query_key_value", hidden_act="relu2",
        qk_layernorm=True, partial_rotary_factor=0.5, **_UNTIED,
    ),
    "hunyuan-1.8b": _model(
        1.8, 32768, "hunyuan_v1_dense", 32, 2048, 16, 4, 6144, 120818, head_dim=128, use_qk_norm=True, **_TIED
    ),
    "afm-4.5b": _model(
        4.6, 65536, "arcee", 36, 2560, 20, 4, 18432, 128004, head_dim=128, hidden_act="relu2", **_UNTIED
    ),
    "helium-1-2b": _model(2.2, 4096, "helium", 24, 2560, 20, 20, 7040, 48000, head_dim=128, **_UNTIED),
    "gpt-oss-20b": _model(
        20.9, 131072, "gpt_oss", 24, 2880, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32,
        num_experts_per_tok=4, sliding_window=128, attention_bias=True, **_UNTIED,
    ),
    "phi-3.5-moe": _model(
        41.9, 131072, "phimoe", 32, 4096, 32, 8, 6400, 32064, num_local_experts=16, num_experts_per_tok=2,
        attention_bias=True, lm_head_bias=True, **_UNTIED,
    ),
    "ernie-4.5-21b-a3b": _model(
        21.8, 131072, "ernie4_5_moe", 28, 2560, 20, 4, 12288, 103424, moe_num_experts=64, moe_k=6,
        moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1, use_bias=False, **_TIED,
    ),
}  # fmt: skip
MODELS: Final = {**FIRST_MODELS, **FURTHER_MODELS}


def _drawn(name: str, draw: random.Random) -> Setup:
    longest = MODELS[name].longest
    kind = draw.choice(("full", "full", "full", "lora", "lora", "serve"))
    sequence = draw.choice([each for each in _SEQUENCES if each <= longest])
    if kind == "serve":
        return Setup(model=name, sequence=sequence, serve=True)
    setup = Setup(
        model=name,
        sequence=sequence,
        micro_batch=draw.choice((1, 2, 4, 8)),
        checkpointing=draw.choice((True, False)),
        accumulation=draw.choice((1, 4)),
    )
    if kind == "lora":
        targets = draw.choice(("all-linear", MODELS[name].pair))
        return msgspec.structs.replace(setup, lora=draw.choice((4, 8, 16, 64)), targets=targets)
    return msgspec.structs.replace(
        setup,
        precision=draw.choice(_PRECISIONS),
        optimizer=draw.choice(("adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adafactor", "sgd")),
    )


def _can_run(setup: Setup) -> bool:
    """A rough rule: the states, 34 bytes of a value in a layer (Korthikanti et al.) or 2, and 12 of a logit."""
    model = MODELS[setup.model]
    parameters = model.billions * 1e9
    tokens = setup.micro_batch * setup.sequence
    if setup.serve:
        return 2 * parameters < _GPU_BYTES
    wide = 2 if setup.precision == "fp32" else 1
    states = parameters * (2 if setup.lora else 8 if setup.precision == "bf16" else 16)
    inside = tokens * model.layers * model.hidden * wide * (2 if setup.checkpointing else 34)
    seconds = 8 * parameters * tokens * _STEPS * setup.accumulation / (4e13 if setup.precision == "fp32" else 3e14)
    return states + inside + 12 * tokens * model.config["vocab_size"] < _GPU_BYTES and seconds < _LONGEST_S


def _draw_all(seed: int, models: Mapping[str, Model], count: int, drawn: tuple[Setup, ...] = ()) -> tuple[Setup, ...]:
    """One setup of each model, and more of models that are drawn too; none of those ``drawn`` before."""
    draw = random.Random(seed)
    names = [*models, *draw.sample(list(models), count - len(models))]
    setups: list[Setup] = []
    for name in names:
        while not _can_run(setup := _drawn(name, draw)) or setup in (*setups, *drawn):
            pass
        setups.append(setup)
    return tuple(setups)


OTHER_FAMILIES: Final = _draw_all(_SEEDS[0], FIRST_MODELS, _SETUPS[0])
SECOND_DRAW: Final = _draw_all(_SEEDS[1], MODELS, _SETUPS[1], OTHER_FAMILIES)
"""Each was drawn and committed before any of its setups was measured."""
