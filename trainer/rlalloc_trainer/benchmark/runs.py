"""Running contenders on streams, each once: what has been run is kept in a folder, and an interrupted run goes on.

A result belongs to the sources that made it: the digest of the simulator's, the policies' and the streams' code is
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
from rlalloc.heuristics import Ordered
from rlalloc.heuristics.named import EXPERTS
from rlalloc_trainer.benchmark.contenders import Contender
from rlalloc_trainer.benchmark.figures import StreamFigures, figures_of
from rlalloc_trainer.benchmark.resizing import ResizingSimulator
from rlalloc_trainer.benchmark.weeks import at_load
from rlalloc_trainer.benchmark.workloads import Workload
from rlalloc_trainer.evaluation import Map
from rlalloc_trainer.progress import Report
from rlalloc_trainer.report.metrics import METRICS, measure_further
from rlalloc_trainer.simulator.driving import drive
from rlalloc_trainer.simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_trainer.simulator.from_stream import site_of, submitted_from, with_urgency
from rlalloc_trainer.simulator.worth import KnownBefore, consequences_of, setting_of
from rlalloc_trainer.streams.errors import StreamError

Setting = Literal["sizes", "urgency", "requeue"]
SETTINGS: Final[tuple[Setting, ...]] = ("sizes", "urgency", "requeue")
"""Sizes only; sizes and the order of the queue; both, and running jobs requeued in other sizes (a reference)."""
DIGESTED: Final = (
    ("rlalloc", ""),
    ("rlalloc_trainer", "simulator"),
    ("rlalloc_trainer", "streams"),
    ("rlalloc_trainer", "benchmark"),
)
"""Packages, and folders in them, on whose sources a result depends."""


class StreamKey(msgspec.Struct, frozen=True):
    """One stream: which workload, week, part of the week, and load."""

    workload: Workload
    week: int
    part: int
    load: float


class Task(msgspec.Struct, frozen=True):
    """A stream, and who runs on it in which setting. Results are kept in ``cache``."""

    stream: StreamKey
    contenders: tuple[Contender, ...]
    settings: tuple[Setting, ...]
    cache: Path
    code: str


Results = dict[tuple[str, Setting], StreamFigures]
"""By a contender's name and the setting."""


def run_all(
    workloads: Sequence[Workload],
    loads: Sequence[float],
    contenders: Sequence[Contender],
    settings: Sequence[Setting],
    cache: Path,
    spread: Map,
    report: Report,
) -> Iterator[tuple[StreamKey, Results]]:
    """Run every contender on every stream and yield the results of one stream after the other.

    Raises StreamError where a workload cannot be made, RlallocError where the cache cannot be written.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise RlallocError(f"{cache}: {err.strerror}; name a folder that you may write to") from err
    code = code_digest()
    tasks = [
        Task(StreamKey(workload, week, part, load), tuple(contenders), tuple(settings), cache, code)
        for workload in workloads
        for week, part in product(workload.weeks, range(workload.parts))
        for load in loads
    ]
    for done, (task, results) in enumerate(zip(tasks, spread(run_stream, tasks), strict=True), 1):
        key = task.stream
        report(f"{key.workload.name}, week {key.week}, load {key.load:g}", done / len(tasks))
        yield key, results


def run_stream(task: Task) -> Results:
    """Run all contenders of a task on its stream, but for those whose result is kept."""
    results: Results = {}
    for contender, setting in product(task.contenders, task.settings):
        kept = task.cache / f"{_name_of(task, contender, setting)}.json"
        figures = _kept(kept)
        if figures is None:
            site, jobs = _stream(task.stream)
            figures = run(contender, setting, site, jobs)
            _keep(kept, figures)
        results[contender.name, setting] = figures
    return results


def run(contender: Contender, setting: Setting, site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> StreamFigures:
    """Run one stream under one policy.

    Where the site lets urgency count, a heuristic puts shorter jobs first; a learned policy has one of its own.
    """
    policy = contender.policy()
    if setting != "sizes":
        site = with_urgency(site)
        if contender.weights is None and not isinstance(policy, Ordered):
            policy = Ordered(policy)
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
    stream = msgspec.structs.replace(task.stream, workload=_without_place(task.stream.workload))
    parts = (task.code, contender.digest, setting, msgspec.json.encode(stream, enc_hook=str).decode())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _without_place(workload: Workload) -> Workload:
    """A file is known by its digest, wherever it lies; other weeks of a workload do not change one week."""
    replaced: dict[str, object] = {"weeks": ()}
    if hasattr(workload, "path"):
        replaced["path"] = Path()
    return msgspec.structs.replace(workload, **replaced)


@functools.lru_cache(maxsize=2)
def _stream(key: StreamKey) -> tuple[SimulatedSite, list[SubmittedJob]]:
    stream = at_load(key.workload.stream(key.week, key.part), key.load)
    site = site_of(stream.cluster, stream.jobs)
    try:
        jobs = submitted_from(stream.jobs, site)
        Simulator(site, table_of(jobs, site))
    except ValueError as err:
        raise StreamError(f"{key.workload.name}, week {key.week}: {err}; make its cluster larger") from err
    return site, jobs


def _kept(path: Path) -> StreamFigures | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StreamFigures)
    except (OSError, msgspec.DecodeError):
        return None  # not run yet, or cut off: run it


def _keep(path: Path, figures: StreamFigures) -> None:
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_bytes(msgspec.json.encode(figures))
        unfinished.replace(path)
    except OSError as err:
        raise RlallocError(f"{path}: {err.strerror}; name a --cache folder that you may write to") from err
