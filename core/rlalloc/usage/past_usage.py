"""Floors of memory and CPUs for jobs to come, from what like jobs used, with margins learned on the site itself."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rlalloc.past_job import PastJob, can_be_learned
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.usage.large_margin import ENOUGH, LargeMargin
from rlalloc.usage.learned_margin import LearnedMargin
from rlalloc.usage.like_jobs import FEWEST_USERS, KINDS, MOST_GROUPS, MOST_ROWS, Key, LikeJobs, keys_of
from rlalloc.usage.trimming_rules import TrimmingSection
from rlalloc.usage.used_amounts import Amounts, amounts_of

_MOST_MARGIN: Final = math.log(100.0)
"""A larger one says that nothing is known."""
_LEAST_SPREAD: Final = 0.02
"""Of the logarithm of what like jobs used: after many of the same amount, another one may differ."""
_DRAWN: Final = 4.0
"""As much as so many jobs counts the usual spread of groups of a kind."""
_KEPT: Final = 0.999
"""Of what was learned of that spread, job by job."""
_FEW: Final = 3
"""Groups of one, of two and of at least so many jobs, but fewer than ``least_jobs``, learn by themselves."""


Groups = Sequence[LikeJobs | None]


class Floor(NamedTuple):
    """The least that a job should get, by so many jobs of a kind, and the margin in it (0.2: a fifth)."""

    amount: float
    kind: str
    jobs: int
    margin: float


class PastFloors(NamedTuple):
    """Memory of a node [MiB] and CPUs per GPU that a job should get at least; None where too little is known."""

    node_mib: Floor | None
    cpus_per_gpu: Floor | None


NOTHING_KNOWN: Final = PastFloors(None, None)


class _Kind:
    """What was learned of one kind of like jobs: how far they differ among each other, and the margin."""

    def __init__(self) -> None:
        self.margin = LearnedMargin()
        self._squares = 0.0
        self._degrees = 0.0

    def base(self, used: Sequence[float], quantile: float) -> tuple[float, float]:
        """The logarithm of a quantile of what like jobs used, never interpolated downwards, and their spread.

        The spread of a few is drawn towards that of all groups of this kind: five that used the same amount are not
        sure to be followed by another one.
        """
        logs, squares = _deviations(used)
        number = len(logs)
        usual = self._squares / self._degrees if self._degrees else 0.0
        spread = math.sqrt((_DRAWN * usual + squares) / (_DRAWN + number - 1))
        return logs[min(number, math.ceil(quantile * (number + 1))) - 1], max(_LEAST_SPREAD, spread)

    def learn(self, used: Sequence[float], score: float, room: float) -> None:
        """Add a group's spread, and score and room of the job that came to it."""
        logs, squares = _deviations(used)
        self._squares = _KEPT * self._squares + squares
        self._degrees = _KEPT * self._degrees + len(logs) - 1
        self.margin.add(score, room)


class _Known(NamedTuple):
    """What a group of like jobs used, what was learned of groups as large, and whether some jobs may be forgotten."""

    name: str
    used: list[float]
    learned: _Kind
    cut_off: bool


class _Resource:
    """What was learned of one resource, for each kind of like jobs, and for small groups by their size.

    ``margin`` is the least one, and ``exceeded`` the part of the trimmed jobs that may go beyond a floor.
    """

    def __init__(
        self,
        used_by: Callable[[LikeJobs, JobFacts, float], list[float]],
        rules: TrimmingSection,
        margin: float,
        exceeded: float,
    ) -> None:
        self._used_by = used_by
        self._rules = rules
        self._least = math.log1p(margin)
        self._exceeded = exceeded
        self._full = {name: _Kind() for name in KINDS}
        self._few = [{name: _Kind() for name in KINDS} for _ in range(_FEW)]

    def learn(self, near_to_far: Iterable[_Known], used: float, asked: float) -> None:
        """Score what a job used against what the like jobs had used that a floor would have been taken from."""
        for _, known, kind, cut_off in near_to_far:
            if not cut_off:
                base, spread = kind.base(known, self._rules.quantile)
                kind.learn(known, (math.log(used) - base) / spread, (math.log(asked) - base) / spread)
            if kind.margin.bound(self._exceeded) < math.inf:
                return

    def floor(self, near_to_far: Iterable[_Known]) -> Floor | None:
        """The floor by the nearest like jobs of which enough was learned."""
        for name, known, kind, _ in near_to_far:
            bound = kind.margin.bound(self._exceeded)
            if bound == math.inf:
                continue
            base, spread = kind.base(known, self._rules.quantile)
            margin = max(self._least, spread * bound)
            if margin > _MOST_MARGIN:
                return None
            return Floor(math.exp(base + margin), name, len(known), math.expm1(margin))
        return None

    def is_more(self, groups: Groups, facts: JobFacts, used: float) -> bool:
        """Whether a job used more than the nearest like jobs that are enough."""
        for _, known, kind, _ in self.near_to_far(groups, facts):
            if len(known) >= self._rules.least_jobs:
                return math.log(used) > kind.base(known, self._rules.quantile)[0]
        return False

    def near_to_far(self, groups: Groups, facts: JobFacts, before_s: float = math.inf) -> Iterator[_Known]:
        """Like jobs that had ended by a time [s], from near to far."""
        for name, group in zip(KINDS, groups, strict=True):
            if group is not None and (known := self._used_by(group, facts, before_s)):
                enough = len(known) >= self._rules.least_jobs
                learned = self._full if enough else self._few[min(len(known), _FEW) - 1]
                yield _Known(name, known, learned[name], group.is_cut_off(before_s))


class PastUsage:
    """What jobs used, and the floors that follow; jobs are to be added in the order of their ends.

    Memory is bounded: MOST_GROUPS groups of like jobs, and MOST_ROWS jobs in them.
    """

    def __init__(self, rules: TrimmingSection) -> None:
        self.rules = rules
        self._groups: dict[tuple[int, Key], LikeJobs] = {}
        self._rows = 0
        self._memory = _Resource(LikeJobs.memory, rules, rules.memory_margin, rules.exceeded)
        self._cpus = _Resource(LikeJobs.cpus, rules, rules.cpu_margin, rules.cpus_exceeded)
        self._large = LargeMargin(rules.memory_margin, rules.exceeded)

    def add(self, job: PastJob) -> None:
        """Note what a job used that ended."""
        if not can_be_learned(job):
            return
        amounts = amounts_of(job)
        if not (amounts.node_mib > 0.0 or amounts.cpus_per_gpu > 0.0):
            return
        groups = self._groups_of(job)
        memory, cpus = amounts.node_mib, amounts.cpus_per_gpu
        if amounts.whole:
            if memory > 0.0:
                asked = max(memory, amounts.requested_mib)
                walk, again = itertools.tee(self._memory.near_to_far(groups, job, job.submitted_s))
                self._memory.learn(walk, memory, asked)
                if known := _nearest(again)[1]:
                    self._large.learn(known, memory, asked, _memory_step(job))
            if cpus > 0.0:
                walk = self._cpus.near_to_far(groups, job, job.submitted_s)
                self._cpus.learn(walk, cpus, max(cpus, amounts.requested_cpus_per_gpu))
        else:  # what it used counts only where it is more: it may have ended before its peak
            if not (memory > 0.0 and self._memory.is_more(groups, job, memory)):
                memory = math.nan
            if not (cpus > 0.0 and self._cpus.is_more(groups, job, cpus)):
                cpus = math.nan
            if math.isnan(memory) and math.isnan(cpus):
                return
        self._add(job, amounts._replace(node_mib=memory, cpus_per_gpu=cpus))

    def floors(self, facts: JobFacts) -> PastFloors:
        """The floors of a job to come."""
        groups = self._groups_of(facts)
        walk, again = itertools.tee(self._memory.near_to_far(groups, facts))
        memory = (self._memory.floor(walk), self._memory_with_large_margin(again, facts))
        least = min((each for each in memory if each is not None), key=lambda floor: floor.amount, default=None)
        return PastFloors(least, self._cpus.floor(self._cpus.near_to_far(groups, facts)))

    def _memory_with_large_margin(self, near_to_far: Iterable[_Known], facts: JobFacts) -> Floor | None:
        name, known = _nearest(near_to_far)
        if not known:
            return None
        mib = self._large.floor(known, facts.mem_mib / max(1, facts.nodes), _memory_step(facts))
        return None if mib is None else Floor(mib, name, len(known), mib / max(known) - 1.0)

    @property
    def groups(self) -> int:
        """How many groups of like jobs there are."""
        return len(self._groups)

    def _groups_of(self, facts: JobFacts) -> Groups:
        return [None if key is None else self._groups.get((kind, key)) for kind, key in enumerate(keys_of(facts))]

    def _add(self, job: PastJob, amounts: Amounts) -> None:
        for kind, (name, key) in enumerate(zip(KINDS, keys_of(job), strict=True)):
            if key is None:
                continue
            group = self._groups.pop((kind, key), None) or LikeJobs(FEWEST_USERS.get(name, 1))
            self._rows -= len(group)
            group.add(amounts, job.ended_s, job.user)
            self._rows += len(group)
            self._groups[kind, key] = group  # the last in the dict is the one that changed last
            while len(self._groups) > MOST_GROUPS or self._rows > MOST_ROWS:
                self._rows -= len(self._groups.pop(next(iter(self._groups))))


def _nearest(near_to_far: Iterable[_Known]) -> tuple[str, list[float]]:
    """The kind of a job's nearest like jobs, and what they used.

    The nearest group with ENOUGH jobs counts, or else the nearest one. Both are empty once a group is cut off.
    """
    nearest: tuple[str, list[float]] = "", []
    for name, known, _, cut_off in near_to_far:
        if cut_off:
            return "", []
        if len(known) >= ENOUGH:
            return name, known
        nearest = nearest if nearest[1] else (name, known)
    return nearest


def _memory_step(facts: JobFacts) -> float:
    """Memory of a node is trimmed to multiples of this [MiB]: a GiB for each GPU that the job has on it."""
    return 1024.0 * max(1, facts.gpus // max(1, facts.nodes))


def _deviations(used: Sequence[float]) -> tuple[list[float], float]:
    """The logarithms, ascending, and the sum of the squares of their deviations from the mean."""
    logs = sorted(map(math.log, used))
    mean = sum(logs) / len(logs)
    return logs, sum((value - mean) ** 2 for value in logs)
