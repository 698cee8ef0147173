"""Wiring of ``rlalloc simulate run``: a workload file in, figures and pictures by policy out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from rlalloc.errors import PolicyError, RlallocError
from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import policy_named
from rlalloc.progress import ProgressCallback
from rlalloc_simulator.comparison.runner import RunSettings, run_simulator
from rlalloc_simulator.engine import SchedulerParameters, SimulatedSite, SubmittedJob
from rlalloc_simulator.knowledge import Knowledge, knowledge_named, with_knowledge
from rlalloc_simulator.report.figure_table import Row, rows
from rlalloc_simulator.report.history import History
from rlalloc_simulator.report.job_figures import Measures, measure
from rlalloc_simulator.report.page import Picture, page
from rlalloc_simulator.report.recording import RecordedSimulator
from rlalloc_simulator.site_from_workload import site_of, submitted_from, with_urgency
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_file import read_workload
from rlalloc_simulator.workloads.workload_job import ClusterDescription, Header

Backfill = Literal["easy", "conservative", "none"]
BACKFILLS: Final[dict[str, SchedulerParameters]] = {
    "easy": SchedulerParameters(bf_job_part_count_reserve=1),
    "conservative": SchedulerParameters(),
    "none": SchedulerParameters(backfill=False),
}
AS_SUBMITTED: Final = "as-submitted"
"""No policy: jobs run as their users submitted them, without rlalloc."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """One workload under several policies; ``histories`` and ``measures`` by their names, in the order asked for."""

    workload: str
    header: Header
    backfill: str
    knowledge: Knowledge
    histories: dict[str, History]
    measures: dict[str, Measures]

    @property
    def facts(self) -> list[str]:
        """What was simulated, in sentences."""
        history = next(iter(self.histories.values()))
        gpus = sum(node.gpus for node in history.nodes)
        users = len({job.user for job in history.jobs})
        size = f"{len(history.jobs):,} jobs of {users} users on {len(history.nodes)} nodes with {gpus:,} GPUs"
        facts = [f"{size}; backfill: {self.backfill}; known of run times: {self.knowledge}."]
        if self.header.origin:
            facts.append(f"Jobs: {self.header.origin}")
        if self.header.modelled:
            facts.append(f"Modelled, since the source lacks it: {', '.join(self.header.modelled)}")
        return facts

    @property
    def rows(self) -> list[Row]:
        """The table of figures."""
        return rows([*self.measures.values()])


def run_file(
    path: Path,
    names: Sequence[str],
    backfill: str,
    report: ProgressCallback,
    *,
    knowledge: str = "limits",
    terms: bool = False,
) -> Reported:
    """Run the workload at ``path`` under each of the policies; with ``terms``, also say what each of them cost.

    Raises WorkloadError where the file, a policy's name, the kind of backfill or of knowledge is wrong, PluginError
    for a plug-in.
    """
    policies = {name: _policy(name) for name in names}
    if backfill not in BACKFILLS:
        raise WorkloadError(f"--backfill {backfill}: write one of {', '.join(get_args(Backfill))}")
    level = knowledge_named(knowledge)
    header, site, jobs, node_names = _site_and_jobs(path, BACKFILLS[backfill])
    histories, measures = {}, {}
    known = with_knowledge(site, jobs, level)
    measured = RunSettings(further=True, costs=terms)
    for place, (name, policy) in enumerate(policies.items()):
        try:
            simulator = RecordedSimulator(site, known, node_names, _part_of(report, name, place, len(policies)))
        except ValueError as err:
            raise WorkloadError(
                f"{path}: {err}; make the workload for a larger cluster (--nodes, --gpus-per-node, --cpus-per-node, "
                "--mem-per-node of rlalloc simulate convert or generate)"
            ) from err
        result = run_simulator(simulator, known, policy, measured)
        report(name, (place + 1) / len(policies))
        histories[name] = simulator.history()
        figures = measure(histories[name])
        measures[name] = msgspec.structs.replace(figures, further=result.further, terms=result.costs)
    return Reported(
        workload=path.name,
        header=header,
        backfill=backfill,
        knowledge=level,
        histories=histories,
        measures=measures,
    )


def write_json(reported: Reported, path: Path) -> None:
    """Write figures by policy. Raises RlallocError where the file cannot be written."""
    found = {
        "workload": reported.workload,
        "origin": reported.header.origin,
        "backfill": reported.backfill,
        "knowledge": reported.knowledge,
        "policies": reported.measures,
    }
    _write(path, msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def draw(reported: Reported, folder: Path | None, html: Path | None) -> list[Path]:
    """Draw the pictures, as PNGs into ``folder`` and as one page at ``html``; return what was written.

    Raises RlallocError where a file cannot be written.
    """
    pictures = _pictures(reported)
    written = []
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RlallocError(f"{folder}: {err.strerror}; name a folder that you may write to") from err
        for name, picture in pictures.items():
            _write(folder / f"{name}.png", picture.png)
            written.append(folder / f"{name}.png")
    if html is not None:
        title = f"{reported.workload}, simulated"
        text = page(title, reported.facts, [*reported.measures], reported.rows, [*pictures.values()])
        _write(html, text.encode())
        written.append(html)
    return written


def _pictures(reported: Reported) -> dict[str, Picture]:
    """Pictures by the name of their file."""
    from rlalloc_simulator.report.pictures import draw_cdfs, draw_gantt, draw_timeline, shown_until_s

    histories = reported.histories
    until_s = shown_until_s(histories)
    policies = ", ".join(histories)
    made = {
        "timeline": Picture(
            "Queue and use over time",
            f"Queue length and GPUs, CPUs and memory held: {policies}",
            draw_timeline(histories, until_s),
        ),
        "cdf": Picture("Wait and JCT", f"Distributions of wait and JCT: {policies}", draw_cdfs(histories)),
    }
    for name, history in histories.items():
        made[f"gantt-{name}"] = Picture(
            f"GPUs by node, {name}",
            f"Gantt chart: which jobs held which nodes when, {name}",
            draw_gantt(history, name, until_s),
        )
    return made


def _policy(name: str) -> Heuristic | None:
    if name == AS_SUBMITTED:
        return None
    try:
        return policy_named(name)
    except PolicyError as err:
        raise WorkloadError(f"--policy: {err}; {AS_SUBMITTED} is without rlalloc") from err


def _site_and_jobs(
    path: Path, scheduler: SchedulerParameters
) -> tuple[Header, SimulatedSite, list[SubmittedJob], list[str]]:
    header, workload = read_workload(path)
    if header.cluster is None:
        raise WorkloadError(
            f"{path}, line 1: the header names no cluster; make the workload with --nodes of rlalloc simulate convert"
        )
    if not workload:
        raise WorkloadError(f"{path}: there is no job in it; make a workload with rlalloc simulate generate")
    try:
        site = msgspec.structs.replace(with_urgency(site_of(header.cluster, workload)), scheduler=scheduler)
        return header, site, submitted_from(workload, site), _names(header.cluster)
    except ValueError as err:
        raise WorkloadError(f"{path}: {err}") from err


def _names(cluster: ClusterDescription) -> list[str]:
    """Names of the nodes: a group's own if it has one node, else numbered."""
    return [
        group.name if group.count == 1 else f"{group.name}{number}"
        for group in cluster.nodes
        for number in range(1, group.count + 1)
    ]


def _part_of(report: ProgressCallback, name: str, place: int, policies: int) -> Callable[[float], None]:
    """Turn the progress of one policy into that of all."""
    return lambda done: report(name, (place + done) / policies)


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as err:
        raise RlallocError(f"{path}: {err.strerror}; name a file in a folder that you may write to") from err
    finally:
        unfinished.unlink(missing_ok=True)
