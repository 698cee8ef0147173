"""Reads what the columns of squeue leave out of some jobs, with one scontrol for all of them.

scontrol reads commands from its standard input, so that one process shows several jobs, each by a message of its own.
Without an id, ``scontrol show job`` shows the whole queue by one message. ``squeue --json`` would take several times
as long.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from rlalloc.tres import memory_mib
from rlallocd.slurm.json_reader import whole_list
from rlallocd.slurm.pace import PART_OF_LIMIT, JobsPerCommand
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmUnavailable
from rlallocd.slurm.slurm_records import NO_NEEDS, NodeNeeds

_SHOWN_ONE_BY_ONE: Final = 1 / 20
"""The largest part of the queue that is shown by a message for each job. With munge, such a message takes as much
processor time as 28 jobs of the whole queue (22.05)."""
_MOST_ALONE: Final = 5
"""Beyond that, jobs that others imitate wait for another reading."""
_JOB: Final = re.compile(r"JobId=([0-9]{1,10}) ")
_NODES: Final = re.compile(r" NumNodes=[0-9]{1,10}(?:-([0-9]{1,10}))? ")
_MEMORY: Final = re.compile(r" MinMemory(CPU|Node|TRES)=")
_EXCLUDED: Final = re.compile(r" ExcNodeList=(?:\(null\)|(\S+)) ")
_ARRAY: Final = re.compile(r"JobId=[0-9]{1,10} ArrayJobId=([0-9]{1,10}) ArrayTaskId=([-0-9,:.]*)(?:%([0-9]+))? ")
_PARTS: Final = re.compile(
    r" ReqB:S:C:T=[^ :]*:[^ :]*:(\*|[0-9]{1,10}):(\*|[0-9]{1,10}) .{0,1000}? Socks/Node=(\*|[0-9]{1,10}) "
)
_SPARED: Final = re.compile(r" (?:Core|Thread)Spec=(\*|\d+) ")
_TMP_DISK: Final = re.compile(r" MinTmpDiskNode=(\S{1,20}) ")
_CONTIGUOUS: Final = re.compile(r" Contiguous=(\d) ")
_MAY_WAIT: Final = re.compile(r" JobState=(?:PENDING|COMPLETING|REQUEUED|REQUEUE_HOLD|REQUEUE_FED|SPECIAL_EXIT) ")
"""scontrol shows a requeued task as COMPLETING at first, but squeue counts it as pending."""
_NEAR_GPUS: Final = " GresEnforceBind=Yes "
_BURST_BUFFER: Final = " BurstBuffer="
_SWITCHES: Final = re.compile(r" Switches=[1-9]\d*@")
_SCRONTAB: Final = re.compile(r" CronJob=Yes ")


class RequestDetails(msgspec.Struct, frozen=True):
    """The most nodes that a job may get (0: the user set no maximum), and whether its memory is per CPU or per node.

    ``excluded_nodes`` is a host list. ``is_split``: some tasks of the array have job ids of their own. squeue shows
    the pending tasks as if they were still one job. ``array_tasks`` are the tasks that still are; it is empty where
    scontrol cuts a long list. At most ``array_parallel`` of them run at once (0: any number). ``own_tasks`` are the
    job ids of the other pending tasks, which were requeued or changed alone.
    """

    max_nodes: int
    mem_per_cpu: bool
    is_scrontab: bool
    is_split: bool = False
    array_tasks: str = ""
    array_parallel: int = 0
    own_tasks: tuple[int, ...] = ()
    excluded_nodes: str = ""
    needs: NodeNeeds = NO_NEEDS


def request_details(
    commands: Commands, names: Mapping[int, str], queued: int, pace: JobsPerCommand
) -> dict[int, RequestDetails | None]:
    """Read jobs by id and name, of so many in the queue. Raises SlurmError.

    Jobs that slurmctld no longer knows are left out, and of many jobs those that a slow slurmctld does not show in a
    command's time limit. A job's name can be any text. It is cut off before the line is searched; a job of which
    another text imitates the line is asked for alone. None stands for a job that cannot be read even so: its own
    texts imitate its line.
    """
    if not names:
        return {}
    if len(names) <= _SHOWN_ONE_BY_ONE * queued:
        return _one_by_one(commands, names, pace)
    found = _details_in(commands.run("scontrol", "--oneliner", "--all", "show", "job"), names)
    # The whole queue has texts of all users, and any may imitate a line. What that can spoil is asked for again.
    doubtful = {job_id: name for job_id, name in names.items() if job_id not in found or found[job_id].is_split}
    certain: dict[int, RequestDetails | None] = {
        job_id: details for job_id, details in found.items() if job_id not in doubtful
    }
    return certain | _one_by_one(commands, doubtful, pace)


def _one_by_one(
    commands: Commands, names: Mapping[int, str], pace: JobsPerCommand
) -> dict[int, RequestDetails | None]:
    """By a message for each job, in a command's time limit. Those that another one imitates get their own process.

    Raises SlurmError where no job could be read.
    """
    found: dict[int, RequestDetails | None] = {}
    imitated: list[int] = []
    left, until_s = list(names), time.monotonic() + commands.timeout_s
    try:
        while left and (limit_s := until_s - time.monotonic()) >= PART_OF_LIMIT * commands.timeout_s:
            part, left = left[: pace.most], left[pace.most :]
            text = _shown(commands, part, pace, limit_s)
            found |= _details_in(text, {job_id: names[job_id] for job_id in part})
            imitated += [job_id for job_id in part if job_id not in found and f"JobId={job_id} " in text]
        if len(names) == 1:
            return found or dict.fromkeys(imitated)
        for job_id in imitated[:_MOST_ALONE]:
            if (limit_s := until_s - time.monotonic()) >= PART_OF_LIMIT * commands.timeout_s:
                found |= _one_by_one(commands.within(limit_s), {job_id: names[job_id]}, pace)
    except SlurmUnavailable:
        if not found:
            raise
    return found


def _shown(commands: Commands, job_ids: Sequence[int], pace: JobsPerCommand, limit_s: float) -> str:
    began_s, asked = time.monotonic(), [f"show job {job_id}" for job_id in job_ids]
    try:
        return commands.within(limit_s).converse("scontrol", "--oneliner", lines=asked)
    finally:
        pace.took(len(job_ids), time.monotonic() - began_s, commands.timeout_s)


def _details_in(text: str, names: Mapping[int, str]) -> dict[int, RequestDetails]:
    """Of each job whose line is there, and is like no other line of that job and name."""
    arrays_of: defaultdict[int, set[int]] = defaultdict(set)
    parts_of: defaultdict[int, set[int]] = defaultdict(set)
    waiting_in: defaultdict[int, set[int]] = defaultdict(set)
    lines: defaultdict[int, list[int]] = defaultdict(list)
    for start in _line_starts(text):
        if job := _JOB.match(text, start):
            lines[int(job[1])].append(start)
            if array := _ARRAY.match(text, start):
                arrays_of[int(job[1])].add(int(array[1]))
                parts_of[int(array[1])].add(int(job[1]))
                if _MAY_WAIT.search(text, start, _end_of_line(text, start)):
                    waiting_in[int(array[1])].add(int(job[1]))
    found = {}
    for job_id, name in names.items():
        heads = [_head(name).match(text, start) for start in lines[job_id]]
        shown = {_details_after(text, head) for head in heads if head is not None}
        if len(shown) == 1 and (details := shown.pop()) is not None:
            is_split = any(len(parts_of[array]) > 1 for array in arrays_of.get(job_id, ()))
            own_tasks = waiting_in[job_id] - {job_id} if job_id in arrays_of.get(job_id, ()) else set()
            found[job_id] = msgspec.structs.replace(details, is_split=is_split, own_tasks=tuple(sorted(own_tasks)))
    return found


def _line_starts(text: str) -> Iterator[int]:
    """Where lines begin that may be those of jobs."""
    if text.startswith("JobId="):
        yield 0
    before = text.find("\nJobId=")
    while before >= 0:
        yield before + 1
        before = text.find("\nJobId=", before + 1)


@lru_cache(maxsize=4096)
def _head(name: str) -> re.Pattern[str]:
    """What the line of a job of this name begins with."""
    return re.compile(rf"JobId=\d+ (?:\w+=\S+ )*?JobName={re.escape(name)} ")


def _details_after(text: str, head: re.Match[str]) -> RequestDetails | None:
    """What a line says after its head. One line does not show the other tasks of its array."""
    position = head.end() - 1
    line = text[position : _end_of_line(text, position)]
    nodes = _NODES.search(line)
    memory = _MEMORY.search(line, nodes.end()) if nodes else None
    if nodes is None or memory is None:
        return None
    excluded = _EXCLUDED.search(line, 0, nodes.start() + 1)
    array = _ARRAY.match(text, head.start())
    return RequestDetails(
        max_nodes=int(nodes[1] or 0),
        mem_per_cpu=memory[1] == "CPU",
        is_scrontab=_SCRONTAB.search(line, 0, nodes.start() + 1) is not None,
        array_tasks=whole_list(array[2]) if array else "",
        array_parallel=int(array[3] or 0) if array else 0,
        excluded_nodes=(excluded[1] or "") if excluded else "",
        needs=_needs(line, text[position + len(line) : _end_of_job(text, position)], nodes.end() - 1),
    )


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return end if end >= 0 else len(text)


def _end_of_job(text: str, position: int) -> int:
    end = text.find("\nJobId=", position)
    return end if end >= 0 else len(text)


def _needs(line: str, rest: str, start: int) -> NodeNeeds:
    """Of the fields after NumNodes, those that a user writes as they like come last, but for three.

    These are in the line or in the ``rest`` of what is shown of the job, after a comment that has line ends.
    """
    shown = f"{line}{rest} "
    parts = _PARTS.search(line, start)
    cores, threads, sockets = (int(part) if part.isdigit() else 0 for part in (parts.groups() if parts else "000"))
    spared, tmp_disk = _SPARED.search(line, start), _TMP_DISK.search(line, start)
    contiguous = _CONTIGUOUS.search(line, start)
    return NodeNeeds(
        sockets=sockets,
        cores=cores,
        threads=threads,
        tmp_disk_mib=round(memory_mib(tmp_disk[1]) or 0) if tmp_disk else 0,
        contiguous=contiguous is not None and contiguous[1] == "1",
        near_gpus=_NEAR_GPUS in shown,
        spares_cores=spared is not None and spared[1] not in ("*", "0"),
        few_switches=_SWITCHES.search(shown, start) is not None,
        burst_buffer=_BURST_BUFFER in shown,
    )
