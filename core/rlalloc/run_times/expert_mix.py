"""Mixes the model's median with simple answers, by how well each did lately for the user and for jobs alike.

Exponential weights with a discount (Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, chapter 2): what
a group's jobs do changes faster than a model is learned anew.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.run_times.recent_runs import FEATURES, Key

_SIMPLE: Final = (
    "limit",
    "user_last",
    "user_median_of_5",
    "user_mean",
    "user_size_median_of_5",
    "user_limit_median_of_5",
    "user_name_median_of_5",
    "user_script_median_of_5",
    "user_limit_size_last",
    "user_limit_size_one_before",
    "user_limit_size_median_of_5",
    "user_limit_size_mean",
    "user_limit_size_shortest",
    "user_limit_size_longest",
)
_COLUMNS: Final = [FEATURES.index(name) for name in _SIMPLE]
_LIMIT, _USE = FEATURES.index("limit"), FEATURES.index("user_use_median_of_5")
_TOWARDS: Final = (0.5, 1.0)
"""The model's median, moved so far towards its lower and its upper quantile."""
ANSWERS: Final = (
    "median",
    *(f"{side}_{part}" for part in _TOWARDS for side in ("low", "high")),
    *_SIMPLE,
    "limit_times_use",
)
"""What is mixed, in the order of ``answers_of``."""
_ANSWERS: Final = len(ANSWERS)
_RATE: Final = 0.2
_KEPT: Final = 0.5**0.1
"""Of an answer's loss after another job of the group has ended: half after ten."""
_HANDICAP: Final = 10.0
"""Log2 of seconds that all answers but the model's seem to have been off by, before anything is known of them."""
_ENOUGH_JOBS: Final = 5.0
"""With so many ended jobs of its groups, a job's median goes half of the way from the model's to the mix."""
MOST_GROUPS: Final = 20_000
Groups = tuple[Key, Key]
"""A job's user, and those alike in user, limit and size."""


class ExpertMix:
    """What each answer was off by lately, by group. Memory is bounded: MOST_GROUPS that changed last are kept."""

    def __init__(self) -> None:
        self._losses: dict[Key, NDArray[np.float64]] = {}  # what each answer was off by; last, the number of jobs
        self._handicap = np.full(_ANSWERS, _HANDICAP)
        self._handicap[0] = 0.0

    def shift(self, groups: Sequence[Groups], answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much the mix of each job's ``answers`` differs from the model's median, log2 of seconds."""
        known = np.zeros((len(groups), _ANSWERS + 1))
        for row, keys in enumerate(groups):
            for key in keys:
                if (of_group := self._losses.get(key)) is not None:
                    known[row] += of_group
        losses, jobs = self._handicap + known[:, :-1], known[:, -1]
        weights = np.exp(-_RATE * (losses - losses.min(axis=1, keepdims=True)))
        shift = (weights * answers).sum(axis=1) / weights.sum(axis=1) - answers[:, 0]
        return np.asarray(shift * jobs / (jobs + _ENOUGH_JOBS))

    def learn(self, groups: Groups, answers: NDArray[np.float64], log_run: float) -> None:
        """Note that a job ended to which those answers were given; ``log_run`` is log2 of its seconds."""
        loss = np.append(np.abs(answers - log_run), 1.0)
        for key in groups:
            known = self._losses.pop(key, None)
            self._losses[key] = loss if known is None else known * _KEPT + loss
            if len(self._losses) > MOST_GROUPS:
                del self._losses[next(iter(self._losses))]

    def table(self) -> tuple[list[Key], NDArray[np.float64]]:
        """All groups, the most recently changed one last, and what is known of each, one row per group."""
        return list(self._losses), np.array(list(self._losses.values()), np.float64).reshape(-1, _ANSWERS + 1)

    @classmethod
    def of(cls, groups: Sequence[Key], rows: NDArray[np.float64]) -> "ExpertMix":
        """Return the mix that such a table describes."""
        mix = cls()
        mix._losses = {key: row.copy() for key, row in zip(groups, rows, strict=True)}
        return mix


def answers_of(features: NDArray[np.float32], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what is mixed: log2 of seconds, a row a job, the model's median first; it stands in for what is unknown.

    ``features`` are FEATURES, ``raw`` the model's quantiles.
    """
    median = raw[:, 1:2]
    moved = [median + part * (raw[:, side : side + 1] - median) for part in _TOWARDS for side in (0, 2)]
    simple = [features[:, _COLUMNS], features[:, [_LIMIT]] + features[:, [_USE]]]
    answers = np.concatenate([median, *moved, *simple], axis=1).astype(np.float64)
    return np.where(np.isnan(answers), median, answers)
