"""Types of GPUs for simulated jobs that name none, by the rules of the daemon (``rlallocd.decisions.questions``)."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.devices import ANY_GPU, gpu_device
from rlalloc.heuristics import Heuristic, known_gain
from rlalloc.heuristics.type_choice import Offered, TypeChoice, chosen_type
from rlalloc.job import Allocation, ChosenType, Shares
from rlalloc.view import ClusterView
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.engine_records import PENDING
from rlalloc_simulator.engine.job_table import slowdown_of
from rlalloc_simulator.engine.policy_views import cluster_view
from rlalloc_simulator.engine.simulated_pools import Asked
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

    def __init__(
        self, simulator: Simulator, jobs: Sequence[SubmittedJob], late: LateDecisions, policy: Heuristic | None
    ) -> None:
        """``policy`` answers for single types; without it, jobs get as many GPUs of a type as of all."""
        self._simulator, self._jobs, self.late, self._policy = simulator, jobs, late, policy
        self._allowed = frozenset(simulator.site.interception.choose_gpu_types)
        self._since_s: dict[int, float] = {}

    def choose(self, number: int, plain: Offered, shares: Shares) -> Typed | None:
        """The type that surely pays for a new job, whose answer is ``shares`` without one; the engine knows it then.

        None where it keeps its request for any type.
        """
        if not self._may_choose(number):
            return None
        size, typed = self._simulator.world.sizes[number], {}
        for name, pool in self._pools_of(number).items():
            size["pool"] = pool
            typed[name] = cluster_view(self._simulator, number)
        size["pool"] = self._pool(self._jobs[number].asked)
        chosen = self._chosen(number, plain, shares, typed)
        if chosen is None:
            return None
        view = typed[chosen.name]
        size["pool"] = self._pools_of(number)[chosen.name]
        if not self.late.starts_on_type(number, view, chosen.shares):
            size["pool"] = self._pool(self._jobs[number].asked)
            return None
        self._since_s[number] = self._simulator.now_s
        return Typed(view, chosen.shares)

    def _pool(self, asked: Asked) -> int:
        return self._simulator.pools.index(asked)

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
        pools = self._pools_of(number)
        seen = {name: self.late.seen_on(pool) for name, pool in pools.items()}
        typed = {name: view for name, view in seen.items() if view is not None}
        chosen = self._chosen(number, plain, shares, typed)
        if chosen is None:
            return None
        job = self._jobs[number]
        size = allocation_for(chosen.shares, job.request, job.bounds, typed[chosen.name].shape, slowdown_of(job))
        size = msgspec.structs.replace(size, gpu_type=ChosenType(chosen.name, "", "", *chosen.speed_up))
        if not self.late.pays(number, pools[chosen.name], size, plain.view):
            return None
        self._simulator.world.sizes[number]["pool"] = pools[chosen.name]
        self._since_s[number] = self._simulator.now_s
        return size

    def _may_choose(self, number: int) -> bool:
        """Whether a type may be chosen for a job, and none is: it may start now."""
        job = self._jobs[number]
        may = bool(self._allowed) and job.device == ANY_GPU and not self.late.cannot_start_yet(number)
        return may and self._simulator.world.sizes[number]["pool"] == self._pool(job.asked)

    def _pools_of(self, number: int) -> dict[str, int]:
        """The pool of each type of GPU for a job that names none."""
        asked = self._jobs[number].asked
        return {name: self._pool(asked._replace(device=gpu_device(name))) for name in self._simulator.site.gpu_types}

    def _chosen(
        self, number: int, plain: Offered, shares: Shares, typed: Mapping[str, ClusterView]
    ) -> TypeChoice | None:
        job = self._jobs[number]
        on_types = {
            name: Offered(plain.job, view)
            for name, view in typed.items()
            if view.totals[0] >= job.request.gpus and view.shape.gpus >= job.request.gpus_per_node
        }
        answered = allocation_for(shares, job.request, job.bounds, plain.view.shape, slowdown_of(job))
        alike = abs(known_gain(*plain).gpu - shares.gpu) < _ALIKE
        answers: dict[str, Shares] | None = None if alike else {}
        if answers is not None and self._policy is not None:
            answers = {name: self._policy(*on_types[name]) for name in sorted(self._allowed & on_types.keys())}
        return chosen_type(plain, answered, on_types, self._allowed, answers)

    def _give_back(self) -> None:
        world, now_s = self._simulator.world, self._simulator.now_s
        due = [number for number, since_s in self._since_s.items() if now_s - since_s > _INTERVAL_S]
        for number in due:
            del self._since_s[number]
            there = world.jobs[number]
            if there["state"] == PENDING:
                world.sizes[number]["pool"] = self._pool(self._jobs[number].asked)
                patience_s = float(there["patience_s"]) if np.isfinite(there["patience_s"]) else 0.0
                nice = int(there["added_nice"]), patience_s
                self._simulator.resize({number: self._jobs[number].request}, nice={number: nice})
