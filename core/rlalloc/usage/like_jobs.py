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
FEWEST_USERS: Final = {"account": 3, "partition": 5}
"""Groups of several users count only with jobs of so many, or one array of tiny jobs would speak for a user without a
past. People of an account do similar work, and many accounts have few; those of a partition share no more than it."""
MOST_OF_USER: Final = 5
"""In such a group, so many of a user's last jobs count."""
Key = tuple[object, ...]
_END, _MEMORY, _GPUS, _CPUS, _ASKED_MIB, _ASKED_CPUS, _USER = range(7)
_WIDTH: Final = 7


class LikeJobs:
    """The last jobs of one group: RECENT rows of when each ended, what it used and asked for, and whose it was.

    With ``fewest_users`` above 1, MOST_OF_USER of each user are kept, and say nothing until so many users are known.
    """

    __slots__ = ("_fewest_users", "_rows")

    def __init__(self, fewest_users: int = 1) -> None:
        self._fewest_users = fewest_users
        self._rows = array("d")

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def add(self, amounts: Amounts, ended_s: float, user: str = "") -> None:
        """Add a job that ended."""
        whose = float(hash(user))
        if self._fewest_users > 1 and (users := self._rows[_USER::_WIDTH]).count(whose) >= MOST_OF_USER:
            first = users.index(whose) * _WIDTH
            del self._rows[first : first + _WIDTH]
        self._rows.extend(
            (
                ended_s,
                amounts.node_mib,
                float(amounts.gpus_per_node),
                amounts.cpus_per_gpu,
                amounts.requested_mib,
                amounts.requested_cpus_per_gpu,
                whose,
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
        known = self._known(before_s, _MEMORY, _GPUS, _ASKED_MIB)
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
        known = self._known(before_s, _CPUS, _ASKED_CPUS)
        return _scaled([(used, asked) for used, asked in known], facts.cpus / (facts.gpus or max(1, facts.nodes)))

    def _known(self, before_s: float, *columns: int) -> list[tuple[float, ...]]:
        """These columns of the jobs that ended by then, where the first is known; none of too few users."""
        rows = zip(*(self._rows[column::_WIDTH] for column in (_END, _USER, *columns)), strict=True)
        known = [row[1:] for row in rows if row[2] > 0.0 and row[0] <= before_s]
        enough = self._fewest_users == 1 or len({row[0] for row in known}) >= self._fewest_users
        return [row[1:] for row in known] if enough else []

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
