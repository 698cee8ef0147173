"""Drawing a workload from a fitted model, for a cluster of any size and, where wanted, to an offered load.

All that is random comes from one seed: the same model, cluster and seed give the same jobs.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.job import JOB_CLASSES, JobClass
from rlalloc_simulator.workloads.assumptions import CHECKPOINT_EVERY_S, CHECKPOINT_RESTART_S, ByClass
from rlalloc_simulator.workloads.completion import nodes_for
from rlalloc_simulator.workloads.directives import written_directives
from rlalloc_simulator.workloads.model_fitting import HOUR_S
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import (
    Checkpoint,
    ClusterDescription,
    End,
    Needs,
    NodeGroup,
    Request,
    Speed,
    WorkloadJob,
)
from rlalloc_simulator.workloads.workload_model import Arrivals, WorkloadModel

Item = TypeVar("Item")
MONDAY_S: Final = 1767571200
"""2026-01-05 00:00, where generated workloads begin: a Monday."""
LARGEST_PART_OF_CLUSTER: Final = 0.5
"""A job asks for at most half of the cluster's GPUs: sizes above are not drawn."""
LARGEST_PART_OF_LOAD: Final = 0.25
"""To an offered load, one job brings at most a quarter of the GPU time: what is more is drawn again. Without it a
day on a small cluster would now and then be one job of a month."""
CLOSING_JOBS: Final = 8
CLOSING_DRAWS: Final = 64
CLOSE_ENOUGH: Final = 0.002
"""The last jobs, eight at most, are each the largest of 64 that fits into what is left of the load, until it is
0.2%."""
MOST_REDRAWS: Final = 2_000
"""Jobs that bring the workload no nearer to its load, before it is given up."""
_DRAWS: Final = 21


class GeneratorSettings(msgspec.Struct, frozen=True):
    """For what the workload is made. Without ``load`` jobs come at the model's own rate.

    ``load`` is the GPU time that the jobs would hold at their requested sizes over what there is in ``hours``.
    """

    cluster: NodeGroup
    hours: float
    load: float | None = None
    seed: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.cluster.count * self.cluster.gpus

    @property
    def description(self) -> ClusterDescription:
        """The cluster for the workload's header."""
        return ClusterDescription(nodes=(self.cluster,))


def generate(model: WorkloadModel, settings: GeneratorSettings) -> Iterator[WorkloadJob]:
    """Return the jobs in order of submission. Raises WorkloadError if no size of the model fits the cluster."""
    generator = np.random.default_rng((settings.seed, 12))
    draft = _Draft(model, settings, generator)
    rates = hourly_rates(model.arrivals, settings.hours, generator)
    if settings.load is None:
        counts = generator.poisson(rates)
        times = np.concatenate(
            [hour * HOUR_S + np.sort(generator.uniform(0, HOUR_S, count)) for hour, count in enumerate(counts)]
        )
        times = times[times < settings.hours * HOUR_S]
        jobs = [draft.job() for _ in times]
    else:
        jobs = _to_load(draft, settings.load * settings.gpus * settings.hours * HOUR_S)
        times = _times_at(rates, settings.hours, np.sort(generator.uniform(size=len(jobs))))
    for number, (job, time) in enumerate(zip(jobs, times, strict=True), 1):
        yield msgspec.structs.replace(job, id=number, submit_s=round(float(time), 3))


def hourly_rates(arrivals: Arrivals, hours: float, generator: np.random.Generator) -> NDArray[np.float64]:
    """Jobs an hour for each hour from a Monday's midnight on, the last one perhaps cut short."""
    count = math.ceil(hours)
    hour = np.arange(count)
    rates = (
        arrivals.jobs_per_hour
        * np.array(arrivals.hour_of_day)[hour % 24]
        * np.array(arrivals.day_of_week)[hour // 24 % 7]
    )
    deviation, memory = arrivals.burst_log_deviation, arrivals.burst_memory
    fresh = generator.standard_normal(count)
    logarithm = fresh.copy()
    for index in range(1, count):
        logarithm[index] = memory * logarithm[index - 1] + math.sqrt(1 - memory**2) * fresh[index]
    return np.asarray(rates * np.exp(deviation * logarithm - deviation**2 / 2))


def _times_at(rates: NDArray[np.float64], hours: float, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Submissions [s] whose density follows ``rates``."""
    edges = np.minimum(np.arange(len(rates) + 1), hours)
    cumulative = np.concatenate(([0.0], np.cumsum(rates * np.diff(edges))))
    if cumulative[-1] <= 0:
        return uniform * hours * HOUR_S
    return np.asarray(np.interp(uniform, cumulative / cumulative[-1], edges)) * HOUR_S


def _to_load(draft: "_Draft", gpu_s: float) -> list[WorkloadJob]:
    """Jobs that hold ``gpu_s`` in all: drawn until it is reached, the last ones picked to meet it."""
    jobs: list[WorkloadJob] = []
    left_s, in_vain = gpu_s, 0
    while in_vain < MOST_REDRAWS:
        job = draft.job()
        if job.gpu_s > LARGEST_PART_OF_LOAD * gpu_s:
            in_vain += 1
        elif job.gpu_s > left_s:
            return [*jobs, *_closing(draft, left_s, CLOSE_ENOUGH * gpu_s)]
        else:
            jobs.append(job)
            left_s -= job.gpu_s
            in_vain = 0 if job.gpu_s else in_vain + 1
    raise WorkloadError(
        f"{MOST_REDRAWS} jobs in a row hold no GPUs, or more than {LARGEST_PART_OF_LOAD:.0%} of the load: ask "
        "for more hours or nodes, or for no load"
    )


def _closing(draft: "_Draft", left_s: float, enough_s: float) -> Iterator[WorkloadJob]:
    """A few jobs, each the largest of many that does not take more than is left."""
    for _ in range(CLOSING_JOBS):
        fitting = [job for job in (draft.job() for _ in range(CLOSING_DRAWS)) if job.gpu_s <= left_s + enough_s]
        if fitting:
            largest = max(fitting, key=lambda job: job.gpu_s)
            yield largest
            left_s -= largest.gpu_s
        if left_s <= enough_s:
            return


class _Draft:
    """Draws one job after the other; remembers each user's last size."""

    def __init__(self, model: WorkloadModel, settings: GeneratorSettings, generator: np.random.Generator) -> None:
        self._model = model
        self._node = settings.cluster
        self._generator = generator
        largest = max(1, math.floor(settings.gpus * LARGEST_PART_OF_CLUSTER))
        self._sizes = [
            (size.gpus, group, size.share) for group in model.groups for size in group.sizes if size.gpus <= largest
        ]
        if not self._sizes:
            smallest = min(size.gpus for group in model.groups for size in group.sizes)
            raise WorkloadError(
                f"the smallest jobs of the model have {smallest} GPUs, and a job gets at most half of the cluster's "
                f"{settings.gpus}: give it more nodes"
            )
        self._groups = {gpus: group for gpus, group, _ in self._sizes}
        self._end_shares = {
            gpus: np.cumsum([end.share for end in group.ends]) for gpus, group in self._groups.items()
        }
        self._size_shares = np.cumsum([share for _, _, share in self._sizes])
        self._account_shares = np.cumsum([account.share for account in model.accounts])
        self._user_shares = [np.cumsum(account.users) for account in model.accounts]
        self._last_size: dict[str, int] = {}

    def job(self) -> WorkloadJob:
        """One job, its id 1 and its submission 0."""
        draws = self._generator.random(_DRAWS).tolist()
        account = _pick(self._account_shares, draws[0])
        user = f"{self._model.accounts[account].name}-u{1 + _pick(self._user_shares[account], draws[1])}"
        gpus = self._last_size.get(user, 0)
        if not gpus or draws[2] >= self._model.size_repeat:
            gpus = self._sizes[_pick(self._size_shares, draws[3])][0]
        self._last_size[user] = gpus
        ends = self._groups[gpus].ends
        end = ends[_pick(self._end_shares[gpus], draws[4])]
        seconds = round(max(1.0, end.seconds.at(draws[5])), 3)
        run_s = seconds
        if end.state != "COMPLETED":
            run_s = round(max(1.0, seconds / self._model.requests.progress_at_end.at(draws[6])), 3)
        if end.while_pending:
            run_s = round(self._anyone_run_s(gpus, draws[7]), 3)
        job_class = _class(self._model.molding.classes, draws[8])
        request, needs = self._request(gpus, run_s, draws[9:16])
        return WorkloadJob(
            id=1,
            submit_s=0.0,
            user=user,
            account=self._model.accounts[account].name,
            job_class=job_class,
            request=request,
            needs=needs,
            directives=self._directives(request, needs, draws[16:20]),
            end=End() if end.state == "COMPLETED" else End(end.state, seconds, end.while_pending),
            checkpoint=Checkpoint(CHECKPOINT_EVERY_S, CHECKPOINT_RESTART_S)
            if draws[20] < self._model.molding.checkpointed.of(job_class)
            else None,
        )

    def _anyone_run_s(self, gpus: int, draw: float) -> float:
        """The run time of a job that was cancelled before anybody saw one: as of those that ran."""
        ran = [end for end in self._groups[gpus].ends if not end.while_pending]
        return max(1.0, ran[0].seconds.at(draw)) if ran else 60.0

    def _request(self, gpus: int, run_s: float, draws: Sequence[float]) -> tuple[Request, Needs]:
        node, asked = self._node, self._model.requests
        nodes, per_node = nodes_for(gpus, node.shape)
        cpus = max(1, min(node.cpus, round(asked.cpus_per_gpu.at(draws[0]) * per_node)))
        tasks = per_node if draws[1] < asked.task_per_gpu and cpus >= per_node else 1
        mem_mib = math.ceil(asked.mem_share.at(draws[2]) * per_node * node.mem_mib / max(1, node.gpus))
        mem_mib = max(1, min(node.mem_mib, mem_mib))
        limit_s = math.ceil(run_s / asked.limit_used.at(draws[3]) / 60) * 60
        request = Request(
            nodes=nodes,
            gpus_per_node=per_node,
            tasks_per_node=tasks,
            cpus_per_task=cpus // tasks,
            mem_mib_per_node=mem_mib,
            time_limit_s=max(60, limit_s),
            gpu_type=node.gpu_type,
        )
        needs = Needs(
            run_time_s=run_s,
            cpu_fraction=round(asked.cpu_fraction.at(draws[4]), 4),
            max_rss_mib=round(max(1.0, asked.mem_fraction.at(draws[5]) * mem_mib), 1),
            speed=Speed("bert", round(self._model.molding.speed_exponent.at(draws[6]), 3)),
        )
        return request, needs

    def _directives(self, request: Request, needs: Needs, draws: Sequence[float]) -> str:
        molding = self._model.molding
        per_gpu = request.allocation
        least_cpus = max(1.0, math.ceil(needs.cpu_fraction * per_gpu.cpus_per_gpu))
        least_mib = 1.1 * needs.max_rss_mib / request.gpus_per_node
        gpu_range = None
        if draws[0] < molding.moldable and molding.down and molding.up:
            down, up = _ratio(molding.down, draws[1]), _ratio(molding.up, draws[2])
            gpu_range = (max(1, math.floor(request.gpus / down)), max(request.gpus, math.floor(request.gpus * up)))
        repairable = draws[3] < molding.repairable
        return written_directives(
            gpus=gpu_range,
            cpus_per_gpu=(min(least_cpus, per_gpu.cpus_per_gpu), per_gpu.cpus_per_gpu) if repairable else None,
            mem_mib_per_gpu=(min(least_mib, per_gpu.mem_mib_per_gpu), per_gpu.mem_mib_per_gpu)
            if repairable
            else None,
            task_per_gpu=request.tasks_per_node == request.gpus_per_node > 1,
        )


def _ratio(table: Sequence[tuple[float, float]], draw: float) -> float:
    return table[_pick(np.cumsum([share for _, share in table]), draw)][0]


def _pick(cumulative: NDArray[np.float64], draw: float) -> int:
    """Index of the item at ``draw`` of the way along the shares."""
    return min(int(np.searchsorted(cumulative, draw * cumulative[-1], side="right")), len(cumulative) - 1)


def _class(shares: ByClass, draw: float) -> JobClass:
    numbers = np.cumsum([shares.of(name) for name in JOB_CLASSES])
    return JOB_CLASSES[_pick(numbers, draw)] if numbers[-1] > 0 else JOB_CLASSES[0]
