"""Counterfactual advantages: decisions are taken again with other shares, under common random numbers.

At a decision the simulation is copied. In the copy the job gets other shares, and everything else happens as before.
The difference in what all jobs go through is the advantage of these shares, without the noise of other futures. Jobs
that come later are given what they were given before (with ``redecide`` the policy decides them again in the changed
cluster); they keep coming for some time, and then the cluster drains.

One future is one sample of what may come. With more ``futures``, later jobs are drawn again from the rest of the
workload, at the same times, with the same draw for all alternatives; each future gives a row of its own. The rows are
not averaged: one job more or less in front of a long one makes advantages so heavy-tailed that a mean of eight says
little. Advantages that were cut to ±5 one by one agree (``python -m rlalloc_research advantage-noise``), and critics
learn their mean.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import Heuristic
from rlalloc.job import SHARES, Allocation, Shares
from rlalloc.objective import TERM_NAMES, Setting, costs_of
from rlalloc.objective.consequences import SCALE_FLOOR_S
from rlalloc.observation import FloatArray, encode
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS, PolicyInputs, baseline_shares
from rlalloc.view import expected_run_time_s
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.batched_simulators import answer_of, decide
from rlalloc_simulator.engine.engine_records import Numbers, Reals
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlalloc_simulator.objective_costs import KnownBefore, consequences_of, setting_of
from rlalloc_simulator.site_from_workload import Workload

CANDIDATES: Final = 4
"""Decisions to look at for each one that is taken again, to find some at which jobs wait."""


class AdvantageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``decisions`` of a workload are taken again, each with ``alternatives`` shares, in ``futures`` futures.

    Only decisions that leave a choice of GPU counts are taken again. If there are enough, a part ``crowded`` of them
    has jobs waiting in the queue: most decisions meet an empty queue, where there is little to win.

    Jobs come for ``horizon`` times the mean expected run time of the workload's jobs, then the cluster drains. A
    shorter horizon flatters large sizes, a longer one adds noise. With ``redecide`` the policy decides all later jobs
    again, which takes many times as long; without it, each gets what it was given.

    GPU shares of the alternatives are drawn uniformly from [0, 1]. So are parts ``explored_cpu`` and ``explored_mem``
    of their CPU and memory shares, and ``explored_urgency`` of their urgency where the site lets it count; the rest
    are the heuristic's.

    ``terms`` are those of the objective that are counted (``rlalloc.objective.TERM_NAMES``, and plug-ins').
    ``inputs`` name what the network reads that is to learn from them (``rlalloc.policy.policy_inputs``).
    """

    decisions: int = 25
    crowded: float = 0.75
    alternatives: int = 3
    futures: int = 1
    horizon: float = 2.0
    redecide: bool = False
    explored_cpu: float = 0.4
    explored_mem: float = 0.15
    explored_urgency: float = 0.5
    terms: tuple[str, ...] = TERM_NAMES
    inputs: tuple[str, ...] = DEFAULT_INPUTS

    @property
    def rows(self) -> int:
        """The most rows that a workload gives."""
        return self.decisions * self.alternatives * self.futures


class Advantages(msgspec.Struct, frozen=True):
    """Counterfactual advantages of decisions that were taken again, a row each.

    ``observation`` (rows, inputs), ``shares`` (rows, shares), ``by_term`` (rows, terms): the advantage of these
    shares over the heuristic's in each term of the objective, in units of what a decision of that job can change.
    """

    observation: NDArray[np.float32]
    shares: NDArray[np.float32]
    by_term: NDArray[np.float32]


def counterfactual_advantages(
    workload: Workload, policy: Heuristic, settings: AdvantageSettings, generator: np.random.Generator
) -> Advantages:
    """Run a workload under ``policy``, and take some of its decisions again.

    Raises ValueError for more than one future of a workload whose jobs depend on each other, PluginError where a
    plug-in's term cannot be computed.
    """
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    known, setting = KnownBefore.of(workload.jobs), setting_of(workload.site)
    if settings.futures > 1 and len(simulator.world.links):
        raise ValueError("jobs that depend on each other cannot be drawn again: ask for one future")
    open_to = [number for number, job in enumerate(workload.jobs) if job.managed and len(job.bounds.gpu_counts) > 1]
    chosen = set(generator.permutation(open_to)[: CANDIDATES * settings.decisions].tolist())
    moments: list[_Moment] = []

    def keep(waiting: list[int]) -> None:
        if waiting[0] in chosen:
            chosen.remove(waiting[0])
            moments.append(_Moment(simulator.clone(), waiting[0], waiting[1:]))

    sizes = drive(simulator, workload.jobs, policy, before=keep).sizes
    urgency = workload.site.interception.urgency.nice_band > 0
    rows: list[tuple[FloatArray, Shares, Reals]] = []
    inputs = PolicyInputs(settings.inputs)
    for moment in _some(moments, settings, generator):
        futures = _futures(moment, workload, known, sizes, settings, generator)
        counted = _Counted(setting, settings.terms)
        retake = _Retake(
            moment, workload.jobs[moment.number], futures, counted, policy if settings.redecide else None
        )
        observation = inputs.row(retake.question)
        heuristic = baseline_shares(observation)
        rows.extend(
            (observation, shares, advantage)
            for shares in _alternatives(heuristic, settings, generator, urgency=urgency)
            for advantage in retake.advantages(shares, heuristic)
        )
    return _advantages(rows, len(inputs), len(settings.terms))


class _Moment(msgspec.Struct, frozen=True):
    """A simulation just before a decision, the job decided, and the other jobs of the same batch of questions."""

    before: Simulator
    number: int
    others: list[int]


def _some(moments: list[_Moment], settings: AdvantageSettings, generator: np.random.Generator) -> list[_Moment]:
    """Choose ``settings.decisions`` moments in their order; a part ``crowded`` of them has a queue, if possible."""
    drawn = generator.permutation(len(moments)).tolist()
    crowded = [place for place in drawn if moments[place].before.world.clock[0]["queued"]]
    wanted = set(crowded[: round(settings.crowded * settings.decisions)])
    others = [place for place in drawn if place not in wanted and place not in crowded]
    more = [place for place in crowded if place not in wanted]
    kept = [*wanted, *others, *more][: settings.decisions]
    return [moments[place] for place in sorted(kept)]


class _Future(msgspec.Struct, frozen=True):
    """What comes after a moment: the simulation before it, its jobs, what each will be given, how many will come."""

    before: Simulator
    jobs: Sequence[SubmittedJob]
    known: KnownBefore
    sizes: Numbers
    arrivals: int


class _Counted(msgspec.Struct, frozen=True):
    """The site, and the terms of the objective, by which costs are counted."""

    setting: Setting
    terms: tuple[str, ...]


class _Retake:
    """One decision, to be taken again with other shares in the same futures; a ``policy`` decides the later ones."""

    def __init__(
        self,
        moment: _Moment,
        job: SubmittedJob,
        futures: Sequence[_Future],
        counted: _Counted,
        policy: Heuristic | None,
    ) -> None:
        self._job, self._view = job, cluster_view(moment.before, moment.number)
        self._moment, self._futures, self._counted, self._policy = moment, futures, counted, policy
        self._known: dict[tuple[Allocation, tuple[int, float]], Reals] = {}
        self.question = encode(job_view(moment.before, moment.number, job), self._view)

    def advantages(self, shares: Shares, reference: Shares) -> Reals:
        """Advantage of ``shares`` over ``reference`` by term, (futures, terms).

        The unit is what a decision of this job can change: a longer job and a longer queue have more to win
        (docs/explanation/learning.md).
        """
        scale_s = SCALE_FLOOR_S + expected_run_time_s(self._job, self._job.request)
        return (self._costs(reference) - self._costs(shares)) / (scale_s * math.sqrt(1 + len(self._view.queued)))

    def _costs(self, shares: Shares) -> Reals:
        """Costs of all jobs with this one in ``shares``, (futures, terms)."""
        answer = answer_of(self._moment.before.site.interception.urgency, self._job, self._view, shares)
        if answer not in self._known:
            self._known[answer] = np.stack([self._in(future, shares) for future in self._futures])
        return self._known[answer]

    def _in(self, future: _Future, shares: Shares) -> Reals:
        simulator, others = future.before.clone(), self._moment.others
        decide(simulator, self._moment.number, self._job, self._view, shares)
        simulator.resize_all(np.array(others, dtype=np.int64), future.sizes[others])
        if self._policy is None:
            simulator.run_answered(future.sizes)
        else:
            drive(simulator, future.jobs, self._policy)
        became = consequences_of(simulator, future.known, future.arrivals)
        return np.asarray(costs_of(became, self._counted.setting, self._counted.terms).sum(axis=0))


def _futures(
    moment: _Moment,
    workload: Workload,
    known: KnownBefore,
    sizes: Numbers,
    settings: AdvantageSettings,
    generator: np.random.Generator,
) -> list[_Future]:
    """Return the workload's own future first, then drawn ones."""
    submits_s = moment.before.world.jobs["submit_s"]
    run_s = np.mean([expected_run_time_s(job, job.request) for job in workload.jobs])
    until_s = moment.before.now_s + settings.horizon * run_s
    arrivals = int(np.searchsorted(submits_s, until_s, side="right"))
    own = _Future(moment.before.clone(arrivals), workload.jobs, known, sizes, arrivals)
    return [own, *(_drawn_again(moment, own, generator) for _ in range(1, settings.futures))]


def _drawn_again(moment: _Moment, own: _Future, generator: np.random.Generator) -> _Future:
    """Return a future in which the remaining jobs come in another order, at the same times."""
    world = moment.before.world
    first = int(world.clock[0]["arrived"])
    order = np.arange(len(own.jobs))
    order[first:] = first + generator.permutation(len(order) - first)
    later_s = world.jobs["submit_s"] - world.jobs["submit_s"][order]
    before = moment.before.clone()
    before.world.jobs[:] = world.jobs[order]
    before.world.sizes[:] = world.sizes[order]
    before.world.jobs["submit_s"] = world.jobs["submit_s"]
    for name in ("begin_s", "cancel_s"):
        before.world.jobs[name] += later_s
    jobs = [
        msgspec.structs.replace(own.jobs[place], submit_s=float(submit_s))
        for place, submit_s in zip(order.tolist(), world.jobs["submit_s"], strict=True)
    ]
    return _Future(before.clone(own.arrivals), jobs, own.known.rows(order), own.sizes[order], own.arrivals)


def _alternatives(
    heuristic: Shares, settings: AdvantageSettings, generator: np.random.Generator, *, urgency: bool
) -> list[Shares]:
    explored = {
        "gpu": 1.0,
        "cpu": settings.explored_cpu,
        "mem": settings.explored_mem,
        "urgency": settings.explored_urgency if urgency else 0.0,
    }
    # One draw for whether and one for where, used or not: what is explored does not depend on the site.
    draws = generator.random((settings.alternatives, 2, len(explored)))
    return [
        Shares(
            **{
                name: float(where) if whether < part else getattr(heuristic, name)
                for (name, part), whether, where in zip(explored.items(), row[0], row[1], strict=True)
            }
        )
        for row in draws
    ]


def _advantages(rows: Sequence[tuple[FloatArray, Shares, Reals]], inputs: int, terms: int) -> Advantages:
    shares = [msgspec.structs.astuple(answer) for _, answer, _ in rows]
    return Advantages(
        np.array([observation for observation, _, _ in rows], dtype=np.float32).reshape(-1, inputs),
        np.array(shares, dtype=np.float32).reshape(-1, SHARES),
        np.array([advantage for _, _, advantage in rows], dtype=np.float32).reshape(-1, terms),
    )
