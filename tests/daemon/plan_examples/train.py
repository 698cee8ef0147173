"""Trains the demo's GPT for real, with gloo on CPUs: data-parallel copies times tensor-parallel ranks.

The feed-forward networks are divided among the tensor-parallel ranks by torch itself, column-wise then row-wise. A
process that ``accelerate launch`` started joins the others by Accelerate, any other by torch.
"""

import argparse
import importlib
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from jobs.gpt_train import CONTEXT, Gpt

STEPS = 3


def main() -> int:
    """Train a few steps and print the layout; 1 if sizes do not fit each other, or the loss did not go down."""
    options = parse()
    joined_by = join()
    rank, world = dist.get_rank(), dist.get_world_size()
    copies, rest = divmod(world, options.tensor_parallel_size * options.pipeline_parallel_size)
    if rest or options.pipeline_parallel_size != 1 or options.data_parallel not in (None, copies):
        print(f"cannot divide {world} processes by {vars(options)}", file=sys.stderr)
        return 1
    steps, rest = divmod(options.global_batch_size, copies * options.micro_batch_size)
    if rest:
        print(f"cannot divide a batch of {options.global_batch_size} among {copies} copies", file=sys.stderr)
        return 1
    mesh = init_device_mesh("cpu", (copies, options.tensor_parallel_size), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    model = Gpt(64)
    for block in model.blocks:
        feed = block.get_submodule("feed")
        parallelize_module(feed, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    rows = torch.randint(64, (options.global_batch_size, CONTEXT + 1))[mesh.get_local_rank("data") :: copies]
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = sum(accumulated(model, micro_batch, steps) for micro_batch in rows.chunk(steps))
        for parameter in model.parameters():
            gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            dist.all_reduce(gradient, group=mesh.get_group("data"))
            gradient /= copies
        optimizer.step()
        losses.append(loss)
    if rank == 0:
        layout = f"DP {copies} TP {options.tensor_parallel_size} on {world} processes"
        print(f"trained by {joined_by}: {layout}, a batch of {options.global_batch_size}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if losses[-1] < losses[0] else 1


def parse() -> argparse.Namespace:
    """Read the options of both examples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel-size", "--tensor_parallel_size", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", type=int, default=1)
    parser.add_argument("--data_parallel", type=int)
    parser.add_argument("--global-batch-size", "--global_batch_size", type=int, required=True)
    parser.add_argument("--micro-batch-size", "--micro_batch_size", type=int, required=True)
    for names in (("--model", "--model_name_or_path"), ("--seq-length", "--max_seq_length")):
        parser.add_argument(*names, help="what a real program would train")
    return parser.parse_args()


def join() -> str:
    """Make one process group of all processes; returns whose."""
    if "ACCELERATE_MIXED_PRECISION" not in os.environ:
        dist.init_process_group("gloo")
        return "torch"
    accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
    assert accelerator.num_processes == dist.get_world_size()
    return "Accelerate"


def accumulated(model: Gpt, rows: torch.Tensor, steps: int) -> float:
    """Add the gradients of a micro-batch; returns its part of the loss."""
    logits = model(rows[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) / steps
    loss.backward()
    return loss.item()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # gloo's threads outlive the process group: demo/jobs/gpt_train.py says why
