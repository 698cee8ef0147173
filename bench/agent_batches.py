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
from rlallocd.decisions.agent_client import AgentClient

BATCH: Final = 64
TIMES: Final = 5_000
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)


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
        used_s = ours.recv()
        agent.join()
    print(f"{len(baseline.questions)} jobs a batch, {TIMES:,} times, in ms: median, 90%, 99%, 99.9%")
    for name, times_s in (("as the client sees it", took_s), ("processor time of the agent", used_s)):
        print(f"{name:>30}", *(f"{1e3 * each:6.2f}" for each in np.quantile(times_s, QUANTILES)))


def serve(endpoint: str, folder: str, pipe: "Connection[list[float] | str, str]") -> None:
    """Be the agent, on one thread as its unit has it; send the processor time of each answer [s] at the end."""
    torch.set_num_threads(1)
    counters = Counter[str]()
    at_s: list[float] = []

    def stop() -> bool:
        """Asked before each request."""
        at_s.append(time.process_time())
        return pipe.poll()

    with PolicyServer(endpoint, ServedPolicy(Path(folder) / "policies", counters), counters) as server:
        pipe.send("ready")
        server.serve(stop)
    pipe.send(np.diff(at_s).tolist())


if __name__ == "__main__":
    main()
