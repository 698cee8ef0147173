"""Decisions a second of the daemon without its agent.

    python bench/daemon_decisions.py

New jobs are decided in one cycle beside a queue of others, by an agent that answers the baseline heuristic at once:
views, what is known of jobs, encoding, checks of limits. In the last row the new jobs differ only in their users and
GPUs. Process time, the best of three, each with jobs of its own.
docs/results/speed.md has figures.
"""

import time
from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from rlalloc.config import parse_config
from rlalloc.devices import Device, NodeDevices
from rlalloc.heuristics import BASELINE_NAME
from rlalloc.messages import Decided, PolicyAnswer
from rlalloc.observation import EncodedQuestion
from rlalloc.run_time import RunTimeEstimate
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.knowledge.known_run_times import KnownRunTime, KnownRunTimes
from rlallocd.process.garbage_collection import collect_rarely
from rlallocd.slurm import JobRecord, NodeRecord, PartitionRecord, SiteLimits
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag

CONFIG: Final = parse_config(
    "mode: enforce\nrules: [{name: llm, mode: enforce}]\nnodes: {task_prolog: trusted}", "bench"
)
NOW_S: Final = 1_000_000
RUNNING: Final = 300
NODES: Final = 64
ANY: Final = 1940
"""Each job has a time limit of its own: no two are alike."""
CASES: Final = (
    (400, 64, 1, ANY),
    (10_000, 64, 1, ANY),
    (10_000, 64, 32, ANY),
    (10_000, 1000, 1, ANY),
    (10_000, 1000, 1, 1),
)
"""Jobs in the queue and running, new jobs, different constraints among the new ones, and different time limits."""


def tag_text(begin_s: int) -> str:
    """The tag of a job that is deferred until ``begin_s``, with what rlalloc.lua reads of its script."""
    return (
        f"rlalloc:v=1;mode=enforce;rule=llm;class=train;begin={begin_s};user_begin=0;ask=gpus=1-8"
        f";table={CONFIG.word_table.stamp};script=12345"
        ";words=torchrun+nproc-per-node=$SLURM_GPUS_ON_NODE+per-device-train-batch-size=8"
    )


class BaselineAgent:
    """Answers what the baseline heuristic does, without a message, and keeps the questions."""

    questions: Sequence[EncodedQuestion] = ()

    def decide(self, questions: Sequence[EncodedQuestion], *, sample: bool) -> Decided:
        """Answer all of them; ``sample`` makes no difference."""
        del sample
        self.questions = questions
        answers = [PolicyAnswer(shares=each.alternatives[BASELINE_NAME], log_probability=0.0) for each in questions]
        return Decided(request_id="bench", policy_version="bench", answers=tuple(answers))


def main() -> None:
    """Print a table."""
    collect_rarely()
    print(f"{'jobs':>8} {'new':>6} {'constraints':>12} {'limits':>7} {'a second':>9}")
    for queued, new, constraints, limits in CASES:
        best_s = min(seconds_of(queued, new, constraints, seed, limits) for seed in range(3))
        print(f"{queued:>8,} {new:>6,} {constraints:>12} {limits:>7,} {new / best_s:>9,.0f}", flush=True)


def seconds_of(
    queued: int, new: int, constraints: int, seed: int, limits: int = ANY, agent: BaselineAgent | None = None
) -> float:
    """Process time [s] of deciding the new jobs once."""
    random = np.random.default_rng(seed)
    others = [job(number, random, "") for number in range(queued)]
    ours = [job(100_000 + number, random, f"f{number % constraints}", limits) for number in range(new)]
    estimates = {
        each.job_id: KnownRunTime(
            RunTimeEstimate(0.2 * each.time_limit_s, 0.4 * each.time_limit_s, 0.9 * each.time_limit_s, "bench")
        )
        for each in (*others, *ours)
    }
    snapshot = Snapshot(
        taken_s=float(NOW_S),
        jobs=(*others, *ours),
        nodes=tuple(node(number, random, constraints) for number in range(NODES)),
        partitions={"gpu": PartitionRecord(name="gpu", max_time_s=None, max_nodes=None)},
        limits=SiteLimits(enforced=False),
        run_times=KnownRunTimes(estimates),
    )
    tag = read_tag(tag_text(NOW_S + 50))
    if tag is None:
        raise SystemExit("the bench's own tag cannot be read")
    candidates = [Candidate(each, tag, "enforce") for each in ours]
    began_s = time.process_time()
    decide(candidates, snapshot, CONFIG, cast(AgentClient, agent or BaselineAgent()))
    return time.process_time() - began_s


def job(number: int, random: np.random.Generator, features: str, limits: int = ANY) -> JobRecord:
    """One job of one node: the first RUNNING run, others wait; one with features has just come."""
    gpus = int(random.choice((1, 2, 4, 8)))
    limit_s = 60 * int(random.integers(60, 60 + limits))
    running, is_new = not features and number < RUNNING, bool(features)
    return JobRecord(
        job_id=number + 1,
        name="a",
        user=f"u{number % 20}",
        account="llm",
        partition="gpu",
        state="RUNNING" if running else "PENDING",
        reason="None" if running else "BeginTime" if is_new else "Priority",
        submitted_s=NOW_S - 10,
        begin_s=NOW_S + 50 if is_new else NOW_S - 5000,
        started_s=NOW_S - 4000 if running else 0,
        time_limit_s=limit_s,
        priority=1_000_000 - number,
        admin_comment="",
        nodes=1,
        tasks=1,
        cpus=8 * gpus,
        gpus=gpus,
        mem_mib=64_000.0 * gpus,
        gpu_type="a100",
        is_batch=True,
        is_array=False,
        is_heterogeneous=False,
        is_exclusive=False,
        has_deadline=False,
        nodes_certain=True,
        required_nodes="",
        features=features,
    )


def node(number: int, random: np.random.Generator, constraints: int) -> NodeRecord:
    """One node of eight GPUs, partly used, which meets every constraint but one."""
    features = frozenset(
        f"f{each}" for each in range(constraints) if constraints == 1 or each != number % constraints
    )
    return NodeRecord(
        name=f"n{number}",
        partitions=("gpu",),
        usable=True,
        cpus=64,
        cpus_used=int(random.integers(0, 64)),
        mem_mib=512_000,
        mem_mib_used=int(random.integers(0, 400_000)),
        devices=(NodeDevices(Device("gpu", "a100"), 8, int(random.integers(0, 9))),),
        features=features,
    )


if __name__ == "__main__":
    main()
