"""How long the agent takes for a batch, asked over its socket.

    python bench/agent_batches.py

A process of the agent with the shipped policy is asked about 64 jobs at a time. docs/results/speed.md has figures.
"""

import multiprocessing
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
import torch

from daemon_decisions import BaselineAgent, seconds_of
from rlalloc_agent.policy_server import PolicyServer
from rlalloc_agent.served_policy import ServedPolicy
from rlallocd.agent_client import AgentClient

BATCH: Final = 64
TIMES: Final = 5_000


def main() -> None:
    """Print how long an answer to BATCH jobs takes, and the processor time of the agent for it."""
    baseline = BaselineAgent()
    seconds_of(400, BATCH, 1, seed=0, agent=baseline)
    with tempfile.TemporaryDirectory() as folder:
        endpoint, (ours, its) = f"ipc://{folder}/agent.sock", multiprocessing.Pipe()
        agent = multiprocessing.get_context("spawn").Process(target=serve, args=(endpoint, folder, its))
        agent.start()
        ours.recv()
        client = AgentClient(endpoint, deadline_s=60.0)
        took_s: list[float] = []
        client.took = lambda seconds, _answered: took_s.append(seconds)
        for _ in range(TIMES):
            client.decide(baseline.questions, sample=True)
        client.close()
        ours.send("stop")
        its_s = ours.recv()
        agent.join()
    median_ms, p99_ms = 1e3 * np.quantile(took_s, (0.5, 0.99))
    print(f"{len(baseline.questions)} jobs a batch, {TIMES:,} times: median {median_ms:.2f} ms, p99 {p99_ms:.2f} ms;")
    print(f"processor time of the agent {1e3 * its_s / TIMES:.2f} ms a batch")


def serve(endpoint: str, folder: str, pipe: "Connection[float | str, str]") -> None:
    """Be the agent, on one thread as its unit has it; send its processor time [s] at the end."""
    torch.set_num_threads(1)
    counters = Counter[str]()
    with PolicyServer(endpoint, ServedPolicy(Path(folder) / "policies", counters), counters) as server:
        began_s = time.process_time()
        pipe.send("ready")
        server.serve(pipe.poll)
        pipe.send(time.process_time() - began_s)


if __name__ == "__main__":
    main()
