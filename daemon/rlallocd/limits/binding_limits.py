"""Which of a site's limits bind one job in one partition: Slurm's precedence (src/slurmctld/acct_policy.c).

Of two QOS, the partition's comes first, unless the job's has the flag OverPartQOS. Limit by limit and TRES by TRES,
the first QOS that sets one decides; only where neither does, the association's holds: for the limits of one job the
user's own (what it inherits is filled in already), for group limits its own and those of all accounts above it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rlallocd.slurm import AssociationRecord, JobRecord, Limits, Pool, QosRecord, SiteLimits
from rlallocd.submissions.request_sizes import Skipped

_MOST_ANCESTORS: Final = 1000


class Ceiling(msgspec.Struct, frozen=True):
    """One limit on one TRES of each job, or on all jobs together, which use ``used`` of it now."""

    name: str
    tres: str
    limit: int
    used: int = 0


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """All limits that bind a job. ``…_minutes`` are of TRES times minutes, ``…wall`` of minutes.

    ``usage_factor`` is what a QOS with UsageFactorSafe multiplies the time limit with before it is compared.
    """

    per_job: tuple[Ceiling, ...] = ()
    per_node: tuple[Ceiling, ...] = ()
    per_job_minutes: tuple[Ceiling, ...] = ()
    wall: tuple[Ceiling, ...] = ()
    least: tuple[Ceiling, ...] = ()
    shared: tuple[Ceiling, ...] = ()
    shared_minutes: tuple[Ceiling, ...] = ()
    shared_running_minutes: tuple[Ceiling, ...] = ()
    shared_wall: tuple[Ceiling, ...] = ()
    usage_factor: float = 1.0


class _Holder(msgspec.Struct, frozen=True):
    """A QOS or an association: whose limits they are, in words, and what they are."""

    who: str
    limits: Limits


def binding_of(job: JobRecord, partition: str, partition_qos: str, site: SiteLimits) -> Binding:
    """The limits that bind a job in a partition. Raises Skipped if slurmctld does not report one of them."""
    chain = _chain(job, partition, site.associations)
    qos = _order(job, partition_qos, site.qos)
    user_id = chain[0].user_id
    factor = next((each.limit_factor for each in qos if each.limit_factor != 1.0), 1.0)
    qos_holders = [_Holder(f"QOS {each.name}", each.limits) for each in qos]
    holders = [_Holder(_who(each), _scaled(each.limits, factor)) for each in chain]
    own = [holders[0]]
    for each in qos:
        users_told = user_id in each.per_user or not each.limits_users
        if not users_told or (each.limits_accounts and job.account not in each.per_account):
            raise Skipped(f"slurmctld does not report what the user holds in QOS {each.name}", "limit")
    return Binding(
        per_job=_first("MaxTRESPerJob", qos_holders, own, lambda limits: Pool(limits.max_tres)),
        per_node=_first("MaxTRESPerNode", qos_holders, own, lambda limits: Pool(limits.max_tres_per_node)),
        per_job_minutes=_first("MaxTRESMinsPerJob", qos_holders, own, lambda limits: Pool(limits.max_tres_minutes)),
        wall=_first("MaxWallPerJob", qos_holders, own, lambda limits: _wall(limits.max_wall_min)),
        least=_first("MinTRES", [_Holder(f"QOS {q.name}", Limits(max_tres=q.min_tres)) for q in qos], [], _max_tres),
        shared=(
            *_first("GrpTRES", qos_holders, holders, lambda limits: limits.group),
            *_owners("MaxTRESPerUser", qos, lambda each: each.per_user.get(user_id)),
            *_owners("MaxTRESPerAccount", qos, lambda each: each.per_account.get(job.account)),
        ),
        shared_minutes=_first("GrpTRESMins", qos_holders, holders, _used_or_running),
        shared_running_minutes=(
            *_first("GrpTRESRunMins", qos_holders, holders, lambda limits: limits.group_running_minutes),
            *_owners("MaxTRESRunMinsPerUser", qos, lambda each: each.per_user_running_minutes.get(user_id)),
            *_owners("MaxTRESRunMinsPerAccount", qos, lambda q: q.per_account_running_minutes.get(job.account)),
        ),
        shared_wall=_first("GrpWall", qos_holders, holders, lambda limits: _wall(limits.group_wall_min)),
        usage_factor=_usage_factor(job, site.qos),
    )


def _chain(
    job: JobRecord, partition: str, associations: Sequence[AssociationRecord]
) -> tuple[AssociationRecord, ...]:
    """The user's association in the job's account, that for the partition if there is one, and all above it."""
    mine = {each.partition: each for each in associations if (each.account, each.user) == (job.account, job.user)}
    own = mine.get(partition, mine.get(""))
    if own is None:
        raise Skipped(f"slurmctld reports no association of user {job.user} in account {job.account}", "limit")
    accounts = {each.account: each for each in associations if not each.user}
    chain, above = [own], own.account
    while above:
        if above not in accounts or len(chain) > _MOST_ANCESTORS:
            raise Skipped(f"slurmctld reports no association of account {above}", "limit")
        chain.append(accounts[above])
        above = accounts[above].parent
    return tuple(chain)


def _order(job: JobRecord, partition_qos: str, known: Mapping[str, QosRecord]) -> tuple[QosRecord, ...]:
    """The QOS that bind a job, the one that decides first (acct_policy_set_qos_order)."""
    names = [partition_qos, job.qos]
    if job.qos in known and "OverPartQOS" in known[job.qos].flags:
        names.reverse()
    wanted = dict.fromkeys(name for name in names if name)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise Skipped(f"slurmctld reports no QOS {missing[0]}", "limit")
    return tuple(known[name] for name in wanted)


def _first(
    what: str, qos: Iterable[_Holder], associations: Iterable[_Holder], pool_of: Callable[[Limits], Pool]
) -> tuple[Ceiling, ...]:
    """One kind of limit: of the first QOS that sets it, else of all these associations, TRES by TRES."""
    found: list[Ceiling] = []
    set_by_qos: set[str] = set()
    for holder in qos:
        ceilings = [
            each for each in _ceilings(what, holder.who, pool_of(holder.limits)) if each.tres not in set_by_qos
        ]
        set_by_qos.update(each.tres for each in ceilings)
        found += ceilings
    for holder in associations:
        ceilings = _ceilings(what, holder.who, pool_of(holder.limits))
        found += [each for each in ceilings if each.tres not in set_by_qos]
    return tuple(found)


def _owners(what: str, qos: Iterable[QosRecord], pool_of: Callable[[QosRecord], Pool | None]) -> tuple[Ceiling, ...]:
    """A QOS's limit for each user or account: of the first QOS that sets it."""
    found: dict[str, Ceiling] = {}
    for each in qos:
        for ceiling in _ceilings(what, f"QOS {each.name}", pool_of(each) or Pool()):
            found.setdefault(ceiling.tres, ceiling)
    return tuple(found.values())


def _ceilings(what: str, who: str, pool: Pool) -> list[Ceiling]:
    return [Ceiling(f"{what} of {who}", tres, limit, pool.used.get(tres, 0)) for tres, limit in pool.limits.items()]


def _wall(limit_min: int | None) -> Pool:
    """A limit on time alone, as if the minutes of one node."""
    return Pool({} if limit_min is None else {"minutes": limit_min})


def _max_tres(limits: Limits) -> Pool:
    return Pool(limits.max_tres)


def _used_or_running(limits: Limits) -> Pool:
    """GrpTRESMins with what was used and what running jobs may still use: "safe" limits count both."""
    used, running = limits.group_minutes.used, limits.group_running_minutes.used
    limited = limits.group_minutes.limits
    return Pool(limited, {tres: used.get(tres, 0) + running.get(tres, 0) for tres in limited})


def _scaled(limits: Limits, factor: float) -> Limits:
    """An association's limits under a QOS's LimitFactor: it multiplies GrpTRES and MaxTRES."""
    if factor in (1.0, 0.0):
        return limits
    return msgspec.structs.replace(
        limits,
        group=Pool({tres: int(limit * factor) for tres, limit in limits.group.limits.items()}, limits.group.used),
        max_tres={tres: int(limit * factor) for tres, limit in limits.max_tres.items()},
    )


def _usage_factor(job: JobRecord, known: Mapping[str, QosRecord]) -> float:
    """Never below 1: stricter than Slurm, which at submission compares without the factor."""
    qos = known.get(job.qos)
    return max(1.0, qos.usage_factor) if qos is not None and "UsageFactorSafe" in qos.flags else 1.0


def _who(association: AssociationRecord) -> str:
    return f"user {association.user}" if association.user else f"account {association.account}"
