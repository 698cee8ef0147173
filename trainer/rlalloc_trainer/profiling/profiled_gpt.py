"""A GPT as GPT-2 has it (Radford et al., 2019), without dropout: what is trained while a profile is measured."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from rlalloc.speed.profile_file import ProfiledModel

_INITIAL_SPREAD: Final = 0.02


class _Block(nn.Module):
    """Causal self-attention and a feed-forward network, each around a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.before_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(attended.transpose(1, 2).reshape(batch, length, width))
        return torch.as_tensor(x + self.feed(self.before_feed(x)))


class ProfiledGpt(nn.Module):
    """Tokens to the loss of the next ones; the head shares the embedding's weights."""

    def __init__(self, shape: ProfiledModel, sequence: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(sequence, shape.width)
        self.blocks = nn.ModuleList(_Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.last = nn.LayerNorm(shape.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_INITIAL_SPREAD)

    def forward(self, windows: Tensor) -> Tensor:
        """Mean loss of token windows, shape (batch, sequence + 1)."""
        seen, wanted = windows[:, :-1], windows[:, 1:]
        x = self.tokens(seen) + self.positions(torch.arange(seen.shape[1], device=seen.device))
        for block in self.blocks:
            x = block(x)
        logits = self.last(x) @ self.tokens.weight.T
        return cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())
