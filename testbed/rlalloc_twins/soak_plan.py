"""The plan of ``make soak``: many jobs over mixed nodes, with constraints, limits, maintenance and drained nodes."""

from collections.abc import Iterator
from random import Random
from typing import Final

from rlalloc_twins.plan_forms import FORMS, Asked
from rlalloc_twins.twin_plan import Plan, SiteEvent, Submission

USERS: Final = ("llm-alice", "llm-bob", "llm-carol")
LIMITS: Final = {
    "llm-bob": "MaxTRES=gres/gpu=8",
    "llm-carol": "GrpTRES=gres/gpu=24 MaxWall=00:20:00",
}
DRAWN: Final = {
    "-N1 --gres": 8,
    "--gres, typed": 5,
    "--gres alone": 3,
    "-N2 --gpus-per-node --ntasks-per-node=1": 4,
    "-N2, one task per GPU": 2,
    "--gpus -n": 3,
    "-N1 --gpus": 3,
    "-N2 --gpus, typed": 2,
    "-n --gpus-per-task": 2,
    "--cpus-per-gpu --mem-per-gpu": 2,
    "--mem-per-cpu": 2,
    "-N 1-4": 2,
    "--nodelist": 3,
    "--exclude": 3,
    "--constraint": 6,
    "counted constraint": 1,
    "--exclusive": 1,
    "--reservation": 2,
    "--array": 1,
}
"""Forms by how often they come."""
RUN_S: Final = (4.0, 34.0)
WINDOW_EVERY_S: Final = 170.0
"""A maintenance window is announced so often, two minutes before it begins; it lasts one."""
DRAIN_EVERY_S: Final = 95.0
DRAINED_FOR_S: Final = 45.0
_GROUPS: Final = ("n[1-2]", "n[4-6]", "n3,n7", "n[5-9]")


def soak_plan(seed: int, jobs: int, minutes: float, release: str | None = None) -> Plan:
    """Draw the plan; a seed, one plan."""
    random = Random(seed)  # noqa: S311 (nothing secret)
    end_s = 60.0 * minutes
    times_s = sorted(round(random.uniform(2.0, end_s), 2) for _ in range(jobs))
    reservation = ("create", "reservation", "ReservationName=twins", "Nodes=n8", f"Users={','.join(USERS)}")
    events = [SiteEvent(0.0, (*reservation, "StartTime=now", "Duration=6:00:00"))]
    events += [*_windows(random, end_s), *_drains(random, end_s)]
    return Plan(
        seed=seed,
        submissions=tuple(_submission(random, f"s{number:04d}", at_s) for number, at_s in enumerate(times_s)),
        site_events=tuple(sorted(events, key=lambda event: event.at_s)),
        limits=LIMITS,
        release=release,
        sampled=True,
    )


def _submission(random: Random, key: str, at_s: float) -> Submission:
    form = random.choices(tuple(DRAWN), tuple(DRAWN.values()))[0]
    asked = FORMS[form](random)
    run_s = round(random.uniform(*RUN_S), 1)
    words = [*asked.options, f"--time={random.choice((1, 2, 2, 3, 5, 10))}"]
    if asked.plain:
        words += random.choice(((), (), ("--partition=mixed",), ("--partition=fast",), ("--partition=fast,gpu",)))
        words += random.choice(((), (), (), ("--constraint=ib",), ("--constraint=a100",)))
    return Submission(
        key=key,
        form=form,
        at_s=at_s,
        user=random.choice(USERS),
        options=tuple(words),
        directive=_directive(random, asked) if random.random() < 0.9 else "",
        run_s=run_s,
        gpus=asked.gpus,
        scales=True,
        shows=False,
    )


def _directive(random: Random, asked: Asked) -> str:
    least, most = max(1, asked.gpus // random.choice((1, 2, 4))), asked.gpus * random.choice((1, 2, 4))
    words = [f"gpus={least}-{most}", random.choice(("cpus-per-gpu=1-8", "cpus-per-gpu=1-16", "")),
             random.choice(("mem-per-gpu=1G-16G", "mem-per-gpu=1G-60G", ""))]  # fmt: skip
    return " ".join(word for word in words if word)


def _windows(random: Random, end_s: float) -> Iterator[SiteEvent]:
    number, at_s = 0, 40.0
    while at_s < end_s:
        number += 1
        words = f"create reservation ReservationName=maintenance{number} Users=root Flags=MAINT,IGNORE_JOBS"
        times = "StartTime=now+2minutes Duration=1"
        yield SiteEvent(at_s, (*words.split(), *times.split(), f"Nodes={random.choice(_GROUPS)}"))
        at_s += WINDOW_EVERY_S


def _drains(random: Random, end_s: float) -> Iterator[SiteEvent]:
    at_s = 25.0
    while at_s < end_s:
        node = f"NodeName=n{random.randint(1, 9)}"
        yield SiteEvent(at_s, ("update", node, "State=DRAIN", "Reason=soak"))
        yield SiteEvent(at_s + DRAINED_FOR_S, ("update", node, "State=RESUME"))
        at_s += DRAIN_EVERY_S
