"""``rlalloc check SCRIPT``: how a script is read, what it may get, and what is wrong with its ``#RLALLOC`` lines."""

import re
from typing import Final

import msgspec
from rich.table import Table

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for, read_directives, task_per_gpu
from rlalloc.config import Config
from rlalloc.count_rules import (
    with_declared_least,
    with_few_switches,
    with_least_cpus,
    with_least_memory,
    with_near_gpus,
)
from rlalloc.counted import counted
from rlalloc.devices import Device, gpu_device
from rlalloc.errors import ConfigError, DirectiveError
from rlalloc.job import Bounds, JobClass
from rlalloc.llm.gpu_types import memory_gib
from rlalloc.llm.needed_bounds import facts_of_job, with_model_needs
from rlalloc.scripts.consent import consent_of
from rlalloc.scripts.script_class import class_of, directive_words
from rlalloc.scripts.script_reading import purposes_of
from rlalloc.scripts.script_words import read_long_script
from rlalloc_cli.explain import bounds_lines
from rlalloc_cli.sbatch_request import SbatchRequest, header_of, options_of, request_of, sbatch_lines
from rlalloc_cli.script_form import needs_of, why_skipped
from rlalloc_cli.site_nodes import SiteSlurm, node_gpus
from rlalloc_cli.terminal import CONSOLE
from rlallocd.slurm import NodeNeeds

_CPUS_PER_GPU: Final = 8
_MIB_PER_GPU: Final = 65_536
_GPU_TYPE: Final = re.compile(r"(?:--gres[= ]gpu:|--gpus-per-node[= ]|--gpus[= ]|-G\s*)([\w.-]*[A-Za-z][\w.-]*):")
_SHARDS: Final = re.compile(r"--gres[= ]shard[:\s]")


class ScriptReport(msgspec.Struct, frozen=True):
    """What rlalloc makes of a script; ``bounds`` None where it leaves the job alone, or skips it for its form.

    ``skipped`` says why it skips the job, as ``rlalloc explain`` would; it is empty where it does not.
    ``gpu_memory_gib`` is that of a GPU, None where its type is unknown: then only parallel sizes count.
    ``nodes`` says how many GPUs a node has, and who says so. ``mistakes`` are those of the #RLALLOC lines, each with
    what is right; the bounds are then those without the wrong parts.
    """

    job_class: JobClass | None
    words: tuple[str, ...] | None
    fingerprint: str
    request: SbatchRequest
    bounds: Bounds | None
    gpu_memory_gib: float | None = None
    nodes: str = ""
    mistakes: tuple[str, ...] = ()
    skipped: str = ""


def report_on(script: bytes, config: Config, gpus_per_node: int | None, gpu_type: str | None) -> ScriptReport:
    """Read a script as the plugin and the daemon do, by the first rule for its class.

    ``gpus_per_node`` None: those of the site's largest node that the job may get. Only of that are CPUs and memory
    known: counts for which it has too little of them are left out. The #SBATCH lines tell the request
    as far as bounds need it, and the type of the GPUs if ``gpu_type`` is None. Raises ConfigError for a type of GPU
    of which the memory is not known.
    """
    job_class = class_of(script, config.commands)
    read = read_long_script(script, config.word_table)
    lines = sbatch_lines(script)
    asked = request_of(lines, _CPUS_PER_GPU, _MIB_PER_GPU)
    request = asked.size
    if job_class is None:
        return ScriptReport(None, read.words, read.fingerprint, asked, None)
    options, slurm = options_of(lines), SiteSlurm()
    directives, mistakes = read_directives(" ".join(directive_words(script) or ()))
    device = _device_of(lines)
    nodes = node_gpus(slurm, lines, gpus_per_node, device)
    node_gpus_known = nodes.gpus if nodes.shape or gpus_per_node else None
    if skipped := why_skipped(slurm, lines, header_of(script), options, request, node_gpus_known):
        return ScriptReport(job_class, read.words, read.fingerprint, asked, None, mistakes=mistakes, skipped=skipped)
    site = next((rule.bounds for rule in config.rules if job_class in rule.classes), SiteBounds())
    most = None
    if not device.whole:  # as rlallocd.submissions.candidates does
        site, most = site.of_declared_counts, nodes.gpus
    declared = directives.job_class is not None
    consent = consent_of(
        read.words,
        config.scripts,
        job_class=job_class,
        declared=declared,
        task_per_gpu=task_per_gpu(request, directives),
    )
    shape = nodes.shape or NodeShape(
        gpus=nodes.gpus,
        cpus=max(request.cpus_per_node, nodes.gpus * _CPUS_PER_GPU),
        mem_mib=max(request.mem_mib_per_node, nodes.gpus * _MIB_PER_GPU),
    )

    def bounds_with(directives: Directives) -> Bounds:
        found = bounds_for(request, directives, site, shape, most, consent)
        if nodes.shape is not None:
            found = _workable(with_declared_least(found, request, directives, shape), asked, shape)
        return _with_needs(found, asked, shape, needs_of(options))

    try:
        bounds = bounds_with(directives)
    except DirectiveError as err:  # what its lines say cannot all be had at once
        directives, mistakes = Directives(), (*mistakes, str(err))
        bounds = bounds_with(directives)
    gib = _gpu_memory_gib(script, config, gpu_type)
    if read.words:
        purposes = purposes_of(read.words, config.scripts, job_class=job_class, declared=declared)
        programs = facts_of_job(read.words, purposes)
        may_be_unknown = site.moldable.fit_may_be_unknown
        bounds = with_model_needs(bounds, request, programs, gib, nodes.gpus, fit_may_be_unknown=may_be_unknown)
    return ScriptReport(job_class, read.words, read.fingerprint, asked, bounds, gib, nodes.describe(), mistakes)


def _workable(bounds: Bounds, asked: SbatchRequest, shape: NodeShape) -> Bounds:
    """The bounds without the counts for which a node has too little of what the script states."""
    if asked.states_memory:
        bounds = with_least_memory(bounds, asked.size, shape)
    return with_least_cpus(bounds, asked.size, shape) if asked.states_cpus else bounds


def _with_needs(bounds: Bounds, asked: SbatchRequest, shape: NodeShape, needs: NodeNeeds) -> Bounds:
    """The bounds without the counts that the job's ``needs`` of its nodes rule out."""
    if needs.few_switches:
        bounds = with_few_switches(bounds, asked.size, shape)
    return with_near_gpus(bounds, asked.size, shape) if needs.near_gpus and asked.states_cpus else bounds


def print_report(report: ScriptReport) -> None:
    """Print the report for a person."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("class", report.job_class or "none: rlalloc leaves the job alone")
    shown = "not all could be read" if report.words is None else ", ".join(report.words) or "none"
    table.add_row("words", shown)
    table.add_row("fingerprint", report.fingerprint)
    table.add_row("request", _shown(report.request))
    if report.skipped:
        table.add_row("skipped", report.skipped)
    if report.bounds is not None:
        table.add_row("nodes", report.nodes)
        known = report.gpu_memory_gib is not None
        memory = f"{report.gpu_memory_gib:g} GiB" if known else "unknown: name the type of GPU with --gpu"
        table.add_row("GPU memory", memory)
        for name, line in bounds_lines(report.bounds):
            if name in ("script", "sockets") or name.startswith("bounds: "):
                table.add_row(name, line)
        table.add_row("", "CPUs and memory may also be trimmed to what similar past jobs used (rlalloc explain)")
        if report.mistakes:
            table.add_row(
                "#RLALLOC", "bounds without the wrong parts; until they are right, the job keeps its request"
            )
    CONSOLE.print(table)


def _shown(request: SbatchRequest) -> str:
    size = request.size
    cpus = f"{counted(size.cpus_per_node, 'CPU')}{'' if request.states_cpus else ' (assumed)'}"
    memory = f"{size.mem_mib_per_node / 1024:g} GiB{'' if request.states_memory else ' (assumed)'}"
    each = f"{counted(size.gpus_per_node, 'GPU')}, {counted(size.tasks_per_node, 'task')}, {cpus} and {memory} a node"
    return f"{counted(size.nodes, 'node')}: {each}"


def _gpu_memory_gib(script: bytes, config: Config, gpu_type: str | None) -> float | None:
    """The memory of a GPU: of the type that was asked for, else of the type in the #SBATCH lines."""
    if gpu_type is None:
        found = _GPU_TYPE.search(sbatch_lines(script))
        return memory_gib(found[1], config.gpu_memory) if found is not None else None
    gib = memory_gib(gpu_type, config.gpu_memory)
    if gib is None:
        raise ConfigError(f"--gpu {gpu_type}: unknown; add its memory to gpu_memory in the configuration")
    return gib


def _device_of(lines: str) -> Device:
    """What the script asks for: whole GPUs, slices or shards."""
    if _SHARDS.search(lines):
        return Device("shard")
    found = _GPU_TYPE.search(lines)
    return gpu_device(found[1] if found is not None else "")
