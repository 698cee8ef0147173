"""GPU memory of a training run: weights, gradients, optimizer and activations of the fullest GPU. Pure functions.

Sources: ZeRO (Rajbhandari et al., SC 2020) for what its stages shard; *Reducing Activation Recomputation in Large
Transformer Models* (Korthikanti et al., MLSys 2023) for activations, generalised to grouped queries, gated MLPs and
mixtures of experts; Megatron-LM (Narayanan et al., SC 2021) for pipelines.
"""

from typing import Final

import msgspec

from rlalloc.llm.architecture import Architecture
from rlalloc.llm.training_setup import BYTES_PER_WEIGHT, PRECISIONS, Training, optimizer_bytes

GIB: Final = 1024**3
_LOSS_BYTES: Final = 14
"""Bytes for each logit at the loss's peak: 16-bit logits, their 32-bit log-softmax, and its two 32-bit gradients."""
_TRANSFORMERS_LOSS_BYTES: Final = 12
"""Hugging Face's Trainer drops the logits before the backward pass."""
_FUSED_LOSS_BYTES: Final = 2
"""With a loss that works in chunks (Liger, torchtune's chunked loss, Megatron's fused one): the 16-bit logits."""
_GATHERED_BYTES: Final = 6
"""ZeRO-3 and FSDP: two layers gathered in 16 bits, the one at work and the next, and one layer's gradients."""


class TrainingMemory(msgspec.Struct, frozen=True):
    """Bytes on the fullest GPU. ``gathered`` is what ZeRO-3 and FSDP hold of whole layers for a moment."""

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    loss: float

    @property
    def states(self) -> float:
        """Weights, gradients and optimizer: what stays from step to step."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All that PyTorch allocates at the peak."""
        return self.states + self.gathered + self.activations + self.loss


def training_memory(model: Architecture, training: Training) -> TrainingMemory:
    """Bytes that the fullest GPU of a training run has to hold, without the CUDA context and fragmentation.

    The peak is where the loss is computed, with all activations. Without gradients of an earlier micro-batch, it may
    be where the backward pass ends: then all gradients are there, and one layer's activations.
    """
    stored, working = _activations(model, training)
    loss = _loss(model, training)
    weights, copy, gradients, optimizer = _states(model, training)
    buckets = gradients if training.gradient_buckets else 0.0
    activations = stored + max(0.0, working - loss)  # a layer is recomputed after the loss has gone
    update = _update(model, training)
    if training.accumulates:
        if training.transformers and model.tied and training.lora is None:
            loss = max(loss, _tied_gradient(model, training))
        if training.transformers and training.zero_stage == 0 and update > copy + activations + loss:
            copy, activations, loss = 0.0, update, 0.0
    else:
        if model.tied and training.lora is None:
            # The gradients of a tied embedding's two uses are added last: one is beside the other.
            working += _embedding(model, training) * PRECISIONS[training.precision].gradients
        working = max(working, update)
        if copy + activations + loss < gradients + working:
            copy, activations, loss = 0.0, working, 0.0
        else:
            gradients = 0.0
    return TrainingMemory(
        weights=weights + copy,
        gradients=gradients + buckets,
        optimizer=optimizer,
        gathered=_gathered(model, training),
        activations=activations,
        loss=loss,
    )


def _states(model: Architecture, training: Training) -> tuple[float, float, float, float]:
    """Weights, their second copy, gradients, optimizer."""
    precision = PRECISIONS[training.precision]
    trained = stage_parameters(model, training)
    frozen = 0.0
    if training.lora is not None:
        base = weight_bytes(model, training.lora.base_weights)
        if _prepared_by_peft(training):
            base += 2 * (model.parameters - model.linear_parameters)  # all that is not quantised gets 32 bits
        frozen = trained * base / model.parameters
        trained = training.lora.parameters(model) / (training.tensor_parallel * training.pipeline_parallel)
    ranks = training.data_parallel * training.context_parallel
    shards = [ranks if training.zero_stage >= stage else 1 for stage in (1, 2, 3)]
    gradients = trained * precision.gradients / shards[1]
    if precision.gradients_stay:
        gradients = 0.0 if training.zero_stage >= 3 else trained * precision.gradients
    optimizer = trained * optimizer_bytes(training)
    if training.transformers and training.optimizer == "adamw-8bit" and training.lora is None:
        # Hugging Face's Trainer has bitsandbytes keep the moments of embeddings in 32 bits.
        optimizer += _embedding(model, training) * (8 - optimizer_bytes(training))
    copy = trained * precision.copy
    if training.transformers and (training.checkpointing == "full" or training.lora is not None):
        # autocast's copies go when the forward pass ends, and a recomputed layer makes its own again. The head is not
        # recomputed, and its copy stays.
        in_32_bits = training.lora is None or training.lora.base_weights == "fp32" or _prepared_by_peft(training)
        copy = _embedding(model, training) * precision.copy * in_32_bits
    return (
        0.0 if training.offload_weights else (trained * precision.weights + frozen) / shards[2],
        0.0 if training.offload_weights else copy / shards[2],
        0.0 if training.offload_optimizer else gradients,
        0.0 if training.offload_optimizer else optimizer / shards[0],
    )


def _update(model: Architecture, training: Training) -> float:
    """What an optimizer's step needs for a moment, when all activations have gone."""
    if training.lora is not None:
        return 0.0
    if training.optimizer == "adamw":
        # PyTorch's AdamW, unless it is fused, computes the root of all second moments at once.
        return stage_parameters(model, training) * PRECISIONS[training.precision].moment
    if training.optimizer == "adafactor":
        # Hugging Face's works matrix by matrix, in 32 bits: gradient, its square, update and weights of the largest.
        return 16 * _embedding(model, training)
    return 0.0


def _tied_gradient(model: Architecture, training: Training) -> float:
    """The gradient of a tied embedding as the head, and the logits' own.

    It is added to that of earlier micro-batches when the backward pass comes to the embedding.
    """
    precision = PRECISIONS[training.precision]
    logits = training.micro_batch * training.sequence / training.context_parallel * model.vocabulary
    return (
        _embedding(model, training) * precision.gradients + logits * precision.activation / training.tensor_parallel
    )


def _embedding(model: Architecture, training: Training) -> float:
    """Parameters of the embedding or of the head, on one GPU."""
    return model.vocabulary * (model.embedding_width or model.hidden) / training.tensor_parallel


def stage_parameters(model: Architecture, training: Training) -> float:
    """Parameters on one GPU of the fullest pipeline stage, before data-parallel ranks shard anything."""
    embeddings = float(model.embedding_parameters)
    layers = float(model.parameters - model.embedding_parameters)
    if model.experts is not None and training.expert_parallel > 1:
        inactive = 1 - 1 / training.expert_parallel
        layers -= _expert_parameters(model) * inactive
    if training.pipeline_parallel > 1 and not model.tied:
        embeddings /= 2  # the first stage has the embedding, the last the head
    return (layers / training.pipeline_parallel + embeddings) / training.tensor_parallel


def weight_bytes(model: Architecture, weights: str) -> float:
    """Bytes of all weights: matrices as ``weights`` says (a key of BYTES_PER_WEIGHT), all else in 16 bits or more."""
    per_weight = BYTES_PER_WEIGHT[weights]
    rest = model.parameters - model.linear_parameters
    return model.linear_parameters * per_weight + rest * max(2.0, per_weight)


def layer_activations(model: Architecture, training: Training, *, recomputed: bool = False) -> float:
    """Bytes that one layer stores for one micro-batch on one GPU; ``recomputed``: nothing is thrown away.

    For a GPT without grouped queries and gates this is Korthikanti's s·b·h·(34 + 5·a·s/h), divided among tensor- and
    sequence-parallel ranks as in their table 2.
    """
    tokens = training.micro_batch * training.sequence / training.context_parallel
    size = PRECISIONS[training.precision].activation
    shared = training.tensor_parallel
    outside = training.tensor_parallel if training.sequence_parallel else 1
    if training.checkpointing == "full" and not recomputed:
        return tokens * _residual_bytes(training) * model.hidden / outside
    query, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    width = model.intermediate
    if model.experts is not None:
        width = model.experts.per_token * model.experts.intermediate + model.experts.shared_intermediate
    gates = 2 if model.family.gated else 0  # the gate after its activation function, and what it multiplies
    inside = size * (2 * query + 2 * kv + (1 + gates) * width)
    if training.transformers and model.family.gelu_operations:
        # 0.5 x · (1 + tanh(…(x + 0.04 x³))): half of x, the tanh, and 1 + tanh are kept too. autocast computes the
        # power in 32 bits, and so all that follows.
        inside += width * (14 if training.precision == "amp" else 3 * size)
    scores = 0.0
    if not training.flash_attention and (training.checkpointing == "none" or recomputed):
        scores = model.heads * training.sequence * _score_bytes(model, training)
    around = model.hidden * (2 * size + 2 * model.family.dropout)  # two norms, two dropout masks
    if training.transformers:
        around += _single_operations(model, training) - 2 * size * model.hidden
    if training.transformers and training.lora is not None:
        # A frozen matrix keeps no input. PEFT converts an adapter's input to 32 bits, autocast back: a copy for each.
        adapted = {*training.lora.targets} - ({"gate"} if not gates else set())
        inside += size * (query * ("o" in adapted) + width * ("down" in adapted))
        around += size * model.hidden * len(adapted - {"o", "down"})
        if _prepared_by_peft(training):
            inside += (4 - size) * (1 + gates) * width
        if training.lora.base_weights == "8-bit":
            # bitsandbytes' MatMul8bitLt keeps its input as it is; attention keeps that of "o" anyway.
            inside += 4 * width
            around += 2 * 4 * model.hidden
    else:
        inside += size * width
        around += 2 * size * model.hidden
    return tokens * ((inside + scores) / shared + around / outside)


def _score_bytes(model: Architecture, training: Training) -> int:
    """Bytes of one attention score: the softmax and what dropout leaves of it, with its mask.

    Hugging Face's code has the softmax in 32 bits, and a copy in the precision of the values.
    """
    size = PRECISIONS[training.precision].activation
    if not training.transformers:
        return 2 * size + 1 if model.family.attention_dropout else size
    if model.family.attention_dropout:
        return 4 + 1 + size
    return 4 + size if size < 4 else size


def _residual_bytes(training: Training) -> int:
    """Bytes of a value between layers: Hugging Face's models under autocast add to 32-bit embeddings."""
    if training.transformers and training.precision == "amp" and training.lora is None:
        return 4
    if _prepared_by_peft(training):
        return 4
    return PRECISIONS[training.precision].activation


def _prepared_by_peft(training: Training) -> bool:
    """Whether PEFT converts what is not quantised to 32 bits, so that norms hand on 32 bits, and matrices, too."""
    quantised = training.lora is not None and training.lora.base_weights in ("nf4", "8-bit")
    return training.transformers and quantised


def _single_operations(model: Architecture, training: Training) -> int:
    """Bytes of a token in one layer's norms: a LayerNorm keeps its input, which autocast converts to 32 bits.

    Hugging Face's RMSNorm keeps the input in 32 bits, and the quotient before it is multiplied by the weights, unless
    they are frozen; so do the norms of queries and keys.
    """
    residual = _residual_bytes(training)
    family = model.family
    if family.norm_weights == 2 or family.layer_norm:
        return family.norms * (4 if training.precision == "amp" else residual) * model.hidden
    heads = (model.heads + model.kv_heads) * model.head_dim * (family.head_norms or family.wide_head_norms)
    size = PRECISIONS[training.precision].activation
    if training.lora is not None:
        residual = size = 0
    elif family.norm_product_32:
        residual = size = 4
    kept = 4 * family.norm_inputs
    return family.norms * (kept + residual) * model.hidden + heads * (kept + size)


def _activations(model: Architecture, training: Training) -> tuple[float, float]:
    """What stays until the backward pass, and what one recomputed layer needs for a moment.

    The first stage of a pipeline has as many micro-batches under way as there are stages (1F1B): as much as all
    layers of one micro-batch.
    """
    stored = model.layers * layer_activations(model, training)
    working = layer_activations(model, training, recomputed=True) if training.checkpointing != "none" else 0.0
    return stored, working


def _loss(model: Architecture, training: Training) -> float:
    tokens = training.micro_batch * training.sequence / training.context_parallel
    bytes_per_logit = _TRANSFORMERS_LOSS_BYTES if training.transformers else _LOSS_BYTES
    if training.fused_loss:
        bytes_per_logit = _FUSED_LOSS_BYTES
    if training.pipeline_parallel > 1:
        return 0.0  # the last stage has the loss, but 1/p of the first stage's activations
    return tokens * model.vocabulary * bytes_per_logit / training.tensor_parallel


def _gathered(model: Architecture, training: Training) -> float:
    if training.zero_stage < 3:
        return 0.0
    layer = (model.parameters - model.embedding_parameters) / max(1, model.layers)
    largest = max(layer, model.vocabulary * model.hidden)
    per_parameter = _GATHERED_BYTES if training.lora is None else BYTES_PER_WEIGHT[training.lora.base_weights] * 2
    return largest * per_parameter / training.tensor_parallel


def _expert_parameters(model: Architecture) -> float:
    if model.experts is None:
        return 0.0
    matrices = 3 if model.family.gated else 2
    layers = model.layers - model.experts.dense_layers
    return float(layers * model.experts.count * matrices * model.hidden * model.experts.intermediate)
