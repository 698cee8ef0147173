"""Wiring of ``rlalloc simulate convert|fit|generate``: files around the domain."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rlalloc_simulator.workloads.assumptions import Assumptions
from rlalloc_simulator.workloads.calendar_weeks import of_weeks
from rlalloc_simulator.workloads.chosen_limits import Limits, with_limits
from rlalloc_simulator.workloads.completion import complete, modelled
from rlalloc_simulator.workloads.generator import MONDAY_S, GeneratorSettings, generate
from rlalloc_simulator.workloads.model_fitting import fit_model
from rlalloc_simulator.workloads.readers import FORMATS
from rlalloc_simulator.workloads.trace_job import in_slower_time
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_file import open_workload, read_workload, write_workload
from rlalloc_simulator.workloads.workload_job import ClusterDescription, Header, NodeGroup
from rlalloc_simulator.workloads.workload_model import WorkloadModel, load_model, save_model
from rlalloc_simulator.workloads.workload_summary import Summary, summarise


class ConvertSettings(msgspec.Struct, frozen=True):
    """Options of ``convert``. None keeps the format's own assumption; without ``weeks`` all are taken."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    mem_mib_per_node: int | None = None
    moldable: float | None = None
    utc_offset_s: int = 0
    seed: int = 0
    weeks: tuple[int, ...] = ()
    slower: float = 1.0
    limits: Limits = "recorded"


def convert_trace(name: str, paths: Sequence[Path], settings: ConvertSettings, output: Path) -> Summary:
    """Read a trace of the format ``name`` and write it as a workload. Raises WorkloadError."""
    trace_format = FORMATS.get(name)
    if trace_format is None:
        raise WorkloadError(f"--from {name}: write one of {', '.join(FORMATS)}")
    assumptions = _assumptions(trace_format.assumptions, settings)
    trace = list(trace_format.read(paths))
    if not trace:
        raise WorkloadError(f"{', '.join(map(str, paths))}: no job in it has ended; name more of the trace")
    if settings.weeks:
        trace = of_weeks(trace, settings.weeks)
    if settings.slower != 1.0:
        trace = in_slower_time(trace, settings.slower)
    zero_s, jobs = complete(trace, assumptions, settings.seed)
    header = Header(
        origin=f"{trace_format.source}; rlalloc simulate convert --from {name} {_options(settings)}",
        modelled=modelled(trace),
        time_zero_s=trace_format.time_zero_s(zero_s),
        utc_offset_s=settings.utc_offset_s,
        cluster=_cluster(assumptions, settings.nodes),
    )
    write_workload(output, header, with_limits(jobs, settings.limits, settings.seed))
    with open_workload(output) as (_, written):
        return summarise(written)


def _options(settings: ConvertSettings) -> str:
    slower = [] if settings.slower == 1.0 else [f"--slower {settings.slower:g}"]
    limits = [] if settings.limits == "recorded" else [f"--limits {settings.limits}"]
    return " ".join([f"--seed {settings.seed}", *(f"--week {week}" for week in settings.weeks), *slower, *limits])


def fit_workload(path: Path, output: Path, command: str) -> WorkloadModel:
    """Fit a model to a workload and write it. Raises WorkloadError."""
    header, jobs = read_workload(path)
    model = fit_model(header, jobs, command)
    save_model(model, output)
    return model


def generate_workload(name: str, settings: GeneratorSettings, output: Path, limits: Limits) -> Summary:
    """Draw a workload from a model, give it these time limits, and write it. Raises WorkloadError."""
    model = load_model(name)
    load = "" if settings.load is None else f" --load {settings.load:g}"
    chosen = "" if limits == "recorded" else f" --limits {limits}"
    node = settings.cluster
    header = Header(
        origin=f"{model.origin}; rlalloc simulate generate {Path(name).name}{load} --hours {settings.hours:g} "
        f"--nodes {node.count} --gpus-per-node {node.gpus} --cpus-per-node {node.cpus} --mem-per-node {node.mem_mib} "
        f"--seed {settings.seed}{chosen}",
        modelled=model.modelled,
        time_zero_s=MONDAY_S,
        cluster=settings.description,
    )
    write_workload(output, header, with_limits(generate(model, settings), limits, settings.seed))
    with open_workload(output) as (_, written):
        return summarise(written)


def _assumptions(base: Assumptions, settings: ConvertSettings) -> Assumptions:
    replace = msgspec.structs.replace
    shape = replace(
        base.shape,
        gpus=settings.gpus_per_node or base.shape.gpus,
        cpus=settings.cpus_per_node or base.shape.cpus,
        mem_mib=settings.mem_mib_per_node or base.shape.mem_mib,
    )
    moldable = base.moldable if settings.moldable is None else settings.moldable
    return replace(base, shape=shape, moldable=moldable)


def _cluster(assumptions: Assumptions, nodes: int | None) -> ClusterDescription:
    """One group of nodes; one node stands for its shape where nobody said how many there are."""
    shape = assumptions.shape
    return ClusterDescription(
        nodes=(NodeGroup(name="node", count=nodes or 1, gpus=shape.gpus, cpus=shape.cpus, mem_mib=shape.mem_mib),)
    )
