"""Stands in for ``vllm serve``, which cannot be installed here: checks its arguments against the GPUs of the job."""

import argparse
import os
import sys


def main() -> int:
    """Print the layout; returns 1 if it does not use exactly the GPUs that there are."""
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    for name in ("tensor", "pipeline", "data"):
        parser.add_argument(f"--{name}-parallel-size", type=int, required=True)
    options = parser.parse_args()
    ranks = options.tensor_parallel_size * options.pipeline_parallel_size * options.data_parallel_size
    gpus = len([device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device])
    if ranks != gpus:
        print(f"vllm: {ranks} ranks on {gpus} GPUs", file=sys.stderr)
        return 1
    print(
        f"serving {options.model}: DP {options.data_parallel_size} TP {options.tensor_parallel_size} "
        f"PP {options.pipeline_parallel_size} on {gpus} GPUs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
