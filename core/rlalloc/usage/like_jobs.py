"""What like jobs used lately: groups from near to far, kept up to date job by job."""

import math
from array import array
from typing import Final

from rlalloc.run_times.job_facts import JobFacts, family_name
from rlalloc.usage.used_amounts import Amounts

RECENT: Final = 100
"""So many of a group's last jobs count. The next one is beyond the most of n jobs once in n + 1 times: a margin that
makes up for fewer of them has to be large where needs differ by factors, as on real sites."""
MOST_GROUPS: Final = 60_000
MOST_ROWS: Final = 1_200_000
"""Of all kinds together; the groups in which a job ended last are kept."""
KINDS: Final = {
    "script_and_size": "jobs of this user with this script and size",
    "script": "jobs of this user with this script",
    "name_and_size": "jobs of this user with this name and size",
    "name": "jobs of this user with this name",
    "size": "jobs of this user with this size",
    "user": "jobs of this user",
    "account": "jobs of this account and size",
    "partition": "jobs of this partition and size",
}
"""Jobs that count as alike, the nearest first, and how people call them."""
Key = tuple[object, ...]
_END, _MEMORY, _GPUS, _CPUS, _ASKED_MIB, _ASKED_CPUS = range(6)
_WIDTH: Final = 6


class LikeJobs:
    """The last jobs of one group: RECENT rows of when each ended, what it used and what it asked for."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = array("d")

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def add(self, amounts: Amounts, ended_s: float) -> None:
        """Add a job that ended."""
        self._rows.extend(
            (
                ended_s,
                amounts.node_mib,
                float(amounts.gpus_per_node),
                amounts.cpus_per_gpu,
                amounts.requested_mib,
                amounts.requested_cpus_per_gpu,
            )
        )
        if len(self._rows) > RECENT * _WIDTH:
            del self._rows[:_WIDTH]

    def memory(self, facts: JobFacts, before_s: float = math.inf) -> list[float]:
        """What each used says this job will use of a node, MiB; of those that ended by ``before_s``.

        Between the fewest and the most GPUs a node that they had, use counts by the square root of the ratio: half
        way between memory that belongs to the node and memory that belongs to each GPU. How far that is off, the
        margin learns. Beyond the most it grows with the GPUs, and below the fewest it stays. Where this job asks for
        more than any of them did, as much more.
        """
        gpus = facts.gpus // max(1, facts.nodes)
        rows = zip(*(self._rows[column::_WIDTH] for column in (_END, _MEMORY, _GPUS, _ASKED_MIB)), strict=True)
        known = [row[1:] for row in rows if row[1] > 0.0 and row[0] <= before_s]
        counts = [had for _, had, _ in known if had]
        asks = facts.mem_mib / max(1, facts.nodes)
        if not counts or not gpus or min(counts) == max(counts) == gpus:
            return _scaled([(used, asked) for used, _, asked in known], asks)
        within = min(max(gpus, min(counts)), max(counts))
        beyond = max(1.0, gpus / max(counts))
        return _scaled(
            [(used * beyond * math.sqrt(within / (had or within)), asked) for used, had, asked in known], asks
        )

    def cpus(self, facts: JobFacts, before_s: float = math.inf) -> list[float]:
        """Likewise of its CPUs per GPU."""
        rows = zip(*(self._rows[column::_WIDTH] for column in (_END, _CPUS, _ASKED_CPUS)), strict=True)
        known = [(used, asked) for end_s, used, asked in rows if used > 0.0 and end_s <= before_s]
        return _scaled(known, facts.cpus / (facts.gpus or max(1, facts.nodes)))

    def is_cut_off(self, before_s: float) -> bool:
        """Whether jobs that ended by then may have been forgotten meanwhile."""
        return len(self) == RECENT and self._rows[_END] > before_s


def _scaled(used_and_asked: list[tuple[float, float]], asks: float) -> list[float]:
    most_asked = max((asked for _, asked in used_and_asked), default=0.0)
    factor = asks / most_asked if asks > most_asked > 0.0 else 1.0
    return [used * factor for used, _ in used_and_asked]


def keys_of(facts: JobFacts) -> tuple[Key | None, ...]:
    """The group of each of KINDS that a job belongs to; None where what names it is not known."""
    user, account, partition, name = facts.user, facts.account, facts.partition, family_name(facts.name)
    size = (facts.nodes, facts.gpus)
    return (
        (user, account, partition, name, facts.script, size) if facts.script else None,
        (user, facts.script) if facts.script else None,
        (user, account, partition, name, size),
        (user, name),
        (user, size),
        (user,),
        (account, partition, size),
        (partition, size),
    )
