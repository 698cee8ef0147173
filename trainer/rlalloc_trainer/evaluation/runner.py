"""Running contenders on workloads, each once: what has been run is kept in a folder, and an interrupted run goes on.

A result belongs to the sources that made it: the digest of the simulator's, the policies' and the workloads' code is
part of its key, so a changed program never shows old figures.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc.errors import RlallocError
from rlalloc.heuristics.named import EXPERTS
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.objective_costs import KnownBefore, consequences_of, setting_of
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.progress import ProgressCallback
from rlalloc_simulator.report.plugin_metrics import METRICS, measure_further
from rlalloc_simulator.requeueing import ResizingSimulator
from rlalloc_simulator.site_from_workload import site_of, submitted_from, with_urgency
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_trainer.evaluation.compared_policies import Contender
from rlalloc_trainer.evaluation.scenario_weeks import at_load
from rlalloc_trainer.evaluation.scenarios import Scenario
from rlalloc_trainer.evaluation.workload_figures import WorkloadFigures, figures_of

Setting = Literal["sizes", "urgency", "requeue"]
SETTINGS: Final[tuple[Setting, ...]] = ("sizes", "urgency", "requeue")
"""Sizes only; sizes and the order of the queue; both, and running jobs requeued in other sizes (a reference)."""
DIGESTED: Final = (
    ("rlalloc", ""),
    ("rlalloc_simulator", ""),
    ("rlalloc_trainer", "evaluation"),
)
"""Packages, and folders in them, on whose sources a result depends."""


class WorkloadKey(msgspec.Struct, frozen=True):
    """One workload: which scenario, week, part of the week, and load."""

    scenario: Scenario
    week: int
    part: int
    load: float


class Task(msgspec.Struct, frozen=True):
    """A workload, and who runs on it in which setting. Results are kept in ``cache``."""

    workload: WorkloadKey
    contenders: tuple[Contender, ...]
    settings: tuple[Setting, ...]
    cache: Path
    code: str


Results = dict[tuple[str, Setting], WorkloadFigures]
"""By a contender's name and the setting."""


def run_all(
    scenarios: Sequence[Scenario],
    loads: Sequence[float],
    contenders: Sequence[Contender],
    settings: Sequence[Setting],
    cache: Path,
    parallel_map: ParallelMap,
    report: ProgressCallback,
) -> Iterator[tuple[WorkloadKey, Results]]:
    """Run every contender on every workload and yield the results of one workload after the other.

    Raises WorkloadError where a scenario cannot be made, RlallocError where the cache cannot be written.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise RlallocError(f"{cache}: {err.strerror}; name a folder that you may write to") from err
    code = code_digest()
    tasks = [
        Task(WorkloadKey(scenario, week, part, load), tuple(contenders), tuple(settings), cache, code)
        for scenario in scenarios
        for week, part in product(scenario.weeks, range(scenario.parts))
        for load in loads
    ]
    for done, (task, results) in enumerate(zip(tasks, parallel_map(run_workload, tasks), strict=True), 1):
        key = task.workload
        report(f"{key.scenario.name}, week {key.week}, load {key.load:g}", done / len(tasks))
        yield key, results


def run_workload(task: Task) -> Results:
    """Run all contenders of a task on its workload, but for those whose result is kept."""
    results: Results = {}
    for contender, setting in product(task.contenders, task.settings):
        kept = task.cache / f"{_name_of(task, contender, setting)}.json"
        figures = _kept(kept)
        if figures is None:
            site, jobs = _workload(task.workload)
            figures = run(contender, setting, site, jobs)
            _keep(kept, figures)
        results[contender.name, setting] = figures
    return results


def run(contender: Contender, setting: Setting, site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> WorkloadFigures:
    """Run one workload under one policy."""
    if setting != "sizes":
        site = with_urgency(site)
    policy = contender.policy(site.interception.urgency)
    simulator = (
        ResizingSimulator(site, jobs, policy) if setting == "requeue" else Simulator(site, table_of(jobs, site))
    )
    figures = figures_of(drive(simulator, jobs, policy).outcomes, jobs, site)
    further = measure_further(consequences_of(simulator, KnownBefore.of(jobs)), setting_of(site))
    return msgspec.structs.replace(figures, further=further)


@functools.cache
def code_digest() -> str:
    """SHA-256 over the sources that results depend on, plug-ins' included."""
    digest = hashlib.sha256()
    for package, folder in DIGESTED:
        with resources.as_file(resources.files(package)) as root:
            for path in sorted((root / folder).rglob("*.py")):
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    for registry in (EXPERTS, METRICS):
        digest.update(registry.fingerprint().encode())
    return digest.hexdigest()


def _name_of(task: Task, contender: Contender, setting: Setting) -> str:
    workload = msgspec.structs.replace(task.workload, scenario=_without_place(task.workload.scenario))
    parts = (task.code, contender.digest, setting, msgspec.json.encode(workload, enc_hook=str).decode())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _without_place(scenario: Scenario) -> Scenario:
    """A file is known by its digest, wherever it lies; other weeks of a scenario do not change one week."""
    replaced: dict[str, object] = {"weeks": ()}
    if hasattr(scenario, "path"):
        replaced["path"] = Path()
    return msgspec.structs.replace(scenario, **replaced)


@functools.lru_cache(maxsize=2)
def _workload(key: WorkloadKey) -> tuple[SimulatedSite, list[SubmittedJob]]:
    workload = at_load(key.scenario.workload(key.week, key.part), key.load)
    site = site_of(workload.cluster, workload.jobs)
    try:
        jobs = submitted_from(workload.jobs, site)
        Simulator(site, table_of(jobs, site))
    except ValueError as err:
        raise WorkloadError(f"{key.scenario.name}, week {key.week}: {err}; make its cluster larger") from err
    return site, jobs


def _kept(path: Path) -> WorkloadFigures | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=WorkloadFigures)
    except (OSError, msgspec.DecodeError):
        return None  # not run yet, or cut off: run it


def _keep(path: Path, figures: WorkloadFigures) -> None:
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_bytes(msgspec.json.encode(figures))
        unfinished.replace(path)
    except OSError as err:
        raise RlallocError(f"{path}: {err.strerror}; name a --cache folder that you may write to") from err
