"""Known gain with and without the choice of a type of GPU, on sites of which half of the nodes are faster.

All jobs name no type. What is believed of a100 over v100 stays the same (``rlalloc.speed.type_speeds``); how much
faster a100 really are is varied, and so is which of the two Slurm takes first.
"""

import itertools
from collections.abc import Iterator
from typing import Final

import msgspec

from rlalloc.progress import ProgressCallback
from rlalloc_simulator.comparison.compared_policy import HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval, paired_ratio
from rlalloc_simulator.comparison.runner import RunSettings, run_policy
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.training_workloads import TEST, training_workload

TRUE_SPEEDS: Final = (1.0, 1.5, 2.1)
LOADS: Final = (1.0, 3.0)
"""Submissions come so many times as densely as in the workload, whose load then holds for the mixed site."""
ORDERS: Final = ("v100", "a100")
_SETTINGS: Final = RunSettings(knowledge="history", late_after_s=2.0)


class Compared(msgspec.Struct, frozen=True):
    """One line: how fast a100 are, what Slurm takes first, the load, and the mean JCT with the choice over without.

    ``worst`` is the largest ratio of a workload; ``gpu_use`` is without the choice; ``killed`` counts jobs killed for
    rlalloc's sizes without and with it.
    """

    true_speed: float
    first: str
    load: float
    workloads: int
    gpu_use: float
    jct: Interval
    worst: float
    killed: tuple[int, int]


def compare(workloads: int, jobs: int, report: ProgressCallback) -> Iterator[Compared]:
    """Compare on the first test workloads that have two nodes or more."""
    numbered = (training_workload(TEST + 10_000 + number, jobs) for number in itertools.count())
    sources = list(itertools.islice((each for each in numbered if each.site.nodes[0].count > 1), workloads))
    cells = list(itertools.product(TRUE_SPEEDS, ORDERS, LOADS))
    for done, (speed, first, load) in enumerate(cells, 1):
        pairs = [
            [_run(mixed(each, speed, first, load, choose=choose)) for choose in (False, True)] for each in sources
        ]
        without, with_choice = zip(*pairs, strict=True)
        yield _compared(speed, first, load, without, with_choice)
        report(f"{done} of {len(cells)} sites", done / len(cells))


def mixed(workload: Workload, speed: float, first: str, load: float, *, choose: bool) -> Workload:
    """The workload on v100 and a100 nodes in equal parts, of which Slurm takes the ``first`` first."""
    site, jobs = workload
    (kind,) = site.nodes
    half = kind.count // 2
    kinds = [
        msgspec.structs.replace(kind, count=half, gpu_type="v100", weight=1 + (first != "v100")),
        msgspec.structs.replace(
            kind, count=kind.count - half, gpu_type="a100", speed=speed, weight=1 + (first != "a100")
        ),
    ]
    types = ("a100",) if choose else ()
    interception = msgspec.structs.replace(site.interception, choose_gpu_types=types)
    denser = load * (1.0 + speed) / 2.0
    moved = tuple(msgspec.structs.replace(job, submit_s=job.submit_s / denser, gpu_type=None) for job in jobs)
    return Workload(msgspec.structs.replace(site, nodes=tuple(kinds), interception=interception), moved)


def _run(workload: Workload) -> WorkloadResult:
    return run_policy(HeuristicPolicy("known-gain"), workload, _SETTINGS)


def _compared(
    speed: float, first: str, load: float, without: tuple[WorkloadResult, ...], chosen: tuple[WorkloadResult, ...]
) -> Compared:
    before, after = ([each.jct_s for each in results] for results in (without, chosen))
    return Compared(
        true_speed=speed,
        first=first,
        load=load,
        workloads=len(without),
        gpu_use=sum(each.gpu_use for each in without) / len(without),
        jct=paired_ratio(after, before),
        worst=max(one / other for one, other in zip(after, before, strict=True)),
        killed=(sum(each.killed_by_policy for each in without), sum(each.killed_by_policy for each in chosen)),
    )
