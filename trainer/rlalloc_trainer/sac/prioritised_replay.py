"""Prioritised replay (Schaul et al. 2016), with demonstrations in a part of their own.

A transition is drawn in proportion to ``(abs(TD error) + epsilon)^alpha``, a batch from as many equal slices of the
cumulative priorities (stratified). A new transition gets the largest priority so far, so that each is seen. Rows that
are drawn more often count for less: their importance weight is ``(N·P)^-beta`` over the batch's largest one, so that
weights only make steps shorter. beta grows to 1 while learning settles.

Demonstrations are never overwritten, and a set share of each batch is theirs, however much is experienced (as in
Ape-X DQfD, Pohlen et al. 2018). Importance weights correct for priorities inside each part, not for this share, which
is intended. It makes DQfD's bonus on the priorities of demonstrations unnecessary.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.sac.replay_buffer import Replay, Rows, State, Transitions
from rlalloc_trainer.sac.sum_tree import Numbers, SumTree

Weights = NDArray[np.float32]


class PrioritySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How transitions are drawn.

    alpha            how much the TD error counts: 0 draws evenly, 1 in proportion (0.6: Schaul et al., table 3)
    beta             how far importance weights correct for that, at the first batch (0.4: the same table)
    batches_to_one   batches until beta is 1, on a straight line
    epsilon          added to errors, in reward, so that well-predicted rows are still drawn now and then
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

    Rows from ``capacity`` on are the demonstrations'. One tree has the priorities of both, so that a batch walks it
    once.
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
        self._experts = len(demonstrations) if demonstrations is not None else 0
        self._replay = Replay(capacity, features, actions, demonstrations)
        self._tree = SumTree(capacity + self._experts)
        self._largest = 1.0
        self._batches = 0
        self._tree.set(self._expert_rows, np.full(self._experts, self._largest))

    def __len__(self) -> int:
        return len(self._replay) + self._experts

    @property
    def beta(self) -> float:
        """The exponent of the next batch's importance weights."""
        passed = min(1.0, self._batches / self.settings.batches_to_one)
        return self.settings.beta + (1.0 - self.settings.beta) * passed

    @property
    def nbytes(self) -> int:
        """Memory that is held, in bytes."""
        return self._replay.nbytes + self._tree.nbytes

    def add(self, transitions: Transitions) -> None:
        """Append transitions with the largest priority so far; the oldest give way."""
        rows = self._replay.add(transitions)
        self._tree.set(rows, np.full(len(rows), self._largest))

    def sample(self, count: int, generator: np.random.Generator) -> Drawn:
        """Draw ``count`` transitions with replacement, the demonstrations' share last.

        Raises ValueError if there are none.
        """
        rows, weights = self.draw(count, generator)
        return Drawn(self._replay.take(rows), weights, rows, rows >= self._capacity)

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Rows, Weights]:
        """Draw ``count`` rows, the demonstrations' last, and their weights; both (count,).

        Each part's priorities are cut into as many equal slices as the batch has rows of it, a row from each.
        """
        if not len(self):
            raise ValueError("the replay buffer is empty: add transitions first")
        experts = self._experts_in(count)
        own = count - experts
        own_total = self._tree.before(self._capacity) if self._experts else self._tree.total
        expert_total = self._tree.total - own_total
        targets = generator.random(count) + np.arange(count)
        targets[:own] *= own_total / max(1, own)
        targets[own:] = own_total + (targets[own:] - own) * (expert_total / max(1, experts))
        rows = self._tree.find(targets)
        np.minimum(rows[:own], len(self._replay) - 1, out=rows[:own])  # where rounding carried it past its part
        np.maximum(rows[own:], self._capacity, out=rows[own:])
        weights = self._tree.priorities(rows)
        weights[:own] = importance_weights(weights[:own] / own_total, len(self._replay), self.beta)
        if experts:
            weights[own:] = importance_weights(weights[own:] / expert_total, self._experts, self.beta)
        self._batches += 1
        return rows, (weights / weights.max()).astype(np.float32)

    def prioritise(self, rows: Rows, errors: NDArray[np.floating]) -> None:
        """Set new TD errors (rows,), in reward, of the ``rows`` of a batch. Raises ValueError for NaN."""
        priorities = (np.abs(errors.astype(np.float64)) + self.settings.epsilon) ** self.settings.alpha
        self._tree.set(rows, priorities)
        self._largest = max(self._largest, float(priorities.max()))

    def state(self) -> State:
        """Return all that ``restore`` needs; partly views, to be written before anything is added."""
        return {
            **self._replay.state(),
            "priorities": self._tree.priorities(np.arange(len(self._replay))),
            "expert_priorities": self._tree.priorities(self._expert_rows),
            "largest": np.array(self._largest),
            "batches": np.array(self._batches),
        }

    def restore(self, state: State) -> None:
        """Restore what ``state`` returned for a buffer of the same capacity, settings and demonstrations."""
        self._largest, self._batches = state["largest"].item(), state["batches"].item()
        self._replay.restore(state)
        self._tree = SumTree(self._tree.capacity)
        self._tree.set(np.arange(len(self._replay)), np.asarray(state["priorities"]))
        self._tree.set(self._expert_rows, np.asarray(state["expert_priorities"]))

    @property
    def _expert_rows(self) -> Rows:
        return np.arange(self._capacity, self._capacity + self._experts)

    def _experts_in(self, count: int) -> int:
        """How many of a batch are demonstrations: their share; all of it while nothing has been experienced."""
        if not self._experts:
            return 0
        return round(self.settings.expert_share * count) if len(self._replay) else count


def importance_weights(probabilities: Numbers, count: int, beta: float) -> Numbers:
    """Weights (rows,) of rows drawn with ``probabilities`` (rows,) out of ``count``: ``(count · P)^-beta``.

    With ``beta`` = 1, the weighted mean of a batch is, on average, the mean over all ``count``.
    """
    return (count * probabilities) ** -beta
