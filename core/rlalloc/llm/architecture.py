"""The shape of a transformer and the number of its parameters, from a Hugging Face style config.json.

``transformers`` counts parameters exactly but needs torch and builds the model; ``llm-analysis`` (memory formulas)
needs transformers; smaller packages on PyPI either ask the hub or know a few models. None is light and well kept, so
the arithmetic is here. ``tests/core/llm`` compares it with the parameter counts that models' publishers state.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_LARGEST: Final = 10_000_000
"""No dimension of a model is larger; what is larger is not believed."""


class Latent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Multi-head latent attention (DeepSeek-V2, 2024): ranks, and widths of a head. ``query_rank`` 0: none."""

    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class Experts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mixture of experts: ``count`` experts of width ``intermediate`` in all but ``dense_layers`` layers.

    ``shared_intermediate`` is the width of what every token passes. ``shared_gate`` says whether that has a gate.
    """

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    router_bias: bool = False


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a ``model_type`` means beyond its numbers: which matrices have biases, and how many norms there are.

    ``norm_weights`` is 1 for RMSNorm, 2 for a LayerNorm; 1 with ``layer_norm`` is a LayerNorm without bias.
    ``dropout`` is that of what each layer adds, ``attention_dropout`` that of the attention's scores.
    ``positions_extra`` are rows of the table of positions beyond its length; None means that positions are not
    learned. ``head_norms`` are of each head's queries and keys, ``wide_head_norms`` of all heads' together.

    What Hugging Face's code does: ``gelu_operations``: its GELU is a product, a power and a tanh ("gelu_new").
    ``eager_attention``: it has no fused attention. ``norm_inputs`` are the 32-bit values that a norm keeps of its
    input; ``norm_product_32``: its product with the weights is in 32 bits too.
    """

    gated: bool = True
    norm_weights: int = 1
    norms: int = 2
    layer_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    positions_extra: int | None = None
    embedding_norm: bool = False
    head_bias: bool = False
    head_norms: bool = False
    wide_head_norms: bool = False
    norm_inputs: int = 1
    norm_product_32: bool = False
    tied: bool = False
    dropout: bool = False
    attention_dropout: bool = False
    gelu_operations: bool = False
    eager_attention: bool = False
    ffn_halved: bool = False
    known: bool = True


_GPT: Final = Family(
    gated=False, norm_weights=2, qkv_bias=True, output_bias=True, mlp_bias=True, tied=True, dropout=True,
    attention_dropout=True,
)  # fmt: skip
_COHERE: Final = Family(tied=True, norms=1, norm_inputs=2, norm_product_32=True)
FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(),
    "phi3": Family(),
    "deepseek": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "internlm2": Family(),
    "baichuan": Family(),
    "qwen": Family(qkv_bias=True, ffn_halved=True),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True),
    "qwen3": Family(head_norms=True),
    "qwen3_moe": Family(head_norms=True),
    "granite": Family(),
    "granitemoe": Family(),
    "smollm3": Family(tied=True),
    "ernie4_5": Family(tied=True),
    "ernie4_5_moe": Family(tied=True),
    "exaone4": Family(head_norms=True),
    "glm4": Family(norms=4),
    "stablelm": Family(norm_weights=2),
    "olmo2": Family(wide_head_norms=True, norm_product_32=True),
    "olmoe": Family(wide_head_norms=True),
    "nemotron": Family(gated=False, norm_weights=2),
    "arcee": Family(gated=False),
    # Not counted: two numbers of each layer's activation function.
    "apertus": Family(gated=False, head_norms=True, known=False),
    "gpt_oss": Family(qkv_bias=True, output_bias=True, mlp_bias=True),
    "gemma": Family(tied=True, norm_product_32=True),
    "gemma2": Family(tied=True, norms=4, norm_product_32=True),
    "gemma3_text": Family(tied=True, norms=4, head_norms=True, norm_product_32=True),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "gpt2": msgspec.structs.replace(_GPT, positions_extra=0, gelu_operations=True),
    "gpt_bigcode": msgspec.structs.replace(_GPT, positions_extra=0),
    "gpt_neo": msgspec.structs.replace(
        _GPT, positions_extra=0, qkv_bias=False, gelu_operations=True, eager_attention=True
    ),
    "gpt_neox": msgspec.structs.replace(_GPT, tied=False),
    "gptj": Family(
        gated=False, norm_weights=2, norms=1, mlp_bias=True, head_bias=True, dropout=True, attention_dropout=True,
        gelu_operations=True, eager_attention=True,
    ),
    "opt": msgspec.structs.replace(_GPT, positions_extra=2),
    "bloom": msgspec.structs.replace(_GPT, embedding_norm=True, eager_attention=True),
    # Measured: some setups keep all scores, others do not, and we cannot tell which.
    "falcon": Family(gated=False, norm_weights=2, norms=1, tied=True, eager_attention=True),
    "phi": Family(
        gated=False, norm_weights=2, norms=1, qkv_bias=True, output_bias=True, mlp_bias=True, head_bias=True,
        gelu_operations=True,
    ),
    "mpt": Family(gated=False, tied=True, layer_norm=True, eager_attention=True),
    "starcoder2": msgspec.structs.replace(_GPT, dropout=False, attention_dropout=False),
    "megatron": msgspec.structs.replace(_GPT, positions_extra=0),
}  # fmt: skip
"""By ``model_type``; ``megatron`` is Megatron-LM's GPT with its defaults."""
_DROPOUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "dropout": ("resid_pdrop", "residual_dropout", "hidden_dropout", "resid_dropout", "dropout"),
    "attention_dropout": ("attn_pdrop", "attention_dropout"),
}
"""The keys of a config.json for the rates of each."""
UNKNOWN_FAMILY: Final = Family(known=False)


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decoder-only transformer.

    ``stated_parameters`` is set where only a size is known; the dimensions are then those of a Llama of that size.
    """

    family: Family
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    positions: int = 0
    embedding_width: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
    stated_parameters: int | None = None

    @property
    def exact(self) -> bool:
        """Whether ``parameters`` is counted for a known kind of model."""
        return self.stated_parameters is None and self.family.known

    @property
    def parameters(self) -> int:
        """All parameters."""
        if self.stated_parameters is not None:
            return self.stated_parameters
        return self.embedding_parameters + self.linear_parameters + self._norm_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but those of the experts that it does not pass."""
        if self.experts is None:
            return self.parameters
        idle = self.experts.count - self.experts.per_token
        moe_layers = self.layers - self.experts.dense_layers
        return self.parameters - idle * moe_layers * self._mlp(self.experts.intermediate)

    @property
    def embedding_parameters(self) -> int:
        """Embeddings, the head if it is not tied, and learned positions: what quantisation leaves in 16 bits."""
        width = self.embedding_width or self.hidden
        tables = 1 if self.tied else 2
        projections = 2 * width * self.hidden if width != self.hidden else 0
        rows = self.positions + self.family.positions_extra if self.family.positions_extra is not None else 0
        bias = self.vocabulary if self.family.head_bias else 0
        return tables * self.vocabulary * width + projections + rows * self.hidden + bias

    @property
    def linear_parameters(self) -> int:
        """Weights and biases of all layers' matrices."""
        if self.stated_parameters is not None:
            return max(0, self.stated_parameters - self.embedding_parameters)
        return self.layers * self.attention_parameters + self._mlp_parameters

    @property
    def attention_parameters(self) -> int:
        """Weights and biases of one layer's attention."""
        if self.latent is not None:
            return self._latent_attention(self.latent)
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        weights = self.hidden * (query + 2 * kv) + query * self.hidden
        biases = (query + 2 * kv) * self.family.qkv_bias + self.hidden * self.family.output_bias
        return weights + biases

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that the KV cache holds for one token: keys and values of all layers, or their latent."""
        if self.latent is not None:
            return self.layers * (self.latent.kv_rank + self.latent.rope_dim)
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def _mlp_parameters(self) -> int:
        experts = self.experts
        if experts is None:
            return self.layers * self._mlp(self.intermediate)
        one = experts.count * self._mlp(experts.intermediate) + self.hidden * experts.count
        one += experts.count * experts.router_bias
        if experts.shared_intermediate:
            one += self._mlp(experts.shared_intermediate) + self.hidden * experts.shared_gate
        dense = experts.dense_layers * self._mlp(self.intermediate)
        return dense + (self.layers - experts.dense_layers) * one

    @property
    def _norm_parameters(self) -> int:
        norm = self.family.norm_weights * self.hidden
        per_layer = self.family.norms * norm + 2 * self.head_dim * self.family.head_norms
        per_layer += (self.heads + self.kv_heads) * self.head_dim * self.family.wide_head_norms
        if self.latent is not None:
            per_layer += self.latent.kv_rank + self.latent.query_rank
        final = norm if self.embedding_width in (0, self.hidden) else 0  # OPT-350M, of another width, has none
        return self.layers * per_layer + final + norm * self.family.embedding_norm

    def _mlp(self, width: int) -> int:
        biases = (self.hidden + width) * self.family.mlp_bias
        return (3 if self.family.gated else 2) * self.hidden * width + biases

    def _latent_attention(self, latent: Latent) -> int:
        key = latent.nope_dim + latent.rope_dim
        query = (
            latent.query_rank * (self.hidden + self.heads * key)
            if latent.query_rank
            else self.hidden * self.heads * key
        )
        kv = self.hidden * (latent.kv_rank + latent.rope_dim)
        kv += latent.kv_rank * self.heads * (latent.nope_dim + latent.value_dim)
        return query + kv + self.heads * latent.value_dim * self.hidden


def architecture_of_config(config: Mapping[str, Any]) -> Architecture | None:
    """Read a Hugging Face style config.json; None if it lacks the dimensions of a decoder-only transformer.

    A multi-modal model's ``text_config`` stands for it. Values of a wrong type or size count as absent.
    """
    nested = config.get("text_config")
    if isinstance(nested, Mapping) and "hidden_size" in nested:
        config = {
            **nested,
            "tie_word_embeddings": config.get("tie_word_embeddings", nested.get("tie_word_embeddings")),
        }
    model_type = str(config.get("model_type", "llama"))
    family = _family_of(model_type, config)
    layers = _whole(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = _whole(config, "hidden_size", "n_embd", "d_model", "n_embed")
    heads = _whole(config, "num_attention_heads", "n_head", "n_heads", "num_heads")
    vocabulary = _whole(config, "vocab_size")
    if not (layers and hidden and heads and vocabulary):
        return None
    kv_heads = _whole(config, "num_key_value_heads", "num_kv_heads") or heads
    if model_type in ("falcon", "gpt_bigcode") and not config.get("new_decoder_architecture"):
        kv_heads = 1 if _flag(config, "multi_query", default=True) else heads
    intermediate = _whole(config, "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size") or 4 * hidden
    return Architecture(
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_whole(config, "head_dim", "kv_channels") or max(1, hidden // heads),
        intermediate=intermediate // 2 if family.ffn_halved else intermediate,
        vocabulary=vocabulary,
        tied=_flag(config, "tie_word_embeddings", default=family.tied),
        positions=_whole(config, "n_positions", "max_position_embeddings") or 0,
        embedding_width=_whole(config, "word_embed_proj_dim") or 0,
        experts=_experts_of(config, model_type, intermediate),
        latent=_latent_of(config),
    )


def _family_of(model_type: str, config: Mapping[str, Any]) -> Family:
    family = FAMILIES.get(model_type, UNKNOWN_FAMILY)
    if model_type == "falcon" and config.get("new_decoder_architecture"):
        family = msgspec.structs.replace(family, norms=2)
    if _flag(config, "attention_bias", default=False):
        family = msgspec.structs.replace(family, qkv_bias=True, output_bias=True)
    if _flag(config, "use_qkv_bias", default=False):
        family = msgspec.structs.replace(family, qkv_bias=True)
    for field, names in _DROPOUTS.items():
        rates = [str(config[name]) for name in names if config.get(name) is not None]
        if rates:
            drops = any(re.search("[1-9]", rate) for rate in rates)
            family = msgspec.structs.replace(family, **{field: drops})
    if _flag(config, "mlp_bias", default=False):
        family = msgspec.structs.replace(family, mlp_bias=True)
    return family


def _experts_of(config: Mapping[str, Any], model_type: str, intermediate: int) -> Experts | None:
    count = _whole(config, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    if not count or count == 1:
        return None
    width = _whole(config, "moe_intermediate_size") or intermediate
    shared_experts = _whole(config, "n_shared_experts", "moe_num_shared_experts") or 0
    shared = _whole(config, "shared_expert_intermediate_size") or shared_experts * width
    dense = _whole(config, "first_k_dense_replace", "moe_layer_start_index") or 0
    return Experts(
        count=count,
        per_token=min(count, _whole(config, "num_experts_per_tok", "moe_router_topk", "moe_k") or 2),
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=model_type == "qwen2_moe",
        dense_layers=min(dense, _whole(config, "num_hidden_layers") or 0),
        router_bias=model_type in ("deepseek_v3", "ernie4_5_moe", "gpt_oss"),
    )


def _latent_of(config: Mapping[str, Any]) -> Latent | None:
    rank = _whole(config, "kv_lora_rank")
    nope, rope = _whole(config, "qk_nope_head_dim"), _whole(config, "qk_rope_head_dim")
    value = _whole(config, "v_head_dim")
    if not (rank and nope and rope and value):
        return None
    return Latent(_whole(config, "q_lora_rank") or 0, rank, nope, rope, value)


def _whole(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of these keys that holds a whole number from 1 to ``_LARGEST``."""
    for name in names:
        value = config.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST:
            return value
    return None


def _flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = config.get(name)
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else default
