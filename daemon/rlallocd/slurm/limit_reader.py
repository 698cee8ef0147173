"""Limits, read through scontrol and sacctmgr: few calls, whatever the number of jobs."""

import logging
import time
from collections.abc import Set
from typing import Final, NamedTuple

import msgspec

from rlallocd.slurm.license_text import read_licenses
from rlallocd.slurm.limit_records import LicenseRecord, ReservationRecord, SiteLimits
from rlallocd.slurm.limit_text import QOS_FIELDS, read_associations, read_preempts, read_qos, read_reservations
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError

_log = logging.getLogger(__name__)

_SETTINGS_FOR_S: Final = 60.0
"""Reservations, and QOS' flags and factors (slurmdbd's), are read again after this time."""
_USE_FOR_S: Final = 5.0
"""Limits with their use (slurmctld's) are read again after this time."""


class Holder(NamedTuple):
    """What slurmctld counts a job under.

    For a QOS, slurmctld reports what a user or account holds only once it has submitted a job there.
    """

    user: str
    account: str
    qos: str
    partitions: str


class LimitReader:
    """Reads the limits of some users' jobs, and keeps them for a short while."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._licenses_fail = False
        self.forget()

    def forget(self) -> None:
        """Read all again the next time."""
        self._settings_read_s = self._use_read_s = self._reservations_read_s = -_SETTINGS_FOR_S
        self._reservations: tuple[ReservationRecord, ...] = ()
        self._qos_text = ""
        self._holders: frozenset[Holder] = frozenset()
        self._has_licenses = False
        self._limits = SiteLimits(enforced=False)

    def forget_reservations(self, older_than_s: float) -> None:
        """Read the reservations again the next time if they were read longer ago than that."""
        if time.monotonic() - self._reservations_read_s >= older_than_s:
            self._reservations_read_s = self._use_read_s = -_SETTINGS_FOR_S

    def read(
        self,
        holders: Set[Holder],
        *,
        enforced: bool,
        qos_preempt: bool = False,
        licenses: bool = False,
    ) -> SiteLimits:
        """The limits of the holders' users, of all accounts and of all QOS, with their use some seconds ago at most.

        They are read at once if some holders are new: slurmctld may not have reported before what these hold.
        Where nothing enforces them (``enforced`` is false), only reservations are read and, with ``qos_preempt``,
        which QOS preempts which. With ``licenses`` these are read, too; they are None where only that fails. Raises
        SlurmError.
        """
        now_s = time.monotonic()
        if now_s - self._reservations_read_s >= _SETTINGS_FOR_S:
            self._read_reservations()
            self._reservations_read_s, self._use_read_s = now_s, now_s - _USE_FOR_S
        if (enforced or qos_preempt) and now_s - self._settings_read_s >= _SETTINGS_FOR_S:
            self._read_qos()
            self._settings_read_s, self._use_read_s = now_s, now_s - _USE_FOR_S
        old = now_s - self._use_read_s >= _USE_FOR_S or (licenses and not self._has_licenses)
        if old or not self._holders.issuperset(holders):
            limits = self._read_use(holders) if enforced else SiteLimits(enforced=False)
            self._limits = msgspec.structs.replace(
                limits,
                reservations=self._reservations,
                preempts=read_preempts(self._qos_text) if qos_preempt else {},
                licenses=self._read_licenses() if licenses else {},
            )
            self._use_read_s, self._holders, self._has_licenses = now_s, frozenset(holders), licenses
        return self._limits

    def _read_reservations(self) -> None:
        text = self._commands.run("scontrol", "show", "reservation", "--oneliner")
        self._reservations = read_reservations(text, self._node_names)

    def _read_qos(self) -> None:
        self._qos_text = self._commands.run(
            "sacctmgr", "show", "qos", "--parsable2", "--noheader", f"format={QOS_FIELDS}"
        )

    def _read_licenses(self) -> dict[str, LicenseRecord] | None:
        try:
            found = read_licenses(self._commands.run("scontrol", "show", "licenses", "--oneliner"))
        except SlurmError as err:
            if not self._licenses_fail:
                _log.warning("cannot read licences, jobs that ask for some run as submitted meanwhile: %s", err)
            self._licenses_fail = True
            return None
        if self._licenses_fail:
            _log.info("licences are read again")
        self._licenses_fail = False
        return found

    def _read_use(self, holders: Set[Holder]) -> SiteLimits:
        asked_s = time.time()
        # "users" leaves accounts' own associations in.
        chosen = (f"users={','.join(sorted({holder.user for holder in holders}))}",) if holders else ()
        text = self._commands.run("scontrol", "show", "assoc_mgr", "--oneliner", *chosen, "flags=assoc,qos")
        return SiteLimits(
            enforced=True,
            read_s=asked_s,
            associations=read_associations(text),
            qos=read_qos(text, self._qos_text),
        )

    def _node_names(self, expression: str) -> frozenset[str]:
        """``n[1-3]`` as names; scontrol does that without asking slurmctld."""
        return frozenset(self._commands.run("scontrol", "show", "hostnames", expression).split())
