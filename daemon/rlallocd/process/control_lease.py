"""Which rlallocd acts, on a site whose slurmctld has a backup: one runs beside each slurmctld, over one store.

It acts where its own slurmctld is in control, and only while it holds the lease in the store (``rlalloc.store``,
``leases``). It renews the lease while it works, and at least once a batch of updates. One that cannot, stops in time:
the other takes the lease when it has not seen a renewal for as long as the lease lasts, by its own clock alone.
docs/admin/two-controllers.md has the whole.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from rlalloc.errors import LeaseLost, StoreError
from rlalloc.store import Lease, Store
from rlalloc.store.database import why_not_shared
from rlallocd.slurm import Slurm, host_of_this_machine, why_not_in_control

_log = logging.getLogger(__name__)

RENEW_AFTER_S: Final = 4.0
"""So old may the last renewal be before another one is written."""
SLACK_S: Final = 10.0
"""A lease lasts so much longer than one of Slurm's commands may take."""


def _seconds() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Turn(NamedTuple):
    """Whether this rlallocd may act.

    ``why_not`` is empty where it may. ``others_acted``: somebody else has, since this one last did, so that all that
    this one knows of jobs is old.
    """

    why_not: str
    others_acted: bool


class ControlLease:
    """The right to act for the site. For the loop's thread alone."""

    def __init__(
        self, store: Store, store_url: str, slurm: Slurm, host_name: str, clock: Callable[[], float] = _seconds
    ) -> None:
        self._access = store.lease
        self._slurm = slurm
        self._clock = clock
        self.controllers = slurm.config.controllers
        self.host = host_of_this_machine(self.controllers, host_name)
        self._name = self.host or host_name
        self._not_shared = why_not_shared(store_url)
        if not self.host:
            _log.warning(
                "%s is none of the controllers of slurm.conf (%s): rlallocd acts whichever of them is in control",
                *(host_name, ", ".join(self.controllers)),
            )
        self._seen = self._access.read()
        self._seen_s = clock()
        self._held: Lease | None = None
        self._renewed_s = clock()
        self._epoch = 0
        slurm.only_while(self.confirm, self.renew)

    @property
    def holder(self) -> str:
        """Whose turn it was when somebody last looked; empty where nobody acted yet."""
        return self._seen.holder

    def keep(self) -> Turn:
        """Take or renew the lease where slurmctld of this machine is in control; give it up where it is not.

        Raises StoreError, SlurmError.
        """
        why = self._why_not_here()
        if why:
            self.give_up()
            self._look()
            return self._not_mine(why)
        if self._held is not None:
            try:
                self.confirm()
            except LeaseLost as err:
                self._look()
                return self._not_mine(str(err))
            return Turn("", others_acted=False)
        return self._take()

    def confirm(self) -> None:
        """Renew the lease if that is due; before each command that changes jobs. Raises LeaseLost."""
        if self._clock() - self._renewed_s > RENEW_AFTER_S or self._held is None:
            self.renew()

    def renew(self) -> None:
        """Renew the lease, if nobody has taken it; before each batch of updates. Raises LeaseLost.

        While the store fails, the lease holds for as long as nobody else can have taken it: updates that are under
        way can be finished meanwhile.
        """
        held, now_s = self._held, self._clock()
        if held is None:
            raise LeaseLost("this rlallocd does not act: it stands by")
        try:
            renewed = self._access.renew(msgspec.structs.replace(held, lasts_s=self._lasts_s), time.time())
        except StoreError as err:
            if now_s - self._renewed_s > SLACK_S:
                self._held = None
                raise LeaseLost(f"the right to act could not be renewed for {SLACK_S:g} s: {err}") from err
            return
        self._held = renewed
        if renewed is None:
            raise LeaseLost(f"rlallocd on {self._look().holder} has taken over")
        self._seen, self._seen_s, self._renewed_s = renewed, now_s, now_s

    def give_up(self) -> None:
        """Let the next rlallocd act at once, if this one did. Raises StoreError."""
        if self._held is not None:
            held, self._held = self._held, None
            self._access.give_up(held, time.time())

    @property
    def _lasts_s(self) -> float:
        """So long after its last renewal no command that the holder began is under way any more."""
        return self._slurm.command_timeout_s + SLACK_S

    def _why_not_here(self) -> str:
        """Why another machine's rlallocd is to act, or an empty string. Raises SlurmError."""
        if not self.host:
            return ""
        if self._not_shared and self.host != self.controllers[0]:
            return f"{self._not_shared}, so only the rlallocd beside the primary slurmctld can act"
        return why_not_in_control(self._slurm.ping(), self.host)

    def _take(self) -> Turn:
        """The same as ``keep``, where slurmctld of this machine should be in control."""
        self._slurm.partitions()  # a backup that waits to take over answers pings, and nothing else
        seen, now_s = self._look(), self._clock()
        if seen.holder not in ("", self._name):
            if not self._access.can_read_journal_of(seen):
                whose = f"that of rlallocd on {seen.holder}, which keeps the journal"
                return self._not_mine(f"store.key_file is another one than {whose}: copy that one here")
            if now_s - self._seen_s < seen.lasts_s:
                return self._not_mine(f"rlallocd on {seen.holder} has not given up: {seen.lasts_s:g} s at most")
        taken = self._access.take(seen, self._name, self._lasts_s, time.time())
        if taken is None:
            return self._not_mine(f"rlallocd on {self._look().holder} was faster")
        turn = Turn("", others_acted=seen.epoch != self._epoch)
        self._held = self._seen = taken
        self._epoch, self._seen_s, self._renewed_s = taken.epoch, now_s, now_s
        _log.info("acts for the site now, as %s, epoch %d", self._name, taken.epoch)
        return turn

    def _not_mine(self, why: str) -> Turn:
        return Turn(why, others_acted=self._seen.epoch != self._epoch)

    def _look(self) -> Lease:
        """The lease as it is; remembers since when it has been so. Raises StoreError."""
        found = self._access.read()
        if found != self._seen:
            self._seen, self._seen_s = found, self._clock()
        return self._seen
