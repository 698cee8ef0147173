"""No stand-in: trains a small GPT for real, in plain torch, on as many processes as torchrun was given GPUs.

There are no GPUs here, so the processes compute on CPUs and talk through gloo. It predicts the next character of
its own source; the batch is fixed and shared out among the processes, as in any data-parallel training.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS: Final = 40
REPORT_EVERY: Final = 10
GLOBAL_BATCH: Final = 16
CONTEXT: Final = 48
WIDTH: Final = 64
HEADS: Final = 4
LAYERS: Final = 2
LEARNING_RATE: Final = 3e-3


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.before_feed = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, workload: Tensor, mask: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        normal = self.before_attention(workload)
        attended, _ = self.attention(normal, normal, normal, attn_mask=mask, need_weights=False)
        workload = workload + attended
        return torch.as_tensor(workload + self.feed(self.before_feed(workload)))


class Gpt(nn.Module):
    """A decoder-only transformer over characters."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, length) to logits (batch, length, vocabulary)."""
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        workload = self.characters(tokens) + self.places(torch.arange(length))
        for block in self.blocks:
            workload = block(workload, mask)
        return torch.as_tensor(self.head(workload))


def main() -> int:
    """Train and report; 1 if the loss did not go down, or the launcher's size is not the job's."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gpus = int(os.environ["SLURM_GPUS_ON_NODE"])
    if world != gpus:
        print(f"gpt_train: {world} processes on {gpus} GPUs", file=sys.stderr)
        return 1
    torch.manual_seed(0)
    text = Path(__file__).read_text(encoding="utf-8")
    vocabulary = sorted(set(text))
    data = torch.tensor([vocabulary.index(character) for character in text])
    model = DistributedDataParallel(Gpt(len(vocabulary)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses: list[float] = []
    began = time.monotonic()
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(data) - CONTEXT - 1, (GLOBAL_BATCH,))[rank::world]
        rows = torch.stack([data[start : start + CONTEXT + 1] for start in starts])
        logits = model(rows[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
        if rank == 0 and (step == 1 or step % REPORT_EVERY == 0):
            speed = step * GLOBAL_BATCH * CONTEXT / (time.monotonic() - began)
            print(f"step {step:3}  loss {losses[-1]:.3f}  {speed:,.0f} tokens/s on {world} processes", flush=True)
    # All end together: a process whose peers have gone already may abort in gloo's threads.
    del model
    dist.barrier()
    dist.destroy_process_group()
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads outlive the process group. One that still drops a tensor while the interpreter ends aborts the
    # process (pytorch/pytorch#190489), and a job that was done fails: end without the interpreter's clean-up.
    os._exit(status)
