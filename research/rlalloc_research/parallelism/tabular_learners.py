"""Q-learning (Watkins 1989) and SARSA (Rummery and Niranjan 1994) with a table over binned situations."""

from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_research.parallelism.oracle import DISCOUNT
from rlalloc_research.parallelism.parallelism_environment import DECISIONS, begin, first_situations
from rlalloc_research.parallelism.performance_model import FloatArray
from rlalloc_research.parallelism.plans import PLANS

Method = Literal["q-learning", "sarsa"]
BINS: Final = (4, 4, 4, 6)
"""For CPUs, host memory and links in use, and the model's size: 384 rows of 12 plans."""
_MIDDLING: Final = 0.6 / (1.0 - DISCOUNT)


class TableSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The textbook's parameters (Sutton and Barto 2018, chapter 6).

    power    a value takes up part 1/n^power of its nth error: between 0.5 and 1 it converges (Even-Dar, Mansour 2003)
    explore  part of the decisions that are random (epsilon-greedy)
    walkers  episodes that run at once and learn the same table
    """

    episodes: int = 30_000
    power: float = 0.8
    explore: float = 0.4
    walkers: int = 100


class Table:
    """Action values, a row for each bin of situations and a column for each plan."""

    def __init__(self) -> None:
        self.values = np.full((np.prod(BINS), len(PLANS)), _MIDDLING)

    def choose(self, situations: FloatArray) -> NDArray[np.int64]:
        """Return the number of the plan that is worth most, for each of ``situations`` (n, 4)."""
        best: NDArray[np.int64] = self.values[rows_of(situations)].argmax(axis=-1)
        return best


def rows_of(situations: FloatArray) -> NDArray[np.int64]:
    """Return the row of the table (n,) for each of ``situations`` (n, 4)."""
    bins = np.minimum((situations * np.array(BINS)).astype(np.int64), np.array(BINS) - 1)
    rows: NDArray[np.int64] = np.ravel_multi_index(tuple(bins.T), BINS)
    return rows


def learn_table(method: Method, settings: TableSettings, seed: int) -> Table:
    """Learn a table. The same seed gives the same table.

    Q-learning expects the best next decision, SARSA the one that is taken next, at random or not. The end of an
    episode is not part of the process (the next job would come), so it is bootstrapped like any other step.
    """
    generator = np.random.default_rng(seed)
    table, walkers = Table(), np.arange(settings.walkers)
    met = np.zeros_like(table.values)

    def explored(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        random = generator.random(settings.walkers) < settings.explore
        return np.where(
            random, generator.integers(len(PLANS), size=settings.walkers), table.values[rows].argmax(axis=-1)
        )

    for _ in range(settings.episodes // settings.walkers):
        situations = first_situations(settings.walkers, generator)
        rows = rows_of(situations)
        plans = explored(rows)
        for _ in range(DECISIONS):
            step = begin(situations, plans, generator)
            next_rows = rows_of(step.following)
            next_plans = explored(next_rows)
            following = table.values[next_rows]
            expected = following.max(axis=-1) if method == "q-learning" else following[walkers, next_plans]
            errors = step.reward + DISCOUNT * expected - table.values[rows, plans]
            np.add.at(met, (rows, plans), 1.0)
            np.add.at(table.values, (rows, plans), errors / met[rows, plans] ** settings.power)
            situations, rows, plans = step.following, next_rows, next_plans
    return table
