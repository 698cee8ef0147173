"""What was asked, decided and applied for many jobs at once: few columns of the store, for reports."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from rlalloc.job import Allocation, Mode
from rlalloc.speed.longer_limits import ExpectedSlowdown
from rlalloc.store.database import Database
from rlalloc.store.row_access import parts
from rlalloc.store.rows import ApplicationState
from rlalloc.store.tables import APPLICATIONS, DECISIONS
from rlalloc.store.unreadable_rows import UnreadableRows

_DECIDED: Final = (
    *(DECISIONS.c.id, DECISIONS.c.job_id, DECISIONS.c.submitted_s, DECISIONS.c.user, DECISIONS.c.mode),
    *(DECISIONS.c.rule, DECISIONS.c.reason, DECISIONS.c.policy_version, DECISIONS.c.request),
    *(DECISIONS.c.allocation, DECISIONS.c.slowdown),
)
_APPLIED: Final = (
    *(APPLICATIONS.c.id, APPLICATIONS.c.decision_id, APPLICATIONS.c.state, APPLICATIONS.c.intended),
    APPLICATIONS.c.detail,
)
_NOT_KEPT: Final = ("left", "restored", "gone", "lost")
_SIZES: Final = msgspec.json.Decoder(Allocation)
_SLOWDOWNS: Final = msgspec.json.Decoder(ExpectedSlowdown)


class Undone(msgspec.Struct, frozen=True):
    """A change that did not come to be, or was taken back: how it ended (``ApplicationState``), and why."""

    state: ApplicationState
    why: str


class DecidedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One submission of a job in the store, in one line.

    ``asked`` is what its user submitted. ``decided`` is the size of the decision in force (of the first one where
    none was applied), None where that left the job as submitted; ``reason`` then says why. ``applied`` is the size
    that the last change gave the job, None where nothing was changed. ``slowdown`` is the expected run time in the
    decided size over that in the size asked for, None where it is not known. ``undone`` are changes that ended
    otherwise than intended, oldest first.
    """

    job_id: int
    submitted_s: int
    user: str
    mode: Mode
    rule: str
    reason: str
    asked: Allocation
    policy_version: str | None = None
    decided: Allocation | None = None
    applied: Allocation | None = None
    slowdown: float | None = None
    undone: tuple[Undone, ...] = ()


class _Decided(NamedTuple):
    """A row of the decisions."""

    id: str
    job_id: int
    submitted_s: int
    user: str
    mode: Mode
    rule: str
    reason: str
    policy_version: str | None
    asked: Allocation
    decided: Allocation | None
    slowdown: float | None


class _Applied(NamedTuple):
    """A row of the journal."""

    state: ApplicationState
    intended: Allocation
    detail: str


class DecidedJobs:
    """Reads ``DecidedJob``. Raises StoreError; rows that cannot be read are handled as the store's others."""

    def __init__(self, database: Database, unreadable: UnreadableRows) -> None:
        self._database = database
        self._unreadable = unreadable

    def of(self, job_ids: Collection[int]) -> tuple[DecidedJob, ...]:
        """All submissions of these job ids that were decided, by id and time."""
        return tuple(job for some in parts(sorted(set(job_ids))) for job in self._some(some))

    def _some(self, job_ids: Sequence[int]) -> Iterator[DecidedJob]:
        order = (DECISIONS.c.job_id, DECISIONS.c.submitted_s, DECISIONS.c.decided_s)
        decided = sa.select(*_DECIDED).where(DECISIONS.c.job_id.in_(job_ids)).order_by(*order)
        applied = sa.select(*_APPLIED).where(APPLICATIONS.c.job_id.in_(job_ids)).order_by(APPLICATIONS.c.id)
        with self._database.reading() as connection:
            decisions = [self._decided(row) for row in connection.execute(decided)]
            journal: defaultdict[str, list[_Applied | None]] = defaultdict(list)
            for row in connection.execute(applied):
                journal[row.decision_id].append(self._applied(row))
        submissions: defaultdict[tuple[int, int], list[_Decided]] = defaultdict(list)
        unreadable = set()
        for key, decision in decisions:
            if decision is None or None in journal[decision.id]:
                unreadable.add(key)
            else:
                submissions[key].append(decision)
        for key, mine in submissions.items():
            if key not in unreadable:
                yield _job(mine, journal)

    def _decided(self, row: Any) -> tuple[tuple[int, int], _Decided | None]:
        key = row.job_id, int(row.submitted_s)
        try:
            return key, _Decided(
                *(row.id, *key, row.user, row.mode, row.rule, row.reason, row.policy_version),
                asked=_SIZES.decode(row.request),
                decided=None if row.allocation is None else _SIZES.decode(row.allocation),
                slowdown=None if row.slowdown is None else _SLOWDOWNS.decode(row.slowdown).median,
            )
        except msgspec.MsgspecError as err:
            self._unreadable.found("decisions", "id", row.id, err)
            return key, None

    def _applied(self, row: Any) -> _Applied | None:
        try:
            return _Applied(row.state, _SIZES.decode(row.intended), row.detail)
        except msgspec.MsgspecError as err:
            self._unreadable.found("applications", "id", row.id, err)
            return None


def _job(decisions: Sequence[_Decided], journal: dict[str, list[_Applied | None]]) -> DecidedJob:
    steps = [(decision, step) for decision in decisions for step in journal[decision.id] if step is not None]
    begun = [(decision, step) for decision, step in steps if step.state == "begun"]
    first = decisions[0]
    in_force = begun[-1][0] if begun else first
    return DecidedJob(
        job_id=first.job_id,
        submitted_s=first.submitted_s,
        user=first.user,
        mode=in_force.mode,
        rule=in_force.rule,
        reason=in_force.reason,
        policy_version=in_force.policy_version,
        asked=first.asked,
        decided=in_force.decided,
        applied=begun[-1][1].intended if begun else None,
        slowdown=in_force.slowdown,
        undone=tuple(Undone(step.state, step.detail) for _, step in steps if step.state in _NOT_KEPT),
    )
