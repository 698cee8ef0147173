"""What the jobs of a log really need, and what their users ask for: assumptions, one named set at a time.

Nothing here is known to the code that is tested. No public log known to us has requests and use of memory. So the
arrivals, users, sizes and run times are a real log's; each family of jobs is one of the twelve models that Synergy
(Mohan et al., OSDI 2022) measured by CPUs per GPU, with the memory per GPU that Synergy gives it; and how the jobs of
one family differ is assumed, in several ways.
"""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rlalloc.errors import HistoryError
from rlalloc.past_job import PastJob
from rlalloc.usage.usage_replay import Run

_MIB_PER_GIB: Final = 1024.0
NODE_MIB: Final = 1024 * _MIB_PER_GIB
_BETWEEN_FAMILIES: Final = 0.7
"""Standard deviation of the logarithm of memory between families of one model."""
_OVER_ASKING: Final = (3.0, 0.6)
"""Median over users of what they ask over what their jobs hold, and the standard deviation of its logarithm."""
_CPUS_ASKED: Final = ((4, 0.1), (6, 0.1), (8, 0.3), (12, 0.2), (16, 0.3))
"""CPUs per GPU that users ask for, and how many of them."""
_SHARED_BY_A_NODE: Final = 0.3
"""Of a family's memory at 8 GPUs a node: so much does not grow with the GPUs."""


class Assumptions(NamedTuple):
    """How the needs of one family's jobs vary.

    ``noise`` is the standard deviation of the logarithm, job by job. With ``tail`` as the chance, a job needs a
    Pareto multiple (exponent 2) of it; with ``second`` as the chance, three times as much; with ``jump``, the whole
    family's level changes for good, by a factor of lognormal spread 0.7. ``growth`` is what each job adds to the
    logarithm, until four times the first. ``lifetime`` is the number of jobs after which a name or a script stands
    for a family with other needs. ``with_hours`` adds to the logarithm for each tenfold run time. ``asks_default``
    lets everybody ask for the same: all of a node's memory that goes with its GPUs.
    """

    noise: float = 0.05
    tail: float = 0.0
    second: float = 0.0
    jump: float = 0.0
    growth: float = 0.0
    lifetime: float = math.inf
    with_hours: float = 0.0
    asks_default: bool = False


VARIED: Final[dict[str, Assumptions]] = {
    "steady": Assumptions(),
    "steady, all ask the default": Assumptions(asks_default=True),
    "noise of 30%": Assumptions(noise=0.3),
    "heavy tail: 2% Pareto": Assumptions(noise=0.1, tail=0.02),
    "10% need three times as much": Assumptions(second=0.1),
    "growth of 2% a job": Assumptions(growth=0.02),
    "longer runs need more": Assumptions(with_hours=0.3),
    "jumps: 1% of jobs": Assumptions(noise=0.1, jump=0.01),
    "new needs every 30 jobs": Assumptions(noise=0.1, lifetime=30),
    "all of these, half as strong": Assumptions(
        noise=0.15, tail=0.01, second=0.05, growth=0.01, with_hours=0.15, jump=0.005, lifetime=60
    ),
}


class _Family:
    """One family's model, level and age."""

    def __init__(self, chance: random.Random, models: Sequence[tuple[float, tuple[float, ...]]]) -> None:
        memory_gib, self.speeds = chance.choice(models)
        self.gib_per_gpu = memory_gib * math.exp(chance.gauss(0.0, _BETWEEN_FAMILIES)) / 2.0
        self.asks = max(1.2, _OVER_ASKING[0] * math.exp(chance.gauss(0.0, _OVER_ASKING[1])))
        self.cpus_asked = chance.choices(*zip(*_CPUS_ASKED, strict=True))[0]
        self.log_level = 0.0
        self.log_growth = 0.0


class TrueNeeds:
    """A log's jobs with the needs that some assumptions give them (``jobs``), and what they do in other sizes."""

    def __init__(self, jobs: Sequence[PastJob], synergy: Path, assumed: Assumptions, seed: int) -> None:
        self._chance = random.Random(seed)
        self._assumed = assumed
        self._models = _models(synergy)
        self._families: dict[tuple[str, ...], _Family] = {}
        self._speeds: list[tuple[float, ...]] = []
        self.jobs = [self._with_needs(job) for job in jobs]

    def run(self, number: int, node_mib: float, cpus_per_gpu: float) -> Run:
        """What a job does in another size (rlalloc.usage.usage_replay.Truth)."""
        job = self.jobs[number]
        speeds = self._speeds[number]
        asked = job.cpus / job.gpus
        slowdown = max(1.0, _at(speeds, asked) / _at(speeds, cpus_per_gpu))
        used = (job.cpu_s_used or 0.0) / job.run_s / job.gpus if job.run_s else 0.0
        return Run((job.node_rss_mib or 0.0) > node_mib, slowdown, used / slowdown)

    def _with_needs(self, job: PastJob) -> PastJob:
        chance, assumed = self._chance, self._assumed
        key = (job.user, job.name, job.script)
        family = self._families.get(key)
        if family is None or chance.random() < 1.0 / assumed.lifetime:
            family = self._families[key] = _Family(chance, self._models)
        if chance.random() < assumed.jump:
            family.log_level += chance.gauss(0.0, 0.7)
        log_need = family.log_level + family.log_growth + chance.gauss(0.0, assumed.noise)
        family.log_growth = min(math.log(4.0), family.log_growth + assumed.growth)
        if chance.random() < assumed.tail:
            log_need += math.log(min(8.0, chance.paretovariate(2.0)))
        if chance.random() < assumed.second:
            log_need += math.log(3.0)
        log_need += assumed.with_hours * math.log10(max(job.run_s, 60.0) / 3600.0)
        gpus = job.gpus // job.nodes
        at_gpus = _SHARED_BY_A_NODE * 8 + (1.0 - _SHARED_BY_A_NODE) * gpus
        usual_mib = family.gib_per_gpu * at_gpus * _MIB_PER_GIB
        share_mib = NODE_MIB * gpus / 8
        need_mib = min(usual_mib * math.exp(log_need), 0.95 * NODE_MIB)
        asks_mib = share_mib if assumed.asks_default else usual_mib * family.asks
        # A job that ran as requested had asked for enough.
        asks_mib = min(NODE_MIB, max(asks_mib, 1.05 * need_mib))
        asks_mib = math.ceil(asks_mib / 16384.0) * 16384.0
        self._speeds.append(family.speeds)
        knee = _knee(family.speeds)
        busy = 0.9 * knee * _at(family.speeds, family.cpus_asked) / max(family.speeds)
        used = min(family.cpus_asked, 0.3 + busy * math.exp(chance.gauss(0.0, 0.1)))
        return msgspec.structs.replace(
            job,
            cpus=family.cpus_asked * job.gpus,
            mem_mib=asks_mib * job.nodes,
            node_rss_mib=need_mib,
            cpu_s_used=used * job.gpus * job.run_s,
        )


def _at(speeds: Sequence[float], cpus: float) -> float:
    """The speed at a number of CPUs per GPU, linear between those measured, flat beyond the last one."""
    place = min(max(cpus, 1.0), float(len(speeds))) - 1.0
    low = int(place)
    high = min(low + 1, len(speeds) - 1)
    return speeds[low] + (place - low) * (speeds[high] - speeds[low])


def _knee(speeds: Sequence[float]) -> int:
    """The fewest CPUs per GPU that reach 98% of the highest speed."""
    return next(cpus for cpus, speed in enumerate(speeds, 1) if speed >= 0.98 * max(speeds))


def _models(path: Path) -> list[tuple[float, tuple[float, ...]]]:
    """Memory per GPU [GiB] and speed by CPUs per GPU, from 1 on, of each model. Raises HistoryError."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["models"]["models-4"]
        return [
            (float(model["mem"]), tuple(float(row[-1]) for row in model["tput_cpu_x_mem"]))
            for model in table.values()
        ]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise HistoryError(f"{path}: {err!r}; --data names the folder of the published tables") from err
