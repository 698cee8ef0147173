"""Which numbers a network reads, by name: features, and what heuristics answer.

A policy's manifest lists its network's inputs, and they are gathered by name from every question. So a policy stays
servable when rlalloc gets further features or heuristics, and when their order changes. It is servable no more when
one of its inputs is gone.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import MissingInputsError, PolicyError
from rlalloc.heuristics import ALTERNATIVES, BASELINE_NAME, SERVED_HEURISTICS
from rlalloc.job import SHARES, Shares
from rlalloc.objective import TERM_NAMES
from rlalloc.observation import FEATURES, EncodedBatch, EncodedQuestion, FloatArray, answer_columns

DEFAULT_INPUTS: Final = (
    *FEATURES,
    *(f"{name}:{what}" for name in ALTERNATIVES for what in ("gpu_share", "urgency")),
    *answer_columns(BASELINE_NAME),
)
"""The inputs of a network that is trained from nothing."""


class PolicyInputs:
    """The inputs of one network. The last SHARES are the answer of the heuristic that it is a residual around.

    Raises PolicyError if they are not, or if a name stands there twice.
    """

    def __init__(self, names: Sequence[str] = DEFAULT_INPUTS) -> None:
        self.names = tuple(names)
        heuristic = self.names[-1].rpartition(":")[0] if self.names else ""
        if self.names[-SHARES:] != answer_columns(heuristic) or len(set(self.names)) < len(self.names):
            raise PolicyError(
                "the inputs of a policy are different names, the last of them the four shares of a heuristic: "
                f"not {self.names}"
            )
        weights = [f"weight_{term}" for term in TERM_NAMES]
        self.terms = np.array([place for place, name in enumerate(weights) if name in self.names], dtype=np.int64)
        """Terms of the objective whose weights the network reads (of TERM_NAMES), and where it does."""
        self.weights = np.array([self.names.index(weights[place]) for place in self.terms], dtype=np.int64)

    @property
    def heuristics(self) -> frozenset[str]:
        """Names of the heuristics whose answers the network reads."""
        return frozenset(name.rpartition(":")[0] for name in self.names if ":" in name)

    def __len__(self) -> int:
        return len(self.names)

    def missing(self) -> tuple[str, ...]:
        """Return the inputs that this version of rlalloc does not have any more."""
        there = {*FEATURES, *(name for heuristic in SERVED_HEURISTICS for name in answer_columns(heuristic))}
        return tuple(name for name in self.names if name not in there)

    def rows(self, batch: EncodedBatch) -> FloatArray:
        """Return what the network reads of a batch (jobs, inputs). Raises MissingInputsError if one is not there."""
        return rows_of(self.names, batch)

    def row(self, question: EncodedQuestion) -> FloatArray:
        """Return what the network reads of one question, (inputs,). Raises MissingInputsError."""
        row: FloatArray = self.rows(EncodedBatch.of([question]))[0]
        return row


def baseline_shares(row: FloatArray) -> Shares:
    """Return the answer of the heuristic that a network is a residual around, from what it reads (inputs,)."""
    return Shares(*row[-SHARES:].tolist())


def rows_of(inputs: tuple[str, ...], batch: EncodedBatch) -> FloatArray:
    """Return these inputs of a batch (jobs, inputs). Raises MissingInputsError if one is not there."""
    columns = columns_of(inputs, batch.feature_names, batch.heuristics)
    answers = batch.alternatives.reshape(len(batch.features), -1)
    return np.asarray(np.concatenate((batch.features, answers), axis=1)[:, columns], dtype=np.float32)


@lru_cache(maxsize=64)
def columns_of(
    inputs: tuple[str, ...], feature_names: tuple[str, ...], heuristics: tuple[str, ...] = ()
) -> NDArray[np.int64]:
    """Return where ``inputs`` stand among the features and, behind them, the heuristics' answers.

    Raises MissingInputsError if one stands nowhere.
    """
    there = (*feature_names, *(name for heuristic in heuristics for name in answer_columns(heuristic)))
    place = {name: number for number, name in enumerate(there)}
    missing = [name for name in inputs if name not in place]
    if missing:
        raise MissingInputsError(f"a question does not say {', '.join(missing)}")
    return np.array([place[name] for name in inputs], dtype=np.int64)
