"""Launches one process a GPU as torchrun does, without the seconds that importing torch takes.

It knows the options that the demo's scripts use and sets the variables that a training program reads. The program
is run by the same python3. The first process that fails ends the others, and its status is the launcher's.
"""

import argparse
import os
import subprocess
import sys
import time


def main() -> int:
    """Launch and wait; returns the exit status."""
    parser = argparse.ArgumentParser(prog="torchrun", description="Stands in for torchrun.")
    parser.add_argument("--standalone", action="store_true", help="one node; no rendezvous")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    node = int(os.environ.get("SLURM_NODEID", "0"))
    processes = [
        subprocess.Popen(
            [sys.executable, options.program, *options.arguments],
            env={
                **os.environ,
                "LOCAL_RANK": str(local),
                "RANK": str(node * options.nproc_per_node + local),
                "WORLD_SIZE": str(options.nnodes * options.nproc_per_node),
            },
        )
        for local in range(options.nproc_per_node)
    ]
    return wait(processes)


def wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all; end the others when one fails."""
    while True:
        states = [process.poll() for process in processes]
        failed = next((state for state in states if state), None)
        if failed is not None:
            for process in processes:
                process.terminate()
            return failed if failed > 0 else 128 - failed
        if None not in states:
            return 0
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
