"""Decisions a second in the simulator on one core, by policy; the network's in batches of several simulators.

    python bench/decision_speed.py [--quick]

Runs training workloads of about 400 jobs each (``rlalloc_simulator.training_workloads``) on clusters of several
shapes; every job is decided when it comes. The time covers all of a decision: the simulator runs to the next
question, makes the view of the cluster, the policy answers, the answer becomes a size and is applied. It is the
process's time, the best of three. docs/results/speed.md has figures.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch

from rlalloc.heuristics.named import policy_named
from rlalloc_agent.actor import Actor
from rlalloc_agent.served_policy import load_shipped
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.engine.batched_simulators import BatchedSimulators, stacked
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.training_workloads import training_workload

POLICIES: Final = ("as-requested", "price-ef", "price-ef+smallest-area-first", "efficiency-adaptive")
BATCHES: Final = (1, 8, 32)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Decisions a second in the simulator on one core.")
    parser.add_argument("--quick", action="store_true", help="one workload for each policy")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    workloads = [training_workload(seed, 400) for seed in range(1 if quick else max(BATCHES))]
    few = workloads[:8]
    print(f"{'policy':<34} {'decisions':>9} {'a second':>9} {'us each':>8}")
    for name in POLICIES:
        show(name, partial(driven, few, name))
    actor, _ = load_shipped()
    for batch in BATCHES[: 1 if quick else None]:
        show(f"shipped network, batches of {batch}", partial(answered, workloads[:batch], actor))


def driven(workloads: Sequence[Workload], name: str) -> int:
    """Run all workloads under a policy and return how many decisions it took."""
    policy = policy_named(name)
    return sum(drive(Simulator(site, table_of(jobs, site)), jobs, policy).decided for site, jobs in workloads)


def answered(workloads: Sequence[Workload], actor: Actor) -> int:
    """Run all workloads together under the network and return how many decisions it took."""
    together, decisions = BatchedSimulators(workloads), 0
    for questions in together.questions():
        shares, _ = actor.decide(actor.inputs.rows(stacked(questions)), sample=False)
        together.answer(questions, shares)
        decisions += len(questions)
    return decisions


def show(name: str, run: Callable[[], int]) -> None:
    """Print one line: the best of three, after one that compiles."""
    run()
    best_s = float("inf")
    for _ in range(3):
        start = time.process_time()
        decisions = run()
        best_s = min(best_s, time.process_time() - start)
    each_us = 1e6 * best_s / decisions
    print(f"{name:<34} {decisions:>9,} {1e6 / each_us:>9,.0f} {each_us:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
