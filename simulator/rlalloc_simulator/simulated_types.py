"""Types of GPUs for simulated jobs that name none, by the rules of the daemon (``rlallocd.questions``)."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import known_gain
from rlalloc.heuristics.type_choice import Offered, TypeChoice, chosen_type
from rlalloc.job import Allocation, ChosenType, Shares
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
        if not self._may_choose(number):
            return None
        sizes, typed = self._simulator.world.sizes, {}
        for gpu_type in range(len(self._simulator.site.gpu_types)):
            sizes[number]["gpu_type"] = gpu_type
            typed[gpu_type] = cluster_view(self._simulator, number)
        sizes[number]["gpu_type"] = NOBODY
        chosen = self._chosen(number, plain, shares, typed)
        if chosen is None:
            return None
        view = typed[self._place_of(chosen)]
        sizes[number]["gpu_type"] = self._place_of(chosen)
        if not self.late.starts_on_type(number, view, chosen.shares):
            sizes[number]["gpu_type"] = NOBODY
            return None
        self._since_s[number] = self._simulator.now_s
        return Typed(view, chosen.shares)

    def look(self) -> list[int]:
        """Give jobs that still wait for their type their requests back, then decide what could start now.

        Return the jobs that got another size, or a type.
        """
        self._give_back()
        return self.late.look(self._choose_late)

    def _choose_late(self, number: int, plain: Offered, shares: Shares) -> Allocation | None:
        """Likewise for a job that waits: its size there, if that starts now and pays."""
        if not self._may_choose(number):
            return None
        seen = {place: self.late.seen_on(number, place) for place in range(len(self._simulator.site.gpu_types))}
        typed = {place: view for place, view in seen.items() if view is not None}
        chosen = self._chosen(number, plain, shares, typed)
        if chosen is None:
            return None
        place, job = self._place_of(chosen), self._jobs[number]
        size = allocation_for(chosen.shares, job.request, job.bounds, typed[place].shape, slowdown_of(job))
        size = msgspec.structs.replace(size, gpu_type=ChosenType(chosen.name, "", "", *chosen.speed_up))
        if not self.late.pays(number, place, size, plain.view):
            return None
        self._simulator.world.sizes[number]["gpu_type"] = place
        self._since_s[number] = self._simulator.now_s
        return size

    def _may_choose(self, number: int) -> bool:
        return bool(self._allowed) and self._jobs[number].gpu_type is None

    def _chosen(
        self, number: int, plain: Offered, shares: Shares, typed: Mapping[int, ClusterView]
    ) -> TypeChoice | None:
        job = self._jobs[number]
        names = self._simulator.site.gpu_types
        on_types = {
            names[place]: Offered(plain.job, view)
            for place, view in typed.items()
            if view.totals[0] >= job.request.gpus and view.shape.gpus >= job.request.gpus_per_node
        }
        answered = allocation_for(shares, job.request, job.bounds, plain.view.shape, slowdown_of(job))
        alike = abs(known_gain(*plain).gpu - shares.gpu) < _ALIKE
        return chosen_type(plain, answered, on_types, self._allowed, other_counts=alike)

    def _place_of(self, chosen: TypeChoice) -> int:
        return self._simulator.site.gpu_types.index(chosen.name)

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
