"""What neither columns nor, on 22.05, JSON tell of a few jobs at little cost: read by one scontrol for all of them.

``squeue --json`` of 22.05 prints all jobs whatever it is asked for. scontrol reads commands from its standard input,
so that one process shows several jobs, each by a message of its own that costs slurmctld next to nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from rlallocd.slurm.slurm_commands import Commands

_NODES: Final = re.compile(r" NumNodes=\d+(?:-(\d+))? ")
_MEMORY: Final = re.compile(r" MinMemory(CPU|Node|TRES)=")
_ARRAY: Final = re.compile(r"^JobId=(\d+) ArrayJobId=(\d+) ", re.MULTILINE)
_SCRONTAB: Final = re.compile(r" CronJob=Yes ")


class RequestDetails(msgspec.Struct, frozen=True):
    """The most nodes that a job may get (0: its user set no end), and whether its memory is per CPU or per node.

    ``is_split`` tells of an array some of whose tasks stand in the queue by themselves: squeue shows those that are
    pending as if they were still one job (but for 22.05's --array-unique, which later versions do not have).
    """

    max_nodes: int
    mem_per_cpu: bool
    is_scrontab: bool
    is_split: bool = False


def request_details(commands: Commands, names: Mapping[int, str]) -> dict[int, RequestDetails]:
    """Read jobs by id and name; one that slurmctld does not know any more is left out. Raises SlurmUnavailable.

    Users can write what they like into a job's name. It is cut off before anything is looked for, and if it shows
    another job in a line of its own, what is shown of that one counts as unknown.
    """
    if not names:
        return {}
    text = commands.converse("scontrol", "--oneliner", lines=[f"show job {job_id}" for job_id in names])
    array_of = {int(job_id): int(array) for job_id, array in _ARRAY.findall(text)}
    parts = Counter(array_of.values())
    found = {}
    for job_id, name in names.items():
        heads = re.finditer(rf"^JobId={job_id} (?:\w+=\S+ )*?JobName={re.escape(name)} ", text, re.MULTILINE)
        shown = {_details_after(text, head.end()) for head in heads}
        if len(shown) == 1 and (details := shown.pop()) is not None:
            is_split = parts[array_of.get(job_id, 0)] > 1
            found[job_id] = msgspec.structs.replace(details, is_split=is_split)
    return found


def _details_after(text: str, position: int) -> RequestDetails | None:
    line = text[position - 1 :].partition("\n")[0]
    nodes = _NODES.search(line)
    memory = _MEMORY.search(line, nodes.end()) if nodes else None
    if nodes is None or memory is None:
        return None
    return RequestDetails(
        max_nodes=int(nodes[1] or 0),
        mem_per_cpu=memory[1] == "CPU",
        is_scrontab=_SCRONTAB.search(line, 0, nodes.start() + 1) is not None,
    )
