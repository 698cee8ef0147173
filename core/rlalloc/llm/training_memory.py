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
    """Bytes that the fullest GPU of a training run has to hold, without the CUDA context and fragmentation."""
    stored, working = _activations(model, training)
    loss = _loss(model, training)
    weights, gradients, optimizer = _states(model, training)
    return TrainingMemory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        gathered=_gathered(model, training),
        activations=stored + max(0.0, working - loss),  # a layer is recomputed after the loss has gone
        loss=loss,
    )


def _states(model: Architecture, training: Training) -> tuple[float, float, float]:
    """Weights, gradients, optimizer."""
    precision = PRECISIONS[training.precision]
    trained = stage_parameters(model, training)
    frozen = 0.0
    if training.lora is not None:
        frozen = trained * weight_bytes(model, training.lora.base_weights) / model.parameters
        trained = training.lora.parameters(model) / (training.tensor_parallel * training.pipeline_parallel)
    ranks = training.data_parallel * training.context_parallel
    shards = [ranks if training.zero_stage >= stage else 1 for stage in (1, 2, 3)]
    gradients = trained * precision.gradients / shards[1]
    if precision.gradients_stay:
        gradients = 0.0 if training.zero_stage >= 3 else trained * precision.gradients
    if training.gradient_buckets:
        gradients *= 2
    weights = (trained * precision.weights + frozen) / shards[2] + trained * precision.copy / shards[2]
    return (
        0.0 if training.offload_weights else weights,
        0.0 if training.offload_optimizer else gradients,
        0.0 if training.offload_optimizer else trained * optimizer_bytes(training) / shards[0],
    )


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
        return tokens * size * model.hidden / outside
    query, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    width = model.intermediate
    if model.experts is not None:
        width = model.experts.per_token * model.experts.intermediate + model.experts.shared_intermediate
    inside = size * (2 * query + 2 * kv + (4 if model.family.gated else 2) * width)
    scores = 0.0
    if not training.flash_attention and (training.checkpointing == "none" or recomputed):
        scores = model.heads * training.sequence * (2 * size + 1 if model.family.dropout else size)
    around = model.hidden * (4 * size + 2 * model.family.dropout)  # two norms, two inputs, two dropout masks
    return tokens * ((inside + scores) / shared + around / outside)


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
    bytes_per_logit = _FUSED_LOSS_BYTES if training.fused_loss else _LOSS_BYTES
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
