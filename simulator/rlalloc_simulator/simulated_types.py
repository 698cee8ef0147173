"""Types of GPUs for simulated jobs that name none, by the rules of the daemon (``rlallocd.questions``)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import known_gain
from rlalloc.heuristics.type_choice import Offered, chosen_type
from rlalloc.job import Shares
from rlalloc.view import ClusterView
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.engine_records import NOBODY, PENDING
from rlalloc_simulator.engine.job_table import slowdown_of
from rlalloc_simulator.engine.policy_views import cluster_view
from rlalloc_simulator.late_driving import LateDecisions

_INTERVAL_S: Final = 30.0
"""A job that has not started on its type after this time gets its request back: the daemon's redecision.every_s."""
_ALIKE: Final = 1e-4


class Typed(NamedTuple):
    """A job on the nodes of the type that was chosen for it, and the shares that it gets there."""

    view: ClusterView
    shares: Shares


class TypeChoices:
    """The types that a site lets rlalloc choose, for jobs that are decided late."""

    def __init__(self, simulator: Simulator, jobs: Sequence[SubmittedJob], late: LateDecisions) -> None:
        self._simulator, self._jobs, self.late = simulator, jobs, late
        self._allowed = frozenset(simulator.site.interception.choose_gpu_types)
        self._since_s: dict[int, float] = {}

    def choose(self, number: int, plain: Offered, shares: Shares) -> Typed | None:
        """The type that surely pays for a new job, whose answer is ``shares`` without one; the engine knows it then.

        None where it keeps its request for any type.
        """
        job, sizes = self._jobs[number], self._simulator.world.sizes
        if job.gpu_type is not None or not self._allowed:
            return None
        typed = {}
        for place, name in enumerate(self._simulator.site.gpu_types):
            sizes[number]["gpu_type"] = place
            view = cluster_view(self._simulator, number)
            if view.totals[0] >= job.request.gpus and view.shape.gpus >= job.request.gpus_per_node:
                typed[name] = Offered(plain.job, view)
        sizes[number]["gpu_type"] = NOBODY
        answered = allocation_for(shares, job.request, job.bounds, plain.view.shape, slowdown_of(job))
        alike = abs(known_gain(*plain).gpu - shares.gpu) < _ALIKE
        chosen = chosen_type(plain, answered, typed, self._allowed, other_counts=alike)
        if chosen is None:
            return None
        sizes[number]["gpu_type"] = self._simulator.site.gpu_types.index(chosen.name)
        view = typed[chosen.name].view
        if self.late.first_answer(number, view, chosen.shares) != chosen.shares:
            sizes[number]["gpu_type"] = NOBODY
            return None
        self._since_s[number] = self._simulator.now_s
        return Typed(view, chosen.shares)

    def look(self) -> list[int]:
        """Give jobs that still wait for their type their requests back, then decide what could start now.

        Return the jobs that got another size.
        """
        self._give_back()
        return self.late.look()

    def _give_back(self) -> None:
        world, now_s = self._simulator.world, self._simulator.now_s
        due = [number for number, since_s in self._since_s.items() if now_s - since_s > _INTERVAL_S]
        for number in due:
            del self._since_s[number]
            there = world.jobs[number]
            if there["state"] == PENDING:
                world.sizes[number]["gpu_type"] = NOBODY
                patience_s = float(there["patience_s"]) if np.isfinite(there["patience_s"]) else 0.0
                nice = int(there["added_nice"]), patience_s
                self._simulator.resize({number: self._jobs[number].request}, nice={number: nice})
