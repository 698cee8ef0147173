"""Policies side by side on the same streams, with paired bootstrap intervals."""

import ctypes
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Final, Protocol, TypeVar

import msgspec
import numpy as np
import torch

from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import policy_named
from rlalloc.job import JobView, Shares
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.observation import encode
from rlalloc.policies import EVERYWHERE, Routing
from rlalloc.view import ClusterView
from rlalloc_agent.actor import Actor, actor_bytes, actor_from_bytes
from rlalloc_agent.policy_routing import RoutedPolicy
from rlalloc_trainer.intervals import Interval, ratio_of
from rlalloc_trainer.simulator.driving import drive
from rlalloc_trainer.simulator.engine import SimulatedSite, Simulator, table_of
from rlalloc_trainer.simulator.engine.records import OUT_OF_MEMORY, TIMEOUT
from rlalloc_trainer.simulator.from_stream import Stream

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class Map(Protocol):
    """As the built-in ``map``: the answers to tasks, in order, as they come."""

    def __call__(self, function: Callable[[Task], Answer], tasks: Sequence[Task], /) -> Iterator[Answer]:
        """Apply ``function`` to each of ``tasks``."""
        ...


class StreamResult(msgspec.Struct, frozen=True):
    """One policy on one stream: means over its jobs in seconds, GPU-seconds of all runs, and jobs that were killed.

    The wait is until the first start, of jobs that started. Killed are those whose first run hit its time limit or
    ran out of memory, also where their users had asked for too little.
    """

    jct_s: float
    wait_s: float
    gpu_s: float
    killed: int


class ActorWeights(msgspec.Struct, frozen=True):
    """An actor as plain bytes, to be sent to other processes, and the objective of the site that it decides for."""

    content: bytes
    hidden: tuple[int, ...]
    routing: Routing = EVERYWHERE
    objective: Weights = DEFAULT_WEIGHTS

    @classmethod
    def of(cls, actor: Actor, routing: Routing = EVERYWHERE, objective: Weights = DEFAULT_WEIGHTS) -> "ActorWeights":
        """Take an actor's parameters as they are now; the base heuristic answers where ``routing`` does not."""
        return cls(actor_bytes(actor), actor.hidden, routing, objective)


Contender = str | ActorWeights
"""A reference policy's name (``rlalloc.heuristics.named``), or an actor that takes its mean."""


def policy_of(contender: Contender) -> Heuristic:
    """Return the policy that a contender stands for."""
    if isinstance(contender, str):
        return policy_named(contender)
    policy = RoutedPolicy(actor_from_bytes(contender.content, contender.hidden), contender.routing)

    def decide(job: JobView, view: ClusterView) -> Shares:
        shares, _ = policy.decide(encode(job, view, contender.objective)[None, :], sample=False)
        return Shares(*shares[0].tolist())

    return decide


def run_stream(task: tuple[Contender, Stream]) -> StreamResult:
    """Run one policy on one stream."""
    contender, stream = task
    simulator = Simulator(stream.site, table_of(stream.jobs, stream.site))
    outcomes = drive(simulator, stream.jobs, policy_of(_who_answers(contender, stream.site))).outcomes
    return StreamResult(
        jct_s=float(np.mean(outcomes["finished_s"] - outcomes["submit_s"])),
        wait_s=float(np.nanmean(outcomes["first_start_s"] - outcomes["submit_s"])),
        gpu_s=float(outcomes["held_gpu_s"].sum()),
        killed=int(np.isin(outcomes["first_state"], (TIMEOUT, OUT_OF_MEMORY)).sum()),
    )


def _who_answers(contender: Contender, site: SimulatedSite) -> Contender:
    """Return the heuristic itself where an actor is never asked on a site: it need not be told of each job then."""
    if isinstance(contender, str) or contender.objective != DEFAULT_WEIGHTS:
        return contender
    urgency_counts = site.interception.urgency.nice_band > 0
    return contender if contender.routing.ever(urgency_counts=urgency_counts) else contender.routing.heuristic


def evaluate(
    contenders: Mapping[str, Contender], streams: Sequence[Stream], spread: Map
) -> dict[str, list[StreamResult]]:
    """Run every contender on every stream; results by name, in the streams' order."""
    tasks = [(contender, stream) for contender in contenders.values() for stream in streams]
    results = list(spread(run_stream, tasks))
    return {name: results[row * len(streams) : (row + 1) * len(streams)] for row, name in enumerate(contenders)}


def jct_ratio(
    results: Sequence[StreamResult], against: Sequence[StreamResult], confidence: float, seed: int = 0
) -> Interval:
    """Geometric mean over streams of mean JCT over that of another policy on the same stream; below 1 is better.

    The interval resamples streams (percentile bootstrap of the paired log-ratios).
    """
    log_ratios = np.array([math.log(one.jct_s / other.jct_s) for one, other in zip(results, against, strict=True)])
    return ratio_of([log_ratios], confidence, seed)


@contextmanager
def processes(count: int) -> Iterator[Map]:
    """Give a map over ``count`` processes, or the plain one for a single process. Results come in order."""
    if count <= 1:
        yield map
        return
    # spawn: a fork of a process that runs torch's threads may hang.
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_prepare_worker)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Use one thread, and end with the parent: a killed trainer would leave its workers waiting for ever."""
    torch.set_num_threads(1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    parent = parent_process()
    if parent is not None and parent.pid != os.getppid():
        raise SystemExit("the trainer died before its worker had started")  # no signal comes of that any more
