"""Which jobs rlallocd reads again just before their updates: those of which rlalloc.lua may not know all changes."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rlalloc.store import Store
from rlallocd.slurm import JobRecord, RequestFields, Slurm, UpdatePlan
from rlallocd.slurm_readings import SlurmReadings
from rlallocd.submissions.candidates import find_candidates
from rlallocd.transactions.transactions import Applier

from .slurm_in_memory import SlurmInMemory
from .test_bursts import BEGIN_S, FOUR
from .test_journal_entries import as_size
from .test_redecision_rules import EIGHT, decision_for
from .test_request_sizes_and_tags import ENFORCE

JOBS = 50
NEW = frozenset(range(2, JOBS + 1))
"""Of the jobs 1 to JOBS, the first is known for longer."""


class JudgingSlurm(SlurmInMemory):
    """It takes every update, and calls rlalloc.lua if it ``judges``; ``read``: which jobs were read."""

    def __init__(self) -> None:
        super().__init__([submitted(job_id) for job_id in range(1, JOBS + 1)])
        self.judges = True
        self.read: list[int] = []

    def update(self, plan: UpdatePlan) -> None:
        super().update(plan)
        before, comment = self.queue[plan.job_id], dict(plan.fields)["AdminComment"]
        noted = re.sub("[ ;]rlalloc-read:.*", "", comment) if self.judges else comment
        self.queue[plan.job_id] = msgspec.structs.replace(
            as_size(FOUR),
            job_id=plan.job_id,
            begin_s=BEGIN_S,
            admin_comment=noted,
            is_array=before.is_array,
            array_job_id=before.array_job_id,
        )

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        self.read += job_ids
        return super().read_back(job_ids)


def submitted(job_id: int) -> JobRecord:
    """A job that is deferred for us."""
    job = as_size(EIGHT)
    tag = job.admin_comment.replace("begin=2000", f"begin={BEGIN_S}")
    return msgspec.structs.replace(job, job_id=job_id, begin_s=BEGIN_S, reason="BeginTime", admin_comment=tag)


FULL = f"{'x' * 65_300} {submitted(5).admin_comment}"
"""An AdminComment that has hardly any room left in slurmdbd."""


class Applied:
    """Applies decisions on jobs of a JudgingSlurm; ``read`` says how often each of them was read for that."""

    def __init__(self, slurm: JudgingSlurm, store: Store) -> None:
        self.slurm = slurm
        self.store = store
        self.applier = Applier(cast("Slurm", slurm), store, Counter())

    def read(self, *job_ids: int, read_s: float | None = 5.0) -> Counter[int]:
        queue = [self.slurm.queue[job_id] for job_id in job_ids]
        decided = [
            (
                candidate,
                msgspec.structs.replace(decision_for(candidate.job), id=str(candidate.job.job_id), allocation=FOUR),
            )
            for candidate in find_candidates(queue, ENFORCE, set())
        ]
        self.store.add_decisions([decision for _, decision in decided])
        self.slurm.read = []
        self.applier.apply(decided, read_s, NEW)
        assert [self.store.applications(str(job_id))[-1].state for job_id in job_ids] == ["begun"] * len(job_ids)
        return Counter(self.slurm.read)


@pytest.fixture
def applied(tmp_path: Path) -> Iterator[Applied]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield Applied(JudgingSlurm(), store)
    store.close()


def once(*job_ids: int) -> Counter[int]:
    return Counter(job_ids)


def twice(*job_ids: int) -> Counter[int]:
    return once(*job_ids, *job_ids)


def test_new_jobs_are_read_once_if_rlalloc_lua_judges_updates(applied: Applied) -> None:
    assert applied.read(2, 3) == twice(2, 3)  # nothing is known so far
    assert applied.read(4, 5) == once(4, 5)
    applied.slurm.judges = False
    assert applied.read(6) == once(6)  # it has just ended
    assert applied.read(7) == twice(7)
    applied.slurm.judges = True
    assert applied.read(8) == twice(8)
    assert applied.read(*range(9, JOBS)) == once(*range(9, JOBS))


@pytest.mark.parametrize(
    "odd",
    [{"is_array": True, "array_job_id": 5}, {"fields": RequestFields()}, {"admin_comment": FULL}],
    ids=["an array", "not read in whole", "no room for the note"],
)
def test_an_odd_job_is_read_before_its_update(applied: Applied, odd: dict[str, Any]) -> None:
    applied.read(2)
    applied.slurm.queue[5] = msgspec.structs.replace(applied.slurm.queue[5], **odd)
    assert applied.read(4, 5) == once(4) + twice(5)


def test_a_job_that_an_earlier_cycle_has_read_is_read_again(applied: Applied) -> None:
    """What squeue's columns do not show may be from that cycle."""
    applied.read(2)
    assert applied.read(1, 3) == twice(1) + once(3)


def test_all_jobs_are_read_again_if_the_time_of_the_reading_is_unknown(applied: Applied) -> None:
    """Then rlalloc.lua cannot judge."""
    applied.read(2)
    assert applied.read(3, read_s=None) == twice(3)
    assert applied.read(4) == once(4)


def test_a_job_is_new_in_the_first_reading_that_shows_it() -> None:
    slurm = SlurmInMemory([submitted(1)])
    readings = SlurmReadings(cast("Slurm", slurm), Counter(), lambda: None)
    for queue, new in (((1,), {1}), ((1, 2, 3), {2, 3}), ((2, 3), set()), ((1, 2), {1})):
        slurm.queue = {job_id: submitted(job_id) for job_id in queue}
        readings.jobs()
        assert readings.new_jobs == new
