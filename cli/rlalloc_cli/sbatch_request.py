"""What the ``#SBATCH`` lines of a script ask for, as far as its bounds need it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlalloc.tres import gpus_of_request, memory_mib

_SHORT: Final = {
    "-N": "nodes",
    "-n": "ntasks",
    "-c": "cpus-per-task",
    "-G": "gpus",
    "-t": "time",
    "-p": "partition",
    "-C": "constraint",
    "-M": "clusters",
    "-m": "distribution",
    "-O": "overcommit",
    "-S": "core-spec",
    "-B": "extra-node-info",
}
_CPUS_IN_TRES: Final = re.compile(r"(?:^|,)cpu[:=]([1-9][0-9]{0,5})(?=,|$)")
_LARGEST: Final = 1_000_000
_SHOWN_TIME_LIMIT_S: Final = 3600


class SbatchRequest(msgspec.Struct, frozen=True):
    """The size, and which parts of it the lines state; what they do not, Slurm's defaults of the site decide."""

    size: Allocation
    states_cpus: bool
    states_memory: bool


def header_of(script: bytes) -> str:
    """The lines before the first command: sbatch and Slurm's burst buffers read no others."""
    lines = script.decode("latin-1").split("\n")
    return "\n".join(takewhile(lambda line: line.lstrip()[:1] in ("", "#"), lines))


def sbatch_lines(script: bytes) -> str:
    """The options of the ``#SBATCH`` lines, a line each."""
    return "\n".join(re.findall(r"^#SBATCH(.*)$", header_of(script), re.MULTILINE))


def request_of(lines: str, cpus_per_gpu: int, mib_per_gpu: int) -> SbatchRequest:
    """Return what the options ask for; of CPUs and memory that they do not state, as many as given for each GPU.

    Without GPUs, as many as for one.
    """
    options = options_of(lines)
    nodes, tasks = count_of(options, "nodes"), count_of(options, "ntasks")
    per_node = count_of(options, "ntasks-per-node") or count_of(options, "tasks-per-node")
    if nodes is None and tasks is not None and per_node is not None:
        nodes = -(-tasks // per_node)
    per_node = per_node or _parts(tasks, nodes)
    gpus = _gpus_per_node(options, nodes or 1, per_node or 1)
    per_node = per_node or gpus * (count_of(options, "ntasks-per-gpu") or 0) or 1
    cpus = _cpus_per_task(options, gpus, per_node)
    memory = _memory_per_node(options, gpus, cpus * per_node if cpus else None)
    size = Allocation(
        nodes=nodes or 1,
        gpus_per_node=gpus,
        tasks_per_node=per_node,
        cpus_per_task=cpus or max(1, max(1, gpus) * cpus_per_gpu // per_node),
        mem_mib_per_node=memory or max(1, gpus) * mib_per_gpu,
        time_limit_s=_SHOWN_TIME_LIMIT_S,
    )
    return SbatchRequest(size, cpus is not None, memory is not None)


def options_of(lines: str) -> dict[str, str]:
    """Each option with its last value. An option without a value has some text."""
    return dict(_options(lines))


def gres_of(options: Mapping[str, str]) -> str:
    """What ``--gres`` asks for, in Slurm's own words."""
    items = [item for item in options.get("gres", "").split(",") if item.lower() not in ("", "none")]
    return ",".join(item if item.startswith("gres") else f"gres:{item}" for item in items)


def gpus_per_task_of(options: Mapping[str, str]) -> int:
    """GPUs, or shards, of a task; 0 where the options do not state them by task."""
    tres = options.get("tres-per-task", "")
    count = count_of(options, "gpus-per-task") or gpus_of_request(tres) or gpus_of_request(tres, "shard")
    return min(count, _LARGEST)


def _options(lines: str) -> Iterator[tuple[str, str]]:
    """Each option with its value: ``--name=value``, ``--name value``, ``-N2``, ``-N 2``."""
    for line in lines.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = line.split()
        for word, following in zip(words, [*words[1:], ""], strict=False):
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                yield name, value if equals else following
            elif word[:2] in _SHORT:
                yield _SHORT[word[:2]], word[2:].removeprefix("=") or following


def count_of(options: Mapping[str, str], name: str) -> int | None:
    """A number above 0; of ``2-4`` the first, of ``a100:2`` the last part."""
    match = re.search(r"(?:^|:)([0-9]{1,6})(?:-[0-9]+)?$", options.get(name, ""))
    return min(int(match[1]), _LARGEST) if match is not None and int(match[1]) > 0 else None


def _parts(total: int | None, nodes: int | None) -> int | None:
    return None if total is None else max(1, total // (nodes or 1))


def _gpus_per_node(options: Mapping[str, str], nodes: int, tasks_per_node: int) -> int:
    """GPUs, or shards, of a node; 0 where the options ask for none."""
    gres = gres_of(options)
    if (per_node := gpus_of_request(gres) or gpus_of_request(gres, "shard")) > 0:
        return min(per_node, _LARGEST)
    if (per_task := gpus_per_task_of(options)) > 0:
        return per_task * tasks_per_node
    if (stated := count_of(options, "gpus-per-node") or _parts(count_of(options, "gpus"), nodes)) is not None:
        return stated
    if (per_socket := count_of(options, "gpus-per-socket")) is not None:
        return per_socket * _sockets_per_node(options)
    return tasks_per_node // (count_of(options, "ntasks-per-gpu") or _LARGEST)


def _sockets_per_node(options: Mapping[str, str]) -> int:
    """With --gpus-per-socket, sbatch requires it."""
    info = {"sockets": options.get("extra-node-info", "").partition(":")[0]}
    return count_of(options, "sockets-per-node") or count_of(info, "sockets") or 1


def _cpus_per_task(options: Mapping[str, str], gpus: int, tasks_per_node: int) -> int | None:
    if (per_gpu := count_of(options, "cpus-per-gpu")) is not None:
        return max(1, per_gpu * gpus // tasks_per_node)
    in_tres = _CPUS_IN_TRES.search(options.get("tres-per-task", ""))
    return count_of(options, "cpus-per-task") or (int(in_tres[1]) if in_tres is not None else None)


def _memory_per_node(options: Mapping[str, str], gpus: int, cpus: int | None) -> int | None:
    for name, times in (("mem", 1), ("mem-per-gpu", gpus), ("mem-per-cpu", cpus)):
        text = options.get(name, "").upper().removesuffix("B")
        try:
            mib = memory_mib(f"{text}M" if text.isdigit() else text)
        except ValueError:  # sbatch refuses it
            continue
        if mib and times:
            return round(mib * times)
    return None
