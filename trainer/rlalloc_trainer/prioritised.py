"""Prioritised replay (Schaul et al. 2016), with demonstrations in a part of their own.

A transition is drawn in proportion to ``(abs(TD error) + epsilon)^alpha``, a batch from as many equal slices of the
cumulative priorities (stratified); a new one comes in with the largest priority so far, so that each is seen. What is
drawn more often than evenly counts for less: its importance weight is ``(N·P)^-beta``, beta going up to 1 while
learning settles, over the batch's largest, so that weights only make steps shorter.

Demonstrations are never overwritten, and a set share of each batch is theirs, however much is experienced (as in
Ape-X DQfD, Pohlen et al. 2018). Importance weights mend what priorities do inside each part; the share is wanted, and
is not mended. With it, DQfD's bonus on the priorities of demonstrations has nothing left to do, and is left out.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.replay import Replay, Rows, State, Transitions, joined
from rlalloc_trainer.sum_tree import Numbers, SumTree

Weights = NDArray[np.float32]


class PrioritySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How transitions are drawn.

    alpha            how much the TD error counts: 0 draws evenly, 1 in proportion (0.6: Schaul et al., table 3)
    beta             how far importance weights mend that, at the first batch (0.4: the same table)
    batches_to_one   batches until beta is 1, on a straight line
    epsilon          added to errors, in reward: what is predicted rightly is still seen now and then
    expert_share     of each batch, from the demonstrations (0.25: Pohlen et al. 2018)
    """

    alpha: float = 0.6
    beta: float = 0.4
    batches_to_one: int = 10_000
    epsilon: float = 1e-3
    expert_share: float = 0.25

    def __post_init__(self) -> None:
        if not (self.alpha >= 0.0 and 0.0 <= self.beta <= 1.0 and self.epsilon > 0.0 and self.batches_to_one >= 1):
            raise ValueError(f"{self}: alpha is 0 or more, beta 0 to 1, epsilon above 0, batches_to_one 1 or more")
        if not 0.0 <= self.expert_share <= 1.0:
            raise ValueError(f"expert_share is {self.expert_share}: a share is 0 to 1")


class Drawn(msgspec.Struct, frozen=True):
    """A batch.

    ``transitions`` · ``weights`` (rows,), what each counts in the critics' loss, at most 1 · ``rows`` (rows,), where
    new priorities go · ``expert`` (rows,), whether it was demonstrated.
    """

    transitions: Transitions
    weights: Weights
    rows: Rows
    expert: NDArray[np.bool_]


class PrioritisedReplay:
    """The latest ``capacity`` transitions, and all ``demonstrations``. Memory is taken once, at the start.

    Rows from ``capacity`` on are the demonstrations'.
    """

    def __init__(
        self,
        capacity: int,
        features: int,
        actions: int,
        settings: PrioritySettings,
        demonstrations: Transitions | None = None,
    ) -> None:
        self.settings = settings
        self._capacity = capacity
        self._own = _Part(capacity, features, actions)
        self._experts: _Part | None = None
        self._largest = 1.0
        self._batches = 0
        if demonstrations is not None and len(demonstrations):
            self._experts = _Part(len(demonstrations), features, actions)
            self._experts.add(demonstrations, self._largest)

    def __len__(self) -> int:
        return len(self._own.replay) + (len(self._experts.replay) if self._experts else 0)

    @property
    def beta(self) -> float:
        """The exponent of the next batch's importance weights."""
        passed = min(1.0, self._batches / self.settings.batches_to_one)
        return self.settings.beta + (1.0 - self.settings.beta) * passed

    @property
    def nbytes(self) -> int:
        """Memory that is held, in bytes."""
        return sum(part.replay.nbytes + part.tree.nbytes for part in self._parts())

    def add(self, transitions: Transitions) -> None:
        """Append what was experienced, with the largest priority so far; the oldest gives way."""
        self._own.add(transitions, self._largest)

    def sample(self, count: int, generator: np.random.Generator) -> Drawn:
        """Draw ``count`` transitions with replacement, the demonstrations' share last.

        Raises ValueError if there are none.
        """
        rows, weights = self.draw(count, generator)
        expert = rows >= self._capacity
        transitions = self._own.replay.take(rows[~expert])
        if self._experts:
            transitions = joined((transitions, self._experts.replay.take(rows[expert] - self._capacity)))
        return Drawn(transitions, weights, rows, expert)

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Rows, Weights]:
        """Draw ``count`` rows, the demonstrations' last, and their weights; both (count,)."""
        experts = self._experts_in(count)
        rows, weights = self._own.draw(count - experts, self.beta, generator)
        if self._experts and experts:
            expert_rows, expert_weights = self._experts.draw(experts, self.beta, generator)
            rows = np.concatenate((rows, expert_rows + self._capacity))
            weights = np.concatenate((weights, expert_weights))
        self._batches += 1
        return rows, (weights / weights.max()).astype(np.float32)

    def prioritise(self, rows: Rows, errors: NDArray[np.floating]) -> None:
        """Take up new TD errors (rows,), in reward, of the ``rows`` of a batch. Raises ValueError for NaN."""
        priorities = (np.abs(errors.astype(np.float64)) + self.settings.epsilon) ** self.settings.alpha
        expert = rows >= self._capacity
        self._own.tree.set(rows[~expert], priorities[~expert])
        if self._experts:
            self._experts.tree.set(rows[expert] - self._capacity, priorities[expert])
        self._largest = max(self._largest, float(priorities.max()))

    def state(self) -> State:
        """Return all that ``restore`` needs; partly views, to be written before anything is added."""
        arrays = {"largest": np.array(self._largest), "batches": np.array(self._batches)}
        for name, part in zip(("own", "experts"), self._parts(), strict=False):
            arrays |= {f"{name}/{key}": value for key, value in part.state().items()}
        return arrays

    def restore(self, state: State) -> None:
        """Take up what ``state`` gave, of a buffer of the same capacity, settings and demonstrations."""
        self._largest, self._batches = state["largest"].item(), state["batches"].item()
        for name, part in zip(("own", "experts"), self._parts(), strict=False):
            prefix = f"{name}/"
            part.restore({key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)})

    def _parts(self) -> tuple["_Part", ...]:
        return (self._own, self._experts) if self._experts else (self._own,)

    def _experts_in(self, count: int) -> int:
        """How many of a batch are demonstrations: their share; all of it while nothing has been experienced."""
        if not self._experts:
            return 0
        return round(self.settings.expert_share * count) if len(self._own.replay) else count


class _Part:
    """Transitions and their priorities."""

    def __init__(self, capacity: int, features: int, actions: int) -> None:
        self.replay = Replay(capacity, features, actions)
        self.tree = SumTree(capacity)

    def add(self, transitions: Transitions, priority: float) -> None:
        rows = self.replay.add(transitions)
        self.tree.set(rows, np.full(len(rows), priority))

    def draw(self, count: int, beta: float, generator: np.random.Generator) -> tuple[Rows, Numbers]:
        """Return rows, one from each of ``count`` equal slices of the priorities, and their weights."""
        if not count:
            return np.empty(0, dtype=np.int64), np.empty(0)
        if not len(self.replay):
            raise ValueError("the replay buffer is empty: add transitions first")
        total = self.tree.total
        rows = self.tree.find((generator.random(count) + np.arange(count)) * (total / count))
        return rows, importance_weights(self.tree.priorities(rows) / total, len(self.replay), beta)

    def state(self) -> State:
        return {**self.replay.state(), "priorities": self.tree.priorities(np.arange(len(self.replay)))}

    def restore(self, state: State) -> None:
        self.replay.restore(state)
        self.tree = SumTree(self.tree.capacity)
        self.tree.set(np.arange(len(self.replay)), np.asarray(state["priorities"]))


def importance_weights(probabilities: Numbers, count: int, beta: float) -> Numbers:
    """Weights (rows,) of rows drawn with ``probabilities`` (rows,) out of ``count``: ``(count · P)^-beta``.

    With ``beta`` = 1, the weighted mean of a batch is, on average, the mean over all ``count``.
    """
    return (count * probabilities) ** -beta
