"""The kinds of limits that the oracle test tries: how each is set, a size at it and one beyond it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from rlalloc.job import Allocation

Level = Literal["at", "beyond"]
ONE = Allocation(nodes=1, gpus_per_node=1, tasks_per_node=1, cpus_per_task=1, mem_mib_per_node=100, time_limit_s=600)
"""What is submitted where nothing else is said; every kind changes one thing of it."""
LARGE = msgspec.structs.replace(ONE, gpus_per_node=4, cpus_per_task=4)
FILLER = msgspec.structs.replace(ONE, gpus_per_node=2, cpus_per_task=2, mem_mib_per_node=200)
"""What runs already, for the limits that jobs share."""

Sizes = Mapping[Level, Allocation]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. Settings are sacctmgr's words, ``partition`` scontrol's.

    ``stricter`` tells, level by level, why rlalloc says no where slurmctld says yes: on purpose, each of them.
    """

    name: str
    sizes: Sizes
    user: str = ""
    account: str = ""
    parent: str = ""
    qos: str | None = None
    partition: str | None = None
    partition_qos: str | None = None
    request: Allocation = ONE
    filled_by: str = ""
    gpu_type: str = ""
    stricter: Mapping[Level, str] = {}


FREED = "an operator's update would free the job of this limit for ever"
BILLING = "billing is not computed"
RAISED = "slurmctld gives it more CPUs than it asked for"
_NOT_CHANGED: Mapping[Level, str] = {"at": FREED}


def sizes(make: Callable[[int], Allocation], limit: int, step: int = 1) -> Sizes:
    """Sizes at a limit and beyond it; within it are the requests themselves."""
    return {"at": make(limit), "beyond": make(limit + step)}


def cpus(limit: int) -> Sizes:
    return sizes(lambda count: msgspec.structs.replace(ONE, cpus_per_task=count), limit)


def gpus(limit: int) -> Sizes:
    return sizes(lambda count: msgspec.structs.replace(ONE, gpus_per_node=count), limit)


def memory(limit: int) -> Sizes:
    return sizes(lambda mib: msgspec.structs.replace(ONE, mem_mib_per_node=mib), limit)


def nodes(limit: int) -> Sizes:
    return sizes(lambda count: msgspec.structs.replace(ONE, nodes=count), limit)


def minutes(limit: int) -> Sizes:
    return sizes(lambda minute: msgspec.structs.replace(ONE, time_limit_s=60 * minute), limit)


def fewer(limit: int, field: str) -> Sizes:
    """Of a job that asks for four, for limits from below."""
    return sizes(lambda count: msgspec.structs.replace(LARGE, **{field: count}), limit, step=-1)


def _everywhere(name: str, setting: str, what: Sizes, stricter: Mapping[Level, str] | None = None) -> Iterator[Kind]:
    """A limit that both a user's association and a QOS can have."""
    yield Kind(name=f"{name} of a user", user=setting, sizes=what, stricter=stricter or {})
    yield Kind(name=f"{name} of a QOS", qos=setting, sizes=what, stricter=stricter or {})


def _shared(name: str, setting: str, what: Sizes, stricter: Mapping[Level, str] | None = None) -> Iterator[Kind]:
    """A limit that jobs share, with a job of another user in the way."""
    told = stricter or {}
    yield Kind(name=f"{name} of an account", account=setting, sizes=what, filled_by="llm-bob", stricter=told)
    yield Kind(name=f"{name} of a QOS", qos=setting, sizes=what, filled_by="llm-bob", stricter=told)


def _of_one_job() -> Iterator[Kind]:
    yield from _everywhere("MaxTRES cpu", "MaxTRES=cpu=4", cpus(4))
    yield from _everywhere("MaxTRES mem", "MaxTRES=mem=300", memory(300))
    yield from _everywhere("MaxTRES node", "MaxTRES=node=2", nodes(2))
    yield from _everywhere("MaxTRES gpu", "MaxTRES=gres/gpu=3", gpus(3))
    yield Kind(name="MaxTRES gpu inherited", account="MaxTRES=gres/gpu=3", sizes=gpus(3))
    yield Kind(name="MaxTRES of a GPU type", user="MaxTRES=gres/gpu:a100=3", sizes=gpus(3), gpu_type="a100")
    yield Kind(name="MaxTRES billing", user="MaxTRES=billing=4", sizes=cpus(4), stricter={"at": BILLING})
    yield from _everywhere("MaxTRESPerNode cpu", "MaxTRESPerNode=cpu=4", cpus(4))
    yield from _everywhere("MaxTRESPerNode gpu", "MaxTRESPerNode=gres/gpu=3", gpus(3))
    yield from _everywhere("MaxTRESMins cpu", "MaxTRESMins=cpu=40", cpus(4))
    yield from _everywhere("MaxTRESMins gpu, longer", "MaxTRESMins=gres/gpu=20", minutes(20))
    yield from _everywhere("MaxWall", "MaxWall=20", minutes(20))
    yield Kind(name="MinTRES gpu", qos="MinTRES=gres/gpu=2", sizes=fewer(2, "gpus_per_node"), request=LARGE)
    yield Kind(name="MinTRES cpu", qos="MinTRES=cpu=2", sizes=fewer(2, "cpus_per_task"), request=LARGE)


def _of_many_jobs() -> Iterator[Kind]:
    yield from _shared("GrpTRES gpu", "GrpTRES=gres/gpu=5", gpus(3))
    yield Kind(
        name="GrpTRES gpu of the account above", parent="GrpTRES=gres/gpu=5", sizes=gpus(3), filled_by="llm-bob"
    )
    yield Kind(name="GrpTRES gpu of a user", user="GrpTRES=gres/gpu=5", sizes=gpus(3), filled_by="llm-alice")
    yield from _shared("GrpTRES cpu", "GrpTRES=cpu=6", cpus(4), _NOT_CHANGED)
    yield from _shared("GrpTRES mem", "GrpTRES=mem=500", memory(300), _NOT_CHANGED)
    yield from _shared("GrpTRES node", "GrpTRES=node=2", nodes(2), _NOT_CHANGED)
    yield Kind(name="MaxTRESPerUser gpu", qos="MaxTRESPU=gres/gpu=5", sizes=gpus(3), filled_by="llm-alice")
    yield Kind(
        name="MaxTRESPerUser cpu",
        qos="MaxTRESPU=cpu=6",
        sizes=cpus(4),
        filled_by="llm-alice",
        stricter=_NOT_CHANGED,
    )
    yield Kind(name="MaxTRESPerAccount gpu", qos="MaxTRESPA=gres/gpu=5", sizes=gpus(3), filled_by="llm-bob")
    yield from _everywhere("GrpTRESMins gpu", "GrpTRESMins=gres/gpu=30", gpus(3))
    yield from _everywhere("GrpTRESMins cpu", "GrpTRESMins=cpu=40", cpus(4), _NOT_CHANGED)
    yield from _everywhere("GrpTRESMins gpu, longer", "GrpTRESMins=gres/gpu=20", minutes(20))
    yield from _everywhere("GrpTRESRunMins gpu", "GrpTRESRunMins=gres/gpu=30", gpus(3))
    yield from _everywhere("GrpTRESRunMins cpu", "GrpTRESRunMins=cpu=40", cpus(4))
    yield from _everywhere("GrpTRESRunMins gpu, longer", "GrpTRESRunMins=gres/gpu=20", minutes(20))
    yield from _everywhere("GrpWall", "GrpWall=20", minutes(20), _NOT_CHANGED)


def _combined() -> Iterator[Kind]:
    yield Kind(
        name="a QOS before the association", user="MaxTRES=gres/gpu=2", qos="MaxTRES=gres/gpu=3", sizes=gpus(3)
    )
    yield Kind(
        name="the association for what the QOS leaves", user="MaxTRES=gres/gpu=3", qos="MaxTRES=cpu=9", sizes=gpus(3)
    )
    yield Kind(
        name="the partition's QOS before the job's",
        qos="MaxTRES=gres/gpu=2",
        partition="",
        partition_qos="MaxTRES=gres/gpu=3",
        sizes=gpus(3),
    )
    yield Kind(
        name="OverPartQOS",
        qos="MaxTRES=gres/gpu=3 Flags=OverPartQOS",
        partition="",
        partition_qos="MaxTRES=gres/gpu=2",
        sizes=gpus(3),
    )
    yield Kind(name="LimitFactor", user="MaxTRES=gres/gpu=2", qos="LimitFactor=1.5", sizes=gpus(3))
    yield Kind(
        name="UsageFactorSafe",
        qos="MaxWall=40 UsageFactor=2 Flags=UsageFactorSafe",
        sizes=minutes(20),
    )
    yield Kind(name="DenyOnLimit", qos="MaxTRES=gres/gpu=3 Flags=DenyOnLimit", sizes=gpus(3))


def _of_partitions() -> Iterator[Kind]:
    yield Kind(name="partition MaxNodes", partition="MaxNodes=2", sizes=nodes(2))
    yield Kind(
        name="partition MinNodes",
        partition="MinNodes=2",
        request=msgspec.structs.replace(ONE, nodes=4),
        sizes=sizes(lambda count: msgspec.structs.replace(ONE, nodes=count), 2, step=-1),
    )
    yield Kind(name="partition MaxTime", partition="MaxTime=20", sizes=minutes(20))
    yield Kind(name="partition MaxCPUsPerNode", partition="MaxCPUsPerNode=4", sizes=cpus(4))
    yield Kind(name="partition MaxMemPerNode", partition="MaxMemPerNode=300", sizes=memory(300))
    yield Kind(
        name="partition MaxMemPerCPU",
        partition="MaxMemPerCPU=300",
        sizes=memory(300),
        stricter={"beyond": RAISED},
    )
    yield Kind(
        name="partition AllowAccounts",
        partition="AllowAccounts=llm",
        sizes={"beyond": msgspec.structs.replace(ONE, gpus_per_node=2)},
    )
    yield Kind(
        name="partition DenyQos",
        partition="DenyQos=normal",
        sizes={"beyond": msgspec.structs.replace(ONE, gpus_per_node=2)},
    )


KINDS: tuple[Kind, ...] = (*_of_one_job(), *_of_many_jobs(), *_combined(), *_of_partitions())
