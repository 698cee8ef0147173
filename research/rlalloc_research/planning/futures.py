"""What may come after a decision, drawn from what a policy can know, and what all jobs go through in it.

No run time is known: each is drawn around what a time limit lets expect. How the job scales is drawn too, and who
comes later is drawn from who came lately. All candidates for an answer meet the same draws.
"""

import math
from typing import Annotated, Final

import msgspec
import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.heuristics.workable_sizes import CPUS_PER_GPU_ENOUGH
from rlalloc.job import Allocation, JobView
from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.speed import CURVES, SpeedCurve
from rlalloc.urgency import UrgencyRules, nice_for, urgency_of_area
from rlalloc.view import ClusterView
from rlalloc_research.planning.cluster_now import Present
from rlalloc_research.planning.recent_jobs import Recent
from rlalloc_simulator.engine import NodeKind, SchedulerParameters, SimulatedSite, Simulator
from rlalloc_simulator.engine.engine_records import LINK, Numbers, Reals
from rlalloc_simulator.engine.job_table import (
    JobTable,
    curve_table,
    empty_records,
    size_of,
    sizes_as_requested,
)
from rlalloc_simulator.engine.running_at_start import start_first_jobs
from rlalloc_simulator.engine.simulator import SIZE_FIELDS
from rlalloc_simulator.engine.site_parameters import Interception

_AS_IT_IS: Final = SpeedCurve((1,), (1.0,), 1e-6)
"""Of a job whose size is not in question: its work is its run time."""
_OF_THE_JOB: Final = tuple(CURVES.values())
_AFTER_IT_S: Final = 0.001
"""When those behind the job come: its answer is in then."""
_SIZE: Final = SIZE_FIELDS[:5]

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class FutureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is drawn, and how far a rollout goes.

    spread         standard deviation of the logarithm of a run time over what is expected
    horizon        jobs come for so many mean expected run times, then the cluster drains ...
    arrivals       ... at most so many of them
    waiting        at most so many of those that wait are looked at, from the head of the queue
    scheduler      how the site's slurmctld schedules
    urgency        what the site lets urgency do
    """

    spread: NotNegative = 1.0
    horizon: NotNegative = 1.0
    arrivals: Count = 64
    waiting: Count = 200
    scheduler: SchedulerParameters = SchedulerParameters()
    urgency: UrgencyRules = UrgencyRules()


class Outlook:
    """The present as a simulation that begins now, at 0 s, with one job of it to be answered.

    Its jobs, in this order: those that run, those that wait ahead, the job, those behind it and those that come, both
    drawn from ``recent``.
    """

    def __init__(
        self, job: JobView, view: ClusterView, present: Present, recent: Recent, settings: FutureSettings
    ) -> None:
        """``present`` is that of ``view`` and has to be able to hold the job as requested."""
        self._job, self._settings, self._mean_gap_s = job, settings, recent.mean_gap_s
        self._present = present
        self.site = SimulatedSite(
            nodes=tuple(NodeKind(count=1, shape=NodeShape(*row)) for row in self._present.capacity.tolist()),
            scheduler=settings.scheduler,
            interception=Interception(urgency=settings.urgency),
        )
        self._pool = [each for each in recent.jobs if present.holds(each.given)]
        self._run_s = view.releases[self._present.owners, 0]
        ahead, ahead_run_s = self._ahead(view)
        self._behind = min(view.behind, settings.waiting) if self._pool else 0
        runs_s = [each.run_s for each in self._pool]
        self._until_s = settings.horizon * float(np.mean(runs_s)) if runs_s else 0.0
        coming = settings.arrivals if self._pool and math.isfinite(self._mean_gap_s) else 0
        self._first = len(self._present.nodes)  # that waits
        self.number = self._first + len(ahead)
        self.jobs = self.number + 1 + self._behind + coming
        self._expected_s = np.zeros(self.jobs)
        self._expected_s[: self._first] = self._run_s
        self._expected_s[self._first : self.number] = ahead_run_s
        self._simulator = Simulator(self.site, self._table(ahead))

    def future(self, generator: np.random.Generator) -> "Future":
        """Draw one: run times, how the job scales, who else waits and comes."""
        simulator, expected_s = self._simulator.clone(), self._expected_s.copy()
        arrivals = self._draw_others(simulator, expected_s, generator)
        self._set_back(simulator, expected_s)
        self._draw_work(simulator, expected_s, generator)
        simulator = simulator.clone(arrivals)
        start_first_jobs(simulator.world, self._present.nodes)
        return Future(simulator, self.number, slice(self._first, arrivals))

    def _draw_others(self, simulator: Simulator, expected_s: Reals, generator: np.random.Generator) -> int:
        """Let others wait behind the job and come later; return how many jobs there are until no more come."""
        later = self.number + 1 + self._behind
        drawn = generator.integers(max(1, len(self._pool)), size=self.jobs - self.number - 1)
        for number, which in enumerate(drawn.tolist(), self.number + 1):
            other = self._pool[which]
            _give(simulator, number, size_of(other.given))
            expected_s[number] = other.run_s
        submits_s = simulator.world.jobs["submit_s"]
        submits_s[self.number + 1 : later] = _AFTER_IT_S
        if self.jobs > later:
            submits_s[later:] = np.cumsum(self._mean_gap_s * generator.exponential(size=self.jobs - later))
        return later + int(np.searchsorted(submits_s[later:], self._until_s))

    def _draw_work(self, simulator: Simulator, expected_s: Reals, generator: np.random.Generator) -> None:
        """Let each job run as long as around what is expected, up to its limit, and the job scale in some way."""
        spread, jobs = self._settings.spread, simulator.world.jobs
        factors = np.exp(spread * generator.standard_normal(self.jobs) - spread**2 / 2)
        factors[: self._first] = factors[self._present.first_parts]  # all parts of a job end together
        limits_s = np.maximum(1, simulator.world.sizes["limit_s"])
        jobs["work_s"] = np.minimum(np.maximum(1.0, expected_s * factors), limits_s)
        number, request = self.number, self._job.request
        curve = int(generator.integers(len(_OF_THE_JOB)))
        scales = _OF_THE_JOB[curve]
        run_s = EXPECTED_FRACTION_OF_LIMIT * request.time_limit_s * factors[number]
        jobs["curve"][number] = 1 + curve
        jobs["cpus_per_gpu_needed"][number] = scales.cpus_per_gpu_needed
        jobs["work_s"][number] = min(max(1.0, run_s), request.time_limit_s) * scales.at(
            max(1, request.gpus), request.cpus_per_gpu
        )

    def _ahead(self, view: ClusterView) -> tuple[Numbers, Reals]:
        """Sizes (waiting, 5) of those that wait ahead, and their expected run times [s].

        A view tells of their GPUs and run times only: of CPUs and memory they are taken to want as much a GPU as what
        runs, else four CPUs, and the memory that goes with a GPU of a node.
        """
        held, shape = self._present.held, view.shape
        gpus = max(1, held[:, 0].sum())
        cpus_per_gpu = held[:, 1].sum() / gpus if len(held) else CPUS_PER_GPU_ENOUGH
        mem_per_gpu = held[:, 2].sum() / gpus if len(held) else shape.mem_mib / max(1, shape.gpus)
        rows, runs_s = [], []
        for wanted, run_s in view.queued[: self._settings.waiting].tolist():
            nodes = max(1, math.ceil(wanted / max(1, shape.gpus)))
            per_node = math.ceil(wanted / nodes)
            cpus = min(shape.cpus, max(1, round(per_node * cpus_per_gpu)))
            mem = min(shape.mem_mib, max(1, round(per_node * mem_per_gpu)))
            if self._present.has_nodes(nodes, per_node, cpus, mem):
                rows.append((nodes, per_node, cpus, mem, _limit_s(run_s)))
                runs_s.append(run_s)
        return np.array(rows, dtype=np.int64).reshape(-1, len(_SIZE)), np.array(runs_s)

    def _table(self, ahead: Numbers) -> JobTable:
        """All jobs, those that are yet to be drawn in the size of the first of the pool."""
        records = empty_records(self.jobs)
        records["cpus_per_gpu_needed"] = _AS_IT_IS.cpus_per_gpu_needed
        records["managed"][self.number] = True
        sizes = sizes_as_requested(records)
        running = (np.ones(self._first), *self._present.held.T, [_limit_s(run_s) for run_s in self._run_s.tolist()])
        for name, column, waiting in zip(_SIZE, running, ahead.T, strict=True):
            sizes[name][: self._first] = column
            sizes[name][self._first : self.number] = waiting
        asked = size_of(self._job.request)
        other = size_of(self._pool[0].given) if self._pool else asked
        for name in _SIZE:
            sizes[name][self.number] = asked[name]
            sizes[name][self.number + 1 :] = other[name]
            records[f"requested_{name}"] = sizes[name]
        return JobTable(records, sizes, np.zeros(0, dtype=LINK), *curve_table([_AS_IT_IS, *_OF_THE_JOB]))

    def _set_back(self, simulator: Simulator, expected_s: Reals) -> None:
        """Let the others stand in the queue as smallest-area-first order has them, where urgency counts."""
        rules = self._settings.urgency
        if rules.nice_band == 0:
            return
        jobs, sizes = simulator.world.jobs, simulator.world.sizes
        gpus = sizes["nodes"] * sizes["gpus_per_node"]
        for number in range(self._first, self.jobs):
            if number != self.number:
                run_s = float(expected_s[number])
                jobs["added_nice"][number] = nice_for(urgency_of_area(run_s, int(gpus[number])), rules)
                jobs["patience_s"][number] = rules.patience_s(run_s)


class Future:
    """One future, drawn: what everybody goes through in it depends on the job's answer alone."""

    def __init__(self, before: Simulator, number: int, counted: slice) -> None:
        self._before, self._number, self._counted = before, number, counted

    def cost_s(self, allocation: Allocation, nice: tuple[int, float]) -> float:
        """Seconds that all who wait and come spend until they are done, with the job in ``allocation``."""
        jobs = self.after(allocation, nice).world.jobs[self._counted]
        return float((jobs["finished_s"] - jobs["submit_s"]).sum())

    def after(self, allocation: Allocation, nice: tuple[int, float]) -> Simulator:
        """Run to the end with the job in ``allocation``; ``nice`` as ``Simulator.resize`` takes it."""
        simulator = self._before.clone()
        answers = np.zeros((len(simulator.world.jobs), len(SIZE_FIELDS)), dtype=np.int64)
        answers[self._number] = (*size_of(allocation).values(), *nice)
        simulator.run_answered(answers)
        return simulator


def _give(simulator: Simulator, number: int, size: dict[str, int]) -> None:
    record = simulator.world.sizes[number]
    for name in _SIZE:
        record[name] = size[name]


def _limit_s(run_s: float) -> int:
    """A time limit that lets expect so long a run."""
    return max(60, math.ceil(run_s / EXPECTED_FRACTION_OF_LIMIT))
