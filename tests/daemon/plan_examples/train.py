"""Trains the demo's GPT for real, with gloo on CPUs: data-parallel copies times tensor-parallel ranks.

The feed-forward networks are divided among the tensor-parallel ranks by torch itself, column-wise then row-wise.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from jobs.gpt_train import CONTEXT, Gpt

STEPS = 8
BATCH = 8


def main() -> int:
    """Train a few steps and print the layout; 1 if the loss did not go down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel-size", type=int, default=int(os.environ.get("TP_SIZE", "1")))
    parser.add_argument("--pipeline-parallel-size", type=int, default=1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    copies, rest = divmod(world, options.tensor_parallel_size * options.pipeline_parallel_size)
    if rest or options.pipeline_parallel_size != 1:
        print(f"cannot divide {world} processes by {vars(options)}", file=sys.stderr)
        return 1
    mesh = init_device_mesh("cpu", (copies, options.tensor_parallel_size), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    model = Gpt(64)
    for block in model.blocks:
        feed = block.get_submodule("feed")
        parallelize_module(feed, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    rows = torch.randint(64, (BATCH, CONTEXT + 1))[mesh.get_local_rank("data") :: copies]
    losses = []
    for _ in range(STEPS):
        logits = model(rows[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            dist.all_reduce(gradient, group=mesh.get_group("data"))
            gradient /= copies
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        print(f"trained: DP {copies} TP {options.tensor_parallel_size} on {world} processes", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # gloo's threads outlive the process group: demo/jobs/gpt_train.py says why
