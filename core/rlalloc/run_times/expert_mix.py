"""Mixes the model's median with simple answers, by how well each did lately for the user and for jobs alike.

Exponential weights with a discount (Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, chapter 2): what
a group's jobs do changes faster than a model is learned anew. How well an answer did for all jobs of the site counts
a little, too: how good a model is differs by site, and how good a last run is by how long ago it ended.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.run_times.bursts import Bursts
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
COLUMNS: Final = (*ANSWERS, "situation")
"""What ``answers_of`` returns: the answers, and the job's situation, which is how long ago a similar job ended."""
_ALIKE_AGE: Final = FEATURES.index("user_limit_size_age")
_USER_AGE: Final = FEATURES.index("user_age")
_AGES: Final = 4.0
"""Log2 of seconds: the width of an age group, a factor of 16."""
_ONLY_USER_KNOWN: Final = -1.0
_NOTHING_KNOWN: Final = -2.0
_RATE: Final = 0.2
_KEPT: Final = 0.5**0.1
"""Of an answer's loss after another job of the group has ended: half after ten. A job of a burst counts less."""
_SITE: Final[Key] = ()
_SITE_KEPT: Final = 0.5**0.001
_SITE_WEIGHT: Final = 0.02
_SITUATION_KEPT: Final = 0.5 ** (1 / 300)
_SITUATION_WEIGHT: Final = 0.05
"""For an answer's loss over all jobs of the site, and over those in the same situation: how much of it is kept after
another job, and its weight beside the losses of the job's groups."""
_HANDICAP: Final = 5.0
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
        self.bursts = Bursts()
        self._handicap = np.full(_ANSWERS, _HANDICAP)
        self._handicap[0] = 0.0

    def shift(self, groups: Sequence[Groups], answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much the mix of each job's answers differs from the model's median, log2 of seconds.

        ``answers`` has COLUMNS, a row a job.
        """
        known = np.zeros((len(groups), _ANSWERS + 1))
        of_site = np.zeros_like(known)
        for row, (keys, situation) in enumerate(zip(groups, answers[:, -1].tolist(), strict=True)):
            for key in keys:
                if (of_group := self._losses.get(key)) is not None:
                    known[row] += of_group
            for key, weight in ((_SITE, _SITE_WEIGHT), (_situation(situation), _SITUATION_WEIGHT)):
                if (of_group := self._losses.get(key)) is not None:
                    of_site[row] += weight * of_group
        losses, jobs = self._handicap + known[:, :-1] + of_site[:, :-1], known[:, -1]
        weights = np.exp(-_RATE * (losses - losses.min(axis=1, keepdims=True)))
        shift = (weights * answers[:, :-1]).sum(axis=1) / weights.sum(axis=1) - answers[:, 0]
        return np.asarray(shift * jobs / (jobs + _ENOUGH_JOBS))

    def learn(self, groups: Groups, answers: NDArray[np.float64], submitted_s: float, log_run: float) -> None:
        """Note that a job ended to which those answers were given; ``log_run`` is log2 of its seconds."""
        weight = self.bursts.weight(groups[1], submitted_s)
        loss = np.append(np.abs(answers[:-1] - log_run), 1.0)
        kept = dict.fromkeys(groups, (_KEPT**weight, weight * loss))
        kept |= {_SITE: (_SITE_KEPT, loss), _situation(float(answers[-1])): (_SITUATION_KEPT, loss)}
        for key, (part, added) in kept.items():
            known = self._losses.pop(key, None)
            self._losses[key] = added if known is None else known * part + added
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

    The last of the COLUMNS is the job's situation. ``features`` are FEATURES, ``raw`` the model's quantiles.
    """
    median = raw[:, 1:2]
    moved = [median + part * (raw[:, side : side + 1] - median) for part in _TOWARDS for side in (0, 2)]
    simple = [features[:, _COLUMNS], features[:, [_LIMIT]] + features[:, [_USE]]]
    answers = np.concatenate([median, *moved, *simple], axis=1).astype(np.float64)
    without_alike = np.where(np.isnan(features[:, _USER_AGE]), _NOTHING_KNOWN, _ONLY_USER_KNOWN)
    age = features[:, _ALIKE_AGE]
    situation = np.where(np.isnan(age), without_alike, age // _AGES)
    return np.column_stack([np.where(np.isnan(answers), median, answers), situation])


def _situation(number: float) -> Key:
    return "situation", number
