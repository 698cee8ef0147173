"""How much a decision changes each term of the objective: the source of advantage_scale.TYPICAL_ADVANTAGES.

Takes decisions of training workloads again and cuts the advantages as training does. Prints each term's root mean
square beside the one that training uses, and, for jobs that the baseline heuristic gives its largest sizes, the mean
advantage of smaller ones: what there is to trade.
"""

import itertools

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rlalloc.heuristics import BASELINE, BASELINE_NAME
from rlalloc.objective import TERM_NAMES
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_simulator.training_workloads import TRAINING, training_workload
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_ADVANTAGES, cut
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings, counterfactual_advantages

JOBS = 100
LARGE = 0.7
"""GPU shares of the baseline heuristic from which on there is something to give."""
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_HEURISTIC = DEFAULT_INPUTS.index(f"{BASELINE_NAME}:gpu_share")


def print_typical(workloads: int) -> None:
    """Simulate so many workloads, and print both tables."""
    advantages = [advantages_of(TRAINING + number) for number in range(workloads)]
    observation, shares, advantage = (
        np.concatenate([getattr(each, name) for each in advantages]) for name in Advantages.__struct_fields__
    )
    console = Console(width=118)
    console.print(sizes(cut(advantage.astype(np.float64))))
    large = observation[:, _HEURISTIC] >= LARGE
    console.print(by_share(shares[large, 0], cut(advantage[large].astype(np.float64))))


def advantages_of(number: int) -> Advantages:
    """Return counterfactual advantages in the workload of that number."""
    generator = np.random.default_rng((number, 3))
    return counterfactual_advantages(training_workload(number, JOBS), BASELINE, AdvantageSettings(), generator)


def sizes(advantage: NDArray[np.float64]) -> Table:
    """Root mean squares of cut advantages (rows, terms)."""
    table = Table(title=f"Typical advantages, {len(advantage):,} decisions")
    for column in ("term", "root mean square", "in training"):
        table.add_column(column, justify="left" if column == "term" else "right")
    for name, size in zip(TERM_NAMES, np.sqrt((advantage**2).mean(axis=0)).tolist(), strict=True):
        table.add_row(name, f"{size:.3f}", f"{TYPICAL_ADVANTAGES[name]:g}")
    return table


def by_share(share: NDArray[np.float32], advantage: NDArray[np.float64]) -> Table:
    """Mean advantages (rows, terms), with their standard errors, by the GPU share (rows,) that was tried."""
    table = Table(title=f"Mean advantage by the share tried, where the heuristic's GPU share is at least {LARGE}")
    table.add_column("term")
    for low, high in itertools.pairwise(EDGES):
        table.add_column(f"{low:g} to {high:g}", justify="right")
    bins = np.clip(np.digitize(share, EDGES) - 1, 0, len(EDGES) - 2)
    for name in ("jct", "gpu_held", "gpu_waste", "energy"):
        column = advantage[:, TERM_NAMES.index(name)]
        parts = [column[bins == place] for place in range(len(EDGES) - 1)]
        table.add_row(name, *(_mean_of(part) for part in parts))
    return table


def _mean_of(part: NDArray[np.float64]) -> str:
    return f"{part.mean():+.3f} ± {part.std() / np.sqrt(len(part)):.3f}" if len(part) else "-"
