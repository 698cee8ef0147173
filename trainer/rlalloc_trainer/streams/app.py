"""Wiring of ``rlalloc simulate convert|fit|generate``: files around the domain."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rlalloc_trainer.streams.assumptions import Assumptions
from rlalloc_trainer.streams.completion import complete, modelled
from rlalloc_trainer.streams.errors import StreamError
from rlalloc_trainer.streams.file import open_stream, read_stream, write_stream
from rlalloc_trainer.streams.fit import fit_model
from rlalloc_trainer.streams.generate import MONDAY_S, GeneratorSettings, generate
from rlalloc_trainer.streams.job import ClusterDescription, Header, NodeGroup
from rlalloc_trainer.streams.model import StreamModel, load_model, save_model
from rlalloc_trainer.streams.readers import FORMATS
from rlalloc_trainer.streams.summary import Summary, summarise
from rlalloc_trainer.streams.trace import in_slower_time
from rlalloc_trainer.streams.weeks import of_weeks


class ConvertSettings(msgspec.Struct, frozen=True):
    """What ``convert`` was told. None leaves the format's own assumption; no ``weeks`` are all of them."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    mem_mib_per_node: int | None = None
    moldable: float | None = None
    utc_offset_s: int = 0
    seed: int = 0
    weeks: tuple[int, ...] = ()
    slower: float = 1.0


def convert_trace(name: str, paths: Sequence[Path], settings: ConvertSettings, output: Path) -> Summary:
    """Read a trace of the format ``name`` and write it as a stream. Raises StreamError."""
    trace_format = FORMATS.get(name)
    if trace_format is None:
        raise StreamError(f"--from {name}: write one of {', '.join(FORMATS)}")
    assumptions = _assumptions(trace_format.assumptions, settings)
    trace = list(trace_format.read(paths))
    if not trace:
        raise StreamError(f"{', '.join(map(str, paths))}: no job in it has ended; name more of the trace")
    if settings.weeks:
        trace = of_weeks(trace, settings.weeks)
    if settings.slower != 1.0:
        trace = in_slower_time(trace, settings.slower)
    zero_s, jobs = complete(trace, assumptions, settings.seed)
    header = Header(
        origin=f"{trace_format.source}; rlalloc simulate convert --from {name} {_told(settings)}",
        modelled=modelled(trace),
        time_zero_s=trace_format.time_zero_s(zero_s),
        utc_offset_s=settings.utc_offset_s,
        cluster=_cluster(assumptions, settings.nodes),
    )
    write_stream(output, header, jobs)
    with open_stream(output) as (_, written):
        return summarise(written)


def _told(settings: ConvertSettings) -> str:
    slower = [] if settings.slower == 1.0 else [f"--slower {settings.slower:g}"]
    return " ".join([f"--seed {settings.seed}", *(f"--week {week}" for week in settings.weeks), *slower])


def fit_stream(path: Path, output: Path, command: str) -> StreamModel:
    """Fit a model to a stream and write it. Raises StreamError."""
    header, jobs = read_stream(path)
    model = fit_model(header, jobs, command)
    save_model(model, output)
    return model


def generate_stream(name: str, settings: GeneratorSettings, output: Path) -> Summary:
    """Draw a stream from a model and write it. Raises StreamError."""
    model = load_model(name)
    load = "" if settings.load is None else f" --load {settings.load:g}"
    node = settings.cluster
    header = Header(
        origin=f"{model.origin}; rlalloc simulate generate {Path(name).name}{load} --hours {settings.hours:g} "
        f"--nodes {node.count} --gpus-per-node {node.gpus} --cpus-per-node {node.cpus} --mem-per-node {node.mem_mib} "
        f"--seed {settings.seed}",
        modelled=model.modelled,
        time_zero_s=MONDAY_S,
        cluster=settings.description,
    )
    write_stream(output, header, generate(model, settings))
    with open_stream(output) as (_, written):
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
