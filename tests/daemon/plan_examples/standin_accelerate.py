"""Stands in for ``accelerate launch``, which starts several processes only on accelerators.

It checks its arguments, tells the training program the tensor-parallel size, and launches it by torchrun, with gloo.
"""

import argparse
import os
import subprocess
import sys


def main() -> int:
    """Check and launch; returns 2 for sizes that do not fit each other."""
    parser = argparse.ArgumentParser(prog="accelerate")
    parser.add_argument("command", choices=["launch"])
    parser.add_argument("--num_machines", type=int, required=True)
    parser.add_argument("--num_processes", type=int, required=True)
    parser.add_argument("--use_parallelism_config", action="store_true", required=True)
    parser.add_argument("--parallelism_config_dp_replicate_size", type=int, required=True)
    parser.add_argument("--parallelism_config_tp_size", type=int, required=True)
    parser.add_argument("program")
    options = parser.parse_args()
    copies, ranks = options.parallelism_config_dp_replicate_size, options.parallelism_config_tp_size
    if copies * ranks != options.num_processes or options.num_machines != 1:
        print(f"accelerate: {copies} x {ranks} ranks are not {options.num_processes} processes", file=sys.stderr)
        return 2
    launch = ["torchrun", "--standalone", f"--nproc-per-node={options.num_processes}", options.program]
    return subprocess.run(launch, env={**os.environ, "TP_SIZE": str(ranks)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
