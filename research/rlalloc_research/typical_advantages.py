"""What a decision changes by each term of the objective: where gain_scale.TYPICAL_GAINS comes from.

Decisions of training workloads are taken again as for training, and gains cut as there. Printed are each term's root
mean square beside the one that training uses, and, for jobs that the base heuristic gives its largest sizes, what
smaller ones gain on average: what there is to trade.
"""

import argparse
import itertools

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rlalloc.heuristics import BASELINE
from rlalloc.objective import TERM_NAMES
from rlalloc.observation import FEATURES
from rlalloc_simulator.training_workloads import TRAINING, training_workload
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_GAINS, cut
from rlalloc_trainer.advantages.counterfactual import Labels, LabelSettings, label

JOBS = 100
LARGE = 0.7
"""GPU shares of the base heuristic from which on there is something to give."""
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_HEURISTIC = FEATURES.index("heuristic_gpu_share")


def main() -> None:
    """Make labels and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=60)
    labels = [labels_of(TRAINING + number) for number in range(parser.parse_args().workloads)]
    observation, shares, gain = (
        np.concatenate([getattr(each, name) for each in labels]) for name in Labels.__struct_fields__
    )
    console = Console(width=118)
    console.print(sizes(cut(gain.astype(np.float64))))
    large = observation[:, _HEURISTIC] >= LARGE
    console.print(by_share(shares[large, 0], cut(gain[large].astype(np.float64))))


def labels_of(number: int) -> Labels:
    """Take decisions of the workload of that number again."""
    return label(training_workload(number, JOBS), BASELINE, LabelSettings(), np.random.default_rng((number, 3)))


def sizes(gain: NDArray[np.float64]) -> Table:
    """Root mean squares of cut gains (rows, terms)."""
    table = Table(title=f"Typical gains, {len(gain):,} labels")
    for column in ("term", "root mean square", "in training"):
        table.add_column(column, justify="left" if column == "term" else "right")
    for name, size in zip(TERM_NAMES, np.sqrt((gain**2).mean(axis=0)).tolist(), strict=True):
        table.add_row(name, f"{size:.3f}", f"{TYPICAL_GAINS[name]:g}")
    return table


def by_share(share: NDArray[np.float32], gain: NDArray[np.float64]) -> Table:
    """Mean gains (rows, terms), with their standard errors, by the GPU share (rows,) that was tried."""
    table = Table(title=f"Mean gain where the heuristic's GPU share is at least {LARGE}, by the share that was tried")
    table.add_column("term")
    for low, high in itertools.pairwise(EDGES):
        table.add_column(f"{low:g} to {high:g}", justify="right")
    bins = np.clip(np.digitize(share, EDGES) - 1, 0, len(EDGES) - 2)
    for name in ("jct", "gpu_held", "gpu_waste", "energy"):
        column = gain[:, TERM_NAMES.index(name)]
        parts = [column[bins == place] for place in range(len(EDGES) - 1)]
        table.add_row(name, *(f"{part.mean():+.3f} ± {part.std() / np.sqrt(len(part)):.3f}" for part in parts))
    return table


if __name__ == "__main__":
    main()
