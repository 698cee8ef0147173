"""Runs policies on the very same workloads: whatever compares policies, runs them here.

Results can be kept in a folder: then each run is done once, and an interrupted comparison goes on. A kept result
belongs to the sources that made it: the digest of the simulator's and the policies' code is part of its key, so a
changed program never shows old figures.
"""

import functools
import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from rlalloc.errors import RlallocError
from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import EXPERTS
from rlalloc.objective import REWARDS
from rlalloc.progress import ProgressCallback, silent
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.comparison.compared_policy import ComparedPolicy
from rlalloc_simulator.comparison.moved_submissions import moved
from rlalloc_simulator.comparison.workload_result import WorkloadResult, result_of, together
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, SubmittedJob, table_of
from rlalloc_simulator.knowledge import Knowledge, with_knowledge
from rlalloc_simulator.objective_costs import KnownBefore, consequences_of, setting_of
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.report.plugin_metrics import METRICS, mean_costs, measure_further
from rlalloc_simulator.requeueing import ResizingSimulator
from rlalloc_simulator.site_from_workload import Workload, with_late_decisions, with_urgency

Name = TypeVar("Name")
_AT_ONCE: Final = 32
"""Workloads that are made before they are run: enough to keep processes busy, few enough to keep in memory."""


class WorkloadSource(Protocol):
    """Makes a workload in the process where it runs; a ``Workload`` is its own source."""

    @property
    def digest(self) -> str:
        """What a kept result belongs to, beside the sources of ``rlalloc`` and ``rlalloc_simulator``."""
        ...

    @property
    def origin(self) -> str:
        """What its workload is made of: one process makes those of one origin, which may share work."""
        ...

    def workload(self) -> Workload:
        """Return the workload, the same one each time. Raises WorkloadError if it cannot be made."""
        ...


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Under which rules a workload runs, and what is measured.

    ``urgency`` are rules in the place of the site's own, ``knowledge`` is what policies know of run times; None
    leaves them what the source's jobs have. With
    ``requeue`` running jobs are requeued in other sizes. ``late_after_s`` decides the sizes of waiting jobs when they
    could start, so long after resources were freed (``rlalloc.late_decisions``); with None the site decides that.
    ``further`` measures the figures of ``plugin_metrics``,
    ``costs`` the terms of the objective. With ``as_answered`` a waiting job gets each new size that the policy names;
    else one that saves as much of the expected cost as the site's rules want. Figures are of ``replicates`` runs from
    number ``first`` on, all but number 0 with moved submissions (``moved_submissions``).
    """

    urgency: UrgencyRules | None = None
    knowledge: Knowledge | None = "limits"
    requeue: bool = False
    late_after_s: float | None = None
    further: bool = False
    costs: bool = False
    as_answered: bool = False
    replicates: int = 1
    first: int = 0


AS_THE_SITE: Final = RunSettings()


class Run(msgspec.Struct, frozen=True):
    """One policy, and the settings that it runs in."""

    policy: ComparedPolicy
    settings: RunSettings = AS_THE_SITE


def run_all(
    runs: Mapping[Name, Run],
    sources: Sequence[WorkloadSource],
    parallel_map: ParallelMap,
    report: ProgressCallback = silent,
    cache: Path | None = None,
) -> dict[Name, list[WorkloadResult]]:
    """Do every run on every workload; return each run's results by its name, in the workloads' order.

    Deterministic. With ``cache``, a folder, what was run before with the same sources is read from there. Raises
    PolicyError or PluginError for a policy, WorkloadError where a workload cannot be made, RlallocError where the
    cache cannot be written.
    """
    if cache is not None:
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RlallocError(f"{cache}: {err.strerror}; name a folder that you may write to") from err
    kept = _places_to_keep(runs, sources, cache)
    found = {side: result for side, path in kept.items() if (result := _kept(path)) is not None}
    for groups in _batches(sources, {place for name, place in kept if (name, place) not in found}):
        workloads = _workloads(sources, groups, parallel_map)
        sides = [(name, place) for place in workloads for name in runs if (name, place) not in found]
        ran = parallel_map(_run, [(runs[name], workloads[place], kept[name, place]) for name, place in sides])
        for side, result in zip(sides, ran, strict=True):
            found[side] = result
            report(f"run {len(found)} of {len(kept)}", len(found) / len(kept))
    return {name: [found[name, place] for place in range(len(sources))] for name in runs}


def _batches(sources: Sequence[WorkloadSource], places: Collection[int]) -> Iterator[list[list[int]]]:
    """Group places of sources by their origin, and give some groups at a time: _AT_ONCE sources or a few more."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place in sorted(places):
        groups[sources[place].origin].append(place)
    batch: list[list[int]] = []
    for group in groups.values():
        batch.append(group)
        if sum(map(len, batch)) >= _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _workloads(
    sources: Sequence[WorkloadSource], groups: Sequence[Sequence[int]], parallel_map: ParallelMap
) -> dict[int, bytes]:
    """Make the workloads of some places, encoded: all runs of one get the same."""
    made = parallel_map(_make, [[sources[place] for place in group] for group in groups])
    return dict(zip(chain.from_iterable(groups), chain.from_iterable(made), strict=True))


def _make(sources: Sequence[WorkloadSource]) -> list[bytes]:
    return [source.workload().encoded() for source in sources]


_decoded = functools.lru_cache(maxsize=2)(Workload.decoded)


def _run(task: tuple[Run, bytes, Path | None]) -> WorkloadResult:
    """Do one run, and keep its result at the path."""
    run, workload, path = task
    result = run_policy(run.policy, _decoded(workload), run.settings)
    if path is not None:
        _keep(path, result)
    return result


def run_policy(policy: ComparedPolicy, workload: Workload, settings: RunSettings = AS_THE_SITE) -> WorkloadResult:
    """Run one workload under one policy, as often as ``settings`` say."""
    site, jobs = workload
    if settings.urgency is not None:
        site = with_urgency(site, settings.urgency)
    if settings.late_after_s is not None:
        rules = site.interception.late_rules
        if settings.as_answered:
            rules = msgspec.structs.replace(rules, min_gain=-math.inf)
        site = with_late_decisions(site, settings.late_after_s, rules)
    if settings.knowledge is not None:
        jobs = with_knowledge(site, jobs, settings.knowledge)
    heuristic = policy.policy(site.interception.urgency)
    known = Workload(site, tuple(jobs))
    numbers = range(settings.first, settings.first + settings.replicates)
    return together([_run_once(moved(known, number), heuristic, settings) for number in numbers])


def _run_once(workload: Workload, heuristic: Heuristic, settings: RunSettings) -> WorkloadResult:
    site, jobs = workload
    simulator = (
        ResizingSimulator(site, jobs, heuristic) if settings.requeue else Simulator(site, table_of(jobs, site))
    )
    return run_simulator(simulator, jobs, heuristic, settings)


def run_simulator(
    simulator: Simulator, jobs: Sequence[SubmittedJob], heuristic: Heuristic | None, settings: RunSettings
) -> WorkloadResult:
    """Run a simulator, whose workload is ``jobs``, to its end; without a heuristic, jobs run as submitted.

    What ``settings`` say is measured; their rules are those of the simulator.
    """
    driven = drive(simulator, jobs, heuristic)
    result = msgspec.structs.replace(result_of(driven.outcomes, jobs, simulator.site), updates=driven.updates)
    if not (settings.further or settings.costs):
        return result
    consequences, at = consequences_of(simulator, KnownBefore.of(jobs)), setting_of(simulator.site)
    return msgspec.structs.replace(
        result,
        further=measure_further(consequences, at) if settings.further else {},
        costs=mean_costs(consequences, at) if settings.costs else {},
    )


@functools.cache
def source_digest(*packages: str) -> str:
    """SHA-256 over the sources of these packages, with those below them."""
    digest = hashlib.sha256()
    for package in packages:
        with resources.as_file(resources.files(package)) as root:
            for path in sorted(root.rglob("*.py")):
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _places_to_keep(
    runs: Mapping[Name, Run], sources: Sequence[WorkloadSource], cache: Path | None
) -> dict[tuple[Name, int], Path | None]:
    """Where each run's result on each source is kept; None: nowhere."""
    digests = [source.digest if cache is not None else "" for source in sources]
    code = (
        source_digest("rlalloc", "rlalloc_simulator"),
        *(each.fingerprint() for each in (EXPERTS, METRICS, REWARDS)),
    )
    places: dict[tuple[Name, int], Path | None] = {}
    for name, run in runs.items():
        of_run = (*code, run.policy.digest, msgspec.json.encode(run.settings).decode())
        for place, digest in enumerate(digests):
            key = hashlib.sha256("\n".join((*of_run, digest)).encode()).hexdigest()[:32]
            places[name, place] = None if cache is None else cache / f"{key}.json"
    return places


def _kept(path: Path | None) -> WorkloadResult | None:
    if path is None:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=WorkloadResult)
    except (OSError, msgspec.DecodeError):
        return None  # not run yet, or cut off: run it


def _keep(path: Path, result: WorkloadResult) -> None:
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_bytes(msgspec.json.encode(result))
        unfinished.replace(path)
    except OSError as err:
        raise RlallocError(f"{path}: {err.strerror}; make room, or name a folder that you may write to") from err
