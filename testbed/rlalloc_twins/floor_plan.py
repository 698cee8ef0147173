"""The plan of ``make floor``: random submissions of all forms, and what their users do to them; a seed, one plan."""

from collections.abc import Iterator
from random import Random
from typing import Final

from rlalloc_twins.plan_events import WITHOUT_DELAY, events_of
from rlalloc_twins.plan_forms import FORMS, Asked
from rlalloc_twins.twin_plan import Inner, Plan, SiteEvent, Submission

USERS: Final = ("llm-alice", "llm-bob", "llm-carol")
EVERY_S: Final = 0.9
"""Between two submissions, on average: half come in bursts."""
BURST: Final = 12
MOST_RUN_S: Final = 6.0
LONG_RUN_S: Final = 12.0
"""Of a job that its user cancels or requeues while it runs: on a busy machine that takes seconds."""
RARE: Final = frozenset({"heterogeneous job", "--deadline", "--time-min", "--overcommit", "-m arbitrary", "no GPUs"})
"""Forms that are drawn half as often."""
AS_VARIABLES: Final = {
    "--gres": "SBATCH_GRES",
    "--gpus": "SBATCH_GPUS",
    "--gpus-per-node": "SBATCH_GPUS_PER_NODE",
    "--mem": "SBATCH_MEM_PER_NODE",
    "--constraint": "SBATCH_CONSTRAINT",
    "--time": "SBATCH_TIMELIMIT",
}
"""Options that sbatch also takes from its environment."""


def floor_plan(seed: int, jobs: int, release: str | None = None, every_s: float = EVERY_S) -> Plan:
    """Draw the plan. All forms come before any comes a second time."""
    random = Random(seed)  # noqa: S311 (nothing secret)
    times_s = _times(random, jobs, every_s)
    submissions: list[Submission] = []
    for number, (form, at_s) in enumerate(zip(_forms(random, jobs), times_s, strict=True)):
        submissions.append(_submission(random, f"j{number:04d}", form, at_s, submissions))
    reservation = ("create", "reservation", "ReservationName=twins", "Nodes=n8", f"Users={','.join(USERS)}")
    return Plan(
        seed=seed,
        submissions=tuple(submissions),
        site_events=(SiteEvent(0.0, (*reservation, "StartTime=now", "Duration=6:00:00")),),
        release=release,
    )


def _forms(random: Random, jobs: int) -> list[str]:
    drawn: list[str] = []
    while len(drawn) < jobs:
        names = [name for name in FORMS if not drawn or name not in RARE or random.random() < 1 / 2]
        random.shuffle(names)
        drawn += names
    return drawn[:jobs]


def _times(random: Random, jobs: int, every_s: float) -> list[float]:
    """Ascending, from 2 s on; bursts of BURST at a time, and calms between them."""
    times_s, now_s = [], 2.0
    for number in range(jobs):
        burst = number // BURST % 2
        now_s += random.expovariate(1.0) * every_s * (0.2 if burst else 1.8)
        times_s.append(round(now_s, 2))
    return times_s


def _submission(random: Random, key: str, form: str, at_s: float, earlier: list[Submission]) -> Submission:
    asked = FORMS[form](random)
    words = [*asked.options, f"--time={random.choice((5, 6, 10, 20))}"]
    words += _further(random, asked)
    resizable = random.random() < 0.9
    directive = _directive(random, asked) if resizable and random.random() < 0.85 else ""
    lines: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    if ":" not in words:  # the components of a heterogeneous job are for the command line
        words, lines, environment = _where(random, words)
    if directive and random.random() < 0.1:
        words.append(f"--comment=rlalloc: {directive}")
        directive = ""
    requeues = form == "--requeue" and random.random() < 0.5
    events = (WITHOUT_DELAY,) if requeues else events_of(random, asked)
    once = ":" not in words and not asked.array and all(event.doing != "requeue" for event in events) and not requeues
    met_running = any(event.once == "RUNNING" for event in events)
    return Submission(
        key=key,
        form=form,
        at_s=at_s,
        user=random.choice(USERS),
        options=tuple(words),
        lines=lines,
        environment=environment,
        directive=directive,
        resizable=resizable,
        run_s=LONG_RUN_S if met_running else round(random.uniform(0.5, MOST_RUN_S), 1),
        gpus=asked.gpus,
        exit_status=3 if random.random() < 0.04 else 0,
        requeues_itself=requeues,
        after=_after(random, form, earlier),
        events=events,
        inner=_inner(random) if once and random.random() < 0.09 else None,
    )


def _further(random: Random, asked: Asked) -> Iterator[str]:
    """Options that go with any form."""
    if random.random() < 0.1:
        yield f"--nice={random.choice((5, 100))}"
    if asked.plain and random.random() < 0.35:
        yield f"--partition={random.choice(('mixed', 'fast', 'gpu,mixed', 'fast,gpu'))}"
    if asked.plain and random.random() < 0.15:
        yield f"--constraint={random.choice(('ib', 'big', 'a100'))}"
    if random.random() < 0.05:
        yield "--export=NONE"
    if asked.plain and random.random() < 0.1:
        yield "--no-requeue"


def _directive(random: Random, asked: Asked) -> str:
    """Ranges around the request: the policy is to have room in all of them."""
    most = max(asked.gpus, 1)
    words = [f"gpus={max(1, most // random.choice((1, 2, 4)))}-{most * random.choice((1, 2, 4))}"]
    if random.random() < 0.5:
        words.append("cpus-per-gpu=1-8")
    if random.random() < 0.5:
        words.append("mem-per-gpu=1G-8G")
    if asked.tasks and random.random() < 0.5:
        words.append("launch=srun")
    return " ".join(words)


def _where(random: Random, words: list[str]) -> tuple[list[str], tuple[str, ...], dict[str, str]]:
    """Some options go to the script's #SBATCH lines, some to sbatch's environment."""
    chance = random.random()
    if chance < 0.4:
        return [], tuple(words), {}
    if chance < 0.5:
        variables = {AS_VARIABLES[name]: value for word in words if (name := word.partition("=")[0]) in AS_VARIABLES
                     for value in [word.partition("=")[2]]}  # fmt: skip
        return [word for word in words if word.partition("=")[0] not in AS_VARIABLES], (), variables
    return words, (), {}


def _after(random: Random, form: str, earlier: list[Submission]) -> tuple[str, str] | None:
    if not earlier or (form != "--dependency=afterok" and random.random() > 0.03):
        return None
    return random.choice(earlier[-8:]).key, random.choice(("afterok", "afterok", "afterany"))


def _inner(random: Random) -> Inner:
    """A job inside a job: some ask for nothing but GPUs, and inherit what they are not to inherit."""
    gpus = random.choice((1, 2))
    options = random.choice(
        (
            ("-N1", f"--gres=gpu:{gpus}", "--time=5"),
            ("-n2", f"--gpus={gpus}", "-c1", "--mem=2000", "--time=5"),
            (f"--gpus-per-node={gpus}", "--time=5", "--export=NONE"),
            ("-N1", "-c1", "--mem=500", "--time=5"),
        )
    )
    resizable = random.random() < 0.7
    return Inner(options=options, directive="gpus=1-4 mem-per-gpu=1G-8G" if resizable else "", resizable=resizable)
