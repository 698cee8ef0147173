"""Stands in for ``vllm serve``: answers made-up requests for a fixed time on the GPUs that it was given, then ends.

A real server runs until its job's time is over; here its users are done after ``--serve-hours`` (20 seconds each).
"""

import argparse
import os
import sys
import time


def main() -> int:
    """Serve; returns the exit status."""
    parser = argparse.ArgumentParser(prog="vllm", description="Stands in for vllm.")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--serve-hours", type=float, default=1.0)
    options = parser.parse_args()
    gpus = len([device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device])
    if options.tensor_parallel_size > gpus:
        print(f"vllm: tensor parallel size {options.tensor_parallel_size} on {gpus} GPUs", file=sys.stderr)
        return 1
    print(f"serving {options.model} on {gpus} GPUs", flush=True)
    time.sleep(options.serve_hours * float(os.environ.get("STANDIN_HOUR_S", "20")))
    print("served", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
