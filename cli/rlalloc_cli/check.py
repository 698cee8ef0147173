"""``rlalloc check SCRIPT``: how a script is read, what it may get, and what is wrong with its ``#RLALLOC`` lines."""

import re
from typing import Final

import msgspec
from rich.table import Table

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for, read_directives, task_per_gpu
from rlalloc.config import Config
from rlalloc.consent import consent_of
from rlalloc.counted import counted
from rlalloc.devices import Device, gpu_device
from rlalloc.errors import ConfigError, DirectiveError
from rlalloc.job import Allocation, Bounds, JobClass
from rlalloc.llm.gpu_types import memory_gib
from rlalloc.llm.needed_bounds import facts_of_job, with_model_needs
from rlalloc.script_class import class_of, directive_words
from rlalloc.script_words import read_script
from rlalloc_cli.explain import bounds_lines
from rlalloc_cli.site_nodes import node_gpus
from rlalloc_cli.terminal import CONSOLE

_CPUS_PER_GPU: Final = 8
_MIB_PER_GPU: Final = 65_536
_GPU_TYPE: Final = re.compile(r"(?:--gres[= ]gpu:|--gpus-per-node[= ]|--gpus[= ]|-G\s*)([\w.-]*[A-Za-z][\w.-]*):")
_SHARDS: Final = re.compile(r"--gres[= ]shard[:\s]")
_OPTIONS: Final = {
    "nodes": (r"-N\s*|--nodes[= ]", 1),
    "gpus_per_node": (r"--gres[= ](?:gpu|shard):|--gpus-per-node[= ]|--gpus[= ]|-G\s*", 1),
    "tasks_per_node": (r"--ntasks-per-node[= ]", 1),
}


class ScriptReport(msgspec.Struct, frozen=True):
    """What rlalloc makes of a script; ``bounds`` None where it leaves the job alone.

    ``gpu_memory_gib`` is that of a GPU, None where its type is unknown: then only parallel sizes count.
    ``nodes`` says how many GPUs a node has, and who says so. ``mistakes`` are those of the #RLALLOC lines, each with
    what is right; the bounds are then those without the wrong parts.
    """

    job_class: JobClass | None
    words: tuple[str, ...] | None
    fingerprint: str
    request: Allocation
    bounds: Bounds | None
    gpu_memory_gib: float | None = None
    nodes: str = ""
    mistakes: tuple[str, ...] = ()


def report_on(
    script: bytes, config: Config, gpus_per_node: int | None = None, gpu_type: str | None = None
) -> ScriptReport:
    """Read a script as the plugin and the daemon do, by the first rule for its class.

    ``gpus_per_node`` None: those of the site's largest node that the job may get. The #SBATCH lines tell the request
    as far as bounds need it, and the type of the GPUs if ``gpu_type`` is None. Raises ConfigError for a type of GPU
    of which the memory is not known.
    """
    job_class = class_of(script, config.commands)
    read = read_script(script, config.word_table)
    request = _request_of(script)
    if job_class is None:
        return ScriptReport(None, read.words, read.fingerprint, request, None)
    device = _device_of(script)
    nodes = node_gpus(_sbatch_lines(script), gpus_per_node, device)
    directives, mistakes = read_directives(" ".join(directive_words(script) or ()))
    site = next((rule.bounds for rule in config.rules if job_class in rule.classes), SiteBounds())
    most = None
    if not device.whole:  # as rlallocd.candidates does
        site, most = site.of_declared_counts, nodes.gpus
    consent = consent_of(
        read.words, config.scripts, job_class=job_class, task_per_gpu=task_per_gpu(request, directives)
    )
    shape = NodeShape(gpus=nodes.gpus, cpus=nodes.gpus * _CPUS_PER_GPU, mem_mib=nodes.gpus * _MIB_PER_GPU)
    try:
        bounds = bounds_for(request, directives, site, shape, most, consent)
    except DirectiveError as err:  # what its lines say cannot all be had at once
        directives, mistakes = Directives(), (*mistakes, str(err))
        bounds = bounds_for(request, directives, site, shape, most, consent)
    gib = _gpu_memory_gib(script, config, gpu_type)
    if read.words:
        facts = facts_of_job(read.words, directives.job_class or job_class)
        bounds = with_model_needs(bounds, request, facts, gib, nodes.gpus)
    return ScriptReport(job_class, read.words, read.fingerprint, request, bounds, gib, nodes.describe(), mistakes)


def print_report(report: ScriptReport) -> None:
    """Print the report for a person."""
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("class", report.job_class or "none: rlalloc leaves the job alone")
    shown = "not all could be read" if report.words is None else ", ".join(report.words) or "none"
    table.add_row("words", shown)
    table.add_row("fingerprint", report.fingerprint)
    request = report.request
    tasks = counted(request.tasks_per_node, "task")
    table.add_row(
        "request",
        f"{request.nodes} x {counted(request.gpus_per_node, 'GPU')}, {tasks} a node",
    )
    if report.bounds is not None:
        table.add_row("nodes", report.nodes)
        known = report.gpu_memory_gib is not None
        memory = f"{report.gpu_memory_gib:g} GiB" if known else "unknown: name the type of GPU with --gpu"
        table.add_row("GPU memory", memory)
        for name, line in bounds_lines(report.bounds):
            if name in ("script", "bounds: GPUs"):
                table.add_row(name, line)
        if report.mistakes:
            table.add_row(
                "#RLALLOC", "bounds without the wrong parts; until they are right, the job keeps its request"
            )
    CONSOLE.print(table)


def _gpu_memory_gib(script: bytes, config: Config, gpu_type: str | None) -> float | None:
    """The memory of a GPU: of the type that was asked for, else of the type in the #SBATCH lines."""
    if gpu_type is None:
        found = _GPU_TYPE.search(_sbatch_lines(script))
        return memory_gib(found[1], config.gpu_memory) if found is not None else None
    gib = memory_gib(gpu_type, config.gpu_memory)
    if gib is None:
        raise ConfigError(f"--gpu {gpu_type}: unknown; add its memory to gpu_memory in the configuration")
    return gib


def _sbatch_lines(script: bytes) -> str:
    return "\n".join(re.findall(r"^#SBATCH(.*)$", script.decode("latin-1"), re.MULTILINE))


def _request_of(script: bytes) -> Allocation:
    lines = _sbatch_lines(script)
    found = {}
    for name, (option, default) in _OPTIONS.items():
        match = re.search(rf"(?:{option})(?:[\w.-]*[A-Za-z][\w.-]*:)?([0-9]{{1,6}})(?![\w.])", lines)
        found[name] = max(1, int(match[1])) if match is not None else default
    cpus = max(1, found["gpus_per_node"] * _CPUS_PER_GPU // found["tasks_per_node"])
    memory = found["gpus_per_node"] * _MIB_PER_GPU
    return Allocation(
        nodes=found["nodes"],
        gpus_per_node=found["gpus_per_node"],
        tasks_per_node=found["tasks_per_node"],
        cpus_per_task=cpus,
        mem_mib_per_node=memory,
        time_limit_s=3600,
    )


def _device_of(script: bytes) -> Device:
    """What the script asks for: whole GPUs, slices or shards."""
    lines = _sbatch_lines(script)
    if _SHARDS.search(lines):
        return Device("shard")
    found = _GPU_TYPE.search(lines)
    return gpu_device(found[1] if found is not None else "")
