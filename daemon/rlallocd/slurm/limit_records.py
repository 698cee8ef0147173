"""The limits of a site as slurmctld has them at one moment. Memory in MiB, durations in minutes, as in Slurm.

Counts go by TRES name: ``cpu``, ``mem``, ``node``, ``billing``, ``gres/gpu``, ``gres/gpu:a100``, ``license/…``.
"""

from collections.abc import Mapping

import msgspec

Counts = Mapping[str, int]


class Pool(msgspec.Struct, frozen=True):
    """A limit that several jobs share, TRES by TRES, and what they use of it; used is told without a limit, too."""

    limits: Counts = {}
    used: Counts = {}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that associations and QOS both have; None, or no entry, is no limit.

    ``group`` is GrpTRES, ``group_minutes`` GrpTRESMins and ``group_running_minutes`` GrpTRESRunMins. An association's
    ``max_…`` hold what it inherits from its parents already (slurmdbd fills that in); its group limits are its own.
    """

    group: Pool = Pool()
    group_minutes: Pool = Pool()
    group_running_minutes: Pool = Pool()
    group_wall_min: int | None = None
    max_tres: Counts = {}
    max_tres_per_node: Counts = {}
    max_tres_minutes: Counts = {}
    max_wall_min: int | None = None


class AssociationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One association. ``user`` is empty for an account's own; ``parent`` is the account above an account's own."""

    account: str
    user: str
    user_id: int
    partition: str
    parent: str
    limits: Limits


class QosRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One QOS.

    ``per_account`` and ``per_user`` are MaxTRESPerAccount by account and MaxTRESPerUser by user id. slurmctld tells
    them only of those that have jobs in this QOS; ``limits_accounts`` and ``limits_users`` say whether there are any.
    ``…_running_minutes`` are MaxTRESRunMinsPerAccount and …PerUser, which later versions enforce.
    """

    name: str
    flags: frozenset[str]
    usage_factor: float
    limit_factor: float
    limits: Limits
    min_tres: Counts
    limits_accounts: bool
    limits_users: bool
    per_account: Mapping[str, Pool]
    per_user: Mapping[int, Pool]
    per_account_running_minutes: Mapping[str, Pool]
    per_user_running_minutes: Mapping[int, Pool]


class ReservationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reservation: its nodes and licences, and when it begins and ends (epoch seconds)."""

    name: str
    nodes: frozenset[str]
    start_s: int
    end_s: int
    licenses: Counts = {}


class LicenseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How many licences of one name the cluster may use, and how many its jobs ``used``.

    Of a remote one, ``deficit`` is how many of the cluster's are in use elsewhere; 0 before 23.02, which does not
    know it.
    """

    total: int
    used: int = 0
    deficit: int = 0


class SiteLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All that binds a job beside its partition. ``enforced`` says whether associations and QOS do.

    ``read_s`` is when their use was read, in epoch seconds. ``preempts`` names, for each QOS, those whose running
    jobs its jobs may preempt. ``licenses`` are there only where a job asks for some; None if they could not be read.
    """

    enforced: bool
    read_s: float = 0.0
    associations: tuple[AssociationRecord, ...] = ()
    qos: Mapping[str, QosRecord] = {}
    reservations: tuple[ReservationRecord, ...] = ()
    preempts: Mapping[str, frozenset[str]] = {}
    licenses: Mapping[str, LicenseRecord] | None = {}
