"""A training program for machines without GPUs: it takes as long as the real one would, in compressed time.

It reads what it was given from Slurm's environment, works through a fixed number of tokens at the measured speed for
that many GPUs (speed.json), and takes the memory that it needs: a thousandth of it, as it compresses time. It ends
with 1 where what Slurm, its launcher and rlalloc say does not agree, and with 137, as one that the kernel killed,
where it was given less memory than it needs. One hour is 20 seconds; STANDIN_HOUR_S changes that.

Only the standard library, so that any python3 runs it. It knows nothing of rlalloc's code.
"""

import argparse
import json
import math
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KILLED: Final = 137
REPORT_EVERY_S: Final = 2.0
MIB: Final = 1024 * 1024


class MismatchError(Exception):
    """Two sources name different sizes: a real launcher would hang or fail here."""


@dataclass(frozen=True)
class Given:
    """What this job has; all nodes alike."""

    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    mem_mib_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return self.nodes * self.gpus_per_node


def main() -> int:
    """Train; returns the exit status."""
    options = parse()
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    try:
        given = read_given()
        check_launch(given)
        check_batch(given, options)
    except MismatchError as error:
        print(f"standin_train: rank {rank}: {error}", file=sys.stderr)
        return 1
    needed_mib = options.memory_gib_per_gpu * 1024 * given.gpus_per_node
    if given.mem_mib_per_node < needed_mib:
        print(f"Killed: needs {needed_mib:.0f} MiB on this node, has {given.mem_mib_per_node}", file=sys.stderr)
        return KILLED
    taken = bytearray(b"\1") * int(options.memory_gib_per_gpu * MIB)  # written to, so that it is resident
    train(options, given, talk=rank == 0)
    return 0 if taken else 1


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Stands in for a training program, in compressed time.")
    parser.add_argument("--tokens", type=float, required=True, help="how many to train on")
    parser.add_argument("--curve", default="bert", help="whose measured speed-up, see speed.json")
    parser.add_argument("--memory-gib-per-gpu", type=float, default=8.0, help="memory that each process needs")
    parser.add_argument("--global-batch-size", type=int, help="sequences of a step, of all processes together")
    parser.add_argument("--micro-batch-size", type=int, default=1, help="sequences that one process takes at once")
    for name in ("--model", "--max-seq-length", "--lora-r"):
        parser.add_argument(name, help="what the real program would train; nothing here depends on it")
    parser.add_argument("--bf16", action="store_true", help="likewise")
    return parser.parse_args()


def read_given() -> Given:
    """What Slurm says that this job has. Raises MismatchError where it contradicts itself."""
    nodes = number("SLURM_JOB_NUM_NODES")
    gpus = number("SLURM_GPUS_ON_NODE")
    cpus = number("SLURM_JOB_CPUS_PER_NODE")
    visible = [device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
    if len(visible) not in (gpus, 1):  # one: a task of its own for each GPU
        raise MismatchError(f"CUDA_VISIBLE_DEVICES has {len(visible)} devices, SLURM_GPUS_ON_NODE says {gpus}")
    agree("SLURM_NNODES", nodes)
    agree("SLURM_GPUS_PER_NODE", gpus)
    agree("SLURM_GPUS", nodes * gpus)
    given = Given(nodes, gpus, cpus, memory_mib(gpus, cpus))
    agree("RLALLOC_NODES", given.nodes)
    agree("RLALLOC_GPUS_PER_NODE", given.gpus_per_node)
    agree("RLALLOC_GPUS", given.gpus)
    agree("RLALLOC_CPUS_PER_NODE", given.cpus_per_node)
    agree("RLALLOC_MEM_MIB_PER_NODE", given.mem_mib_per_node)
    return given


def check_launch(given: Given) -> None:
    """Each GPU has one process, whoever launched them. Raises MismatchError."""
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        if name in os.environ:
            if number(name) != given.gpus:
                raise MismatchError(f"launched as {number(name)} processes ({name}) on {given.gpus} GPUs")
            return
    raise MismatchError("neither torchrun nor srun launched this: there is no WORLD_SIZE")


def check_batch(given: Given, options: argparse.Namespace) -> None:
    """The global batch is divided among the processes in whole micro-batches. Raises MismatchError."""
    step = given.gpus * options.micro_batch_size
    if options.global_batch_size is not None and options.global_batch_size % step:
        raise MismatchError(f"a global batch of {options.global_batch_size} is not divisible by {step}")


def memory_mib(gpus: int, cpus: int) -> int:
    """Memory of this node: Slurm sets one of three variables."""
    for name, times in (("SLURM_MEM_PER_NODE", 1), ("SLURM_MEM_PER_GPU", gpus), ("SLURM_MEM_PER_CPU", cpus)):
        if name in os.environ:
            return number(name) * times
    raise MismatchError("Slurm names no memory: SLURM_MEM_PER_NODE is not set")


def agree(name: str, expected: int) -> None:
    """Raise MismatchError if a variable is set and says another number."""
    if name in os.environ and number(name) != expected:
        raise MismatchError(f"{name}={os.environ[name]} where the job has {expected}")


def number(name: str) -> int:
    """The number in a variable: "8", "a100:8" and "64(x2)" all have one that counts."""
    found = re.fullmatch(r"(?:.*:)?(\d+)(?:\(x\d+\))?", os.environ.get(name, ""))
    if found is None:
        raise MismatchError(f"{name}={os.environ.get(name)!r}: no number, or nodes that are not alike")
    return int(found[1])


def tokens_per_s(given: Given, curve: str) -> float:
    """Tokens a real second on what was given: measured speed-up, less where CPUs cannot feed the GPUs."""
    table = json.loads(Path(__file__).with_name("speed.json").read_text(encoding="utf-8"))
    measured = table["curves"][curve]
    fed = min(1.0, given.cpus_per_node / given.gpus_per_node / measured["cpus_per_gpu_needed"])
    return float(table["tokens_per_gpu_s"] * speed_up(given.gpus, measured["gpus"], measured["speedup"]) * fed)


def speed_up(gpus: int, counts: list[int], speeds: list[float]) -> float:
    """Between measured counts on a straight line in log-log, flat beyond the last."""
    for low, high, slow, fast in zip(counts, counts[1:], speeds, speeds[1:], strict=False):
        if low <= gpus < high:
            weight = math.log(gpus / low) / math.log(high / low)
            return float(slow * (fast / slow) ** weight)
    return speeds[-1]


def train(options: argparse.Namespace, given: Given, *, talk: bool) -> None:
    """Let the time pass that the tokens take; report now and then."""
    hour_s = float(os.environ.get("STANDIN_HOUR_S", "20"))
    speed = tokens_per_s(given, options.curve)
    length_s = options.tokens / speed / 3600 * hour_s
    began = time.monotonic()
    if talk:
        print(
            f"{given.nodes} nodes x {given.gpus_per_node} GPUs, {given.cpus_per_node} CPUs and "
            f"{given.mem_mib_per_node} MiB a node: {speed:,.0f} tokens/s, {length_s / hour_s:.2f} h",
            flush=True,
        )
    while (past_s := time.monotonic() - began) < length_s:
        time.sleep(min(REPORT_EVERY_S, length_s - past_s))
        if talk:
            done = min(1.0, (time.monotonic() - began) / length_s)
            print(f"{done * options.tokens / 1e6:,.0f} of {options.tokens / 1e6:,.0f} million tokens", flush=True)


if __name__ == "__main__":
    sys.exit(main())
