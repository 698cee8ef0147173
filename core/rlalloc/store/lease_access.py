"""The lease: which of several rlallocd, one beside each slurmctld of a site, acts (rlallocd.process.control_lease).

Each change is a compare-and-swap of one row, so that of two programs only one succeeds. No clock of one machine is
compared with that of another: who waits for a lease sees whether it is renewed.
"""

from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from rlalloc.errors import LeaseLost
from rlalloc.store.database import Database
from rlalloc.store.tables import LEASES

_NAME: Final = "rlallocd"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who may act. ``holder`` is a host's name, empty before anybody was; each taking counts ``epoch`` up.

    Its holder counts as gone when ``renewals`` has not changed for ``lasts_s``, which is 0 once it has given up.
    ``renewed_s`` is for people: the time at which the holder renewed it, by its clock. ``seal_key`` is the
    fingerprint of the key by which the holder seals the journal: with another one nobody could read it.
    """

    holder: str = ""
    epoch: int = 0
    renewals: int = 0
    lasts_s: float = 0.0
    renewed_s: float = 0.0
    seal_key: str = ""


class LeaseAccess:
    """Reads and swaps the row. Raises StoreError."""

    def __init__(self, database: Database, seal_key: str) -> None:
        self._database = database
        self._seal_key = seal_key

    def read(self) -> Lease:
        """The lease as it is."""
        with self._database.reading() as connection:
            row = connection.execute(sa.select(LEASES).where(LEASES.c.name == _NAME)).mappings().first()
        return Lease() if row is None else Lease(**{field: row[field] for field in Lease.__struct_fields__})

    def can_read_journal_of(self, seen: Lease) -> bool:
        """Whether the journal that the holder sealed can be read here, with the key of this program."""
        return seen.seal_key in ("", self._seal_key)

    def take(self, seen: Lease, holder: str, lasts_s: float, now_s: float) -> Lease | None:
        """Make ``holder`` the holder, if the lease is still as it was ``seen``; None where somebody was faster.

        From then on this program writes to the store only while nobody else has taken the lease: a transaction that
        writes raises LeaseLost then.
        """
        taken = Lease(holder=holder, epoch=seen.epoch + 1, lasts_s=lasts_s, renewed_s=now_s, seal_key=self._seal_key)
        self._database.fence = None
        if not self._swap(seen, taken):
            return None
        self._database.fence = partial(_require_epoch, taken.epoch)
        return taken

    def renew(self, held: Lease, now_s: float) -> Lease | None:
        """Renew a lease that is held; None where somebody else has taken it."""
        renewed = msgspec.structs.replace(held, renewals=held.renewals + 1, renewed_s=now_s)
        try:
            return renewed if self._swap(held, renewed) else None
        except LeaseLost:
            return None

    def give_up(self, held: Lease, now_s: float) -> None:
        """Let the next one have it at once; nothing happens where somebody else has taken it."""
        with suppress(LeaseLost):
            self._swap(held, msgspec.structs.replace(held, lasts_s=0.0, renewed_s=now_s))

    def _swap(self, before: Lease, after: Lease) -> bool:
        values: dict[str, Any] = msgspec.structs.asdict(after)
        same = (LEASES.c.name == _NAME, LEASES.c.epoch == before.epoch, LEASES.c.renewals == before.renewals)
        with self._database.writing() as connection:
            return connection.execute(sa.update(LEASES).where(*same).values(values)).rowcount == 1


def _require_epoch(epoch: int, connection: sa.Connection) -> None:
    """Raise LeaseLost, in a transaction that writes, where somebody has taken the lease; nobody can until it ends."""
    query = sa.select(LEASES.c.epoch, LEASES.c.holder).where(LEASES.c.name == _NAME).with_for_update()
    found = connection.execute(query).first()
    if found is None or found.epoch != epoch:
        raise LeaseLost(f"rlallocd on {found.holder if found is not None else 'another host'} has taken over")
