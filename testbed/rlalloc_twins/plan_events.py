"""What users do to their jobs after they have submitted them, drawn by chance."""

from collections.abc import Iterator
from random import Random
from typing import Final

from rlalloc_twins.plan_forms import Asked
from rlalloc_twins.twin_plan import UserEvent

RELEASED_AFTER_S: Final = 14.0
"""From the submission of a held job until its user lets it go."""
BEFORE_RELEASE_S: Final = (0.0, 5.0, 9.0)
"""When a held job is changed: before rlalloc may have decided it, and after."""
RACING_S: Final = (0.0, 0.0, 0.5, 3.0)
"""When a job that nothing holds is changed: on some sites it has started by then."""
WITHOUT_DELAY: Final = UserEvent("update", 0.0, ("StartTime=now+5",), once="REQUEUED")
"""Slurm lets a requeued job wait for two minutes. At once, slurmd would refuse it ("Job credential revoked")."""
CHANGED: Final = 0.3
"""So many jobs are changed by their users; of those that are held, twice as many."""


def events_of(random: Random, asked: Asked) -> tuple[UserEvent, ...]:
    """The events of one job, in the order of time."""
    return tuple(sorted(_events(random, asked), key=lambda event: event.after_s))


def _events(random: Random, asked: Asked) -> Iterator[UserEvent]:
    if asked.held:
        if random.random() < 2 * CHANGED:
            yield UserEvent("update", random.choice(BEFORE_RELEASE_S), (random_update(random, asked),))
        yield UserEvent("release", RELEASED_AFTER_S)
        return
    if random.random() >= (2 * CHANGED if asked.begin else CHANGED):
        return
    kind = random.choice(("update", "update", "update", "cancel", "hold", "requeue", "cancel running"))
    at_s = random.choice(RACING_S)
    if kind == "update":
        yield UserEvent("update", at_s, (random_update(random, asked),))
    elif kind == "cancel":
        yield UserEvent("cancel", at_s)
    elif kind == "cancel running":
        yield UserEvent("cancel", 0.0, once="RUNNING")
    elif kind == "requeue":
        yield UserEvent("requeue", 0.0, once="RUNNING")
        yield WITHOUT_DELAY
    else:
        yield UserEvent("hold", at_s)
        if random.random() < CHANGED:
            yield UserEvent("update", at_s + 4.0, (random_update(random, asked),))
        yield UserEvent("release", at_s + 8.0)


def random_update(random: Random, asked: Asked) -> str:
    """One word of ``scontrol update`` that a user may say of a waiting job."""
    words = [
        f"TimeLimit={random.choice((3, 4))}",
        f"MinMemoryNode={random.choice((1000, 3000, 24000))}",
        f"Features={random.choice(('ib', 'a100', 'v100', 'slow|v100'))}",
        f"ExcNodeList={random.choice(('n1', 'n[4-6]', 'n[1-2]'))}",
        f"Partition={random.choice(('gpu', 'mixed', 'fast'))}",
        f"Nice={random.choice((10, 300))}",
        "JobName=renamed",
        "Comment=mine",
        "StartTime=now+6",
        "Requeue=0",
    ]
    if asked.by_node and not asked.array:
        words += [
            f"TresPerNode=gres:gpu:{random.choice((1, 2, 4))}",
            f"MinCPUsNode={random.choice((1, 6, 8))}",
            f"CPUsPerTask={random.choice((2, 4))}",
            "NumNodes=2",
            "ReqNodeList=n4",
        ]
    return random.choice(words)
