"""Faults injected into a transaction, and what each ends in: the table of docs/explanation/transactions.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rlalloc.store import ApplicationState

JOB: Final = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10
#RLALLOC gpus=1-2 cpus-per-gpu=2-8
#RLALLOC mem-per-gpu=8G-64G
: torchrun train.py
"""
FEWER_CPUS: Final = JOB.replace("gpus=1-2 cpus-per-gpu=2-8", "gpus=4-4 cpus-per-gpu=2-4")
"""Decided without a change of GPUs, and so of the time limit."""
UNTIL_REQUEUED: Final = JOB + '[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || { echo begun; exec sleep 600; }\n'
SUBMITTED_MINUTES: Final = 10

Afterwards = Literal["nothing", "start rlallocd", "start slurmctld", "continue slurmctld"]


@dataclass(frozen=True)
class Fault:
    """One fault: scripts by step (fault_injection), what the test has to do then, and how it may end."""

    name: str
    scripts: Mapping[str, str]
    ends: tuple[ApplicationState, ...]
    job: str = JOB
    options: tuple[str, ...] = ()
    afterwards: Afterwards = "nothing"
    minutes: int | None = None
    """The time limit that somebody else set and that is to stay."""
    starts: bool = True
    nice: int | None = None
    """The nice that it has in the end, if not what the end says: the one added, or its own."""
    of_others: Mapping[str, float] = field(default_factory=dict)
    """Values that somebody else set and that are to stay: in the end the job has these, not those of its size."""
    kept: bool = False
    """Whether slurmctld has to have written the job to its disk before the fault: it does so some seconds later."""
    on_the_minute: bool = False
    """Whether its user set StartTime to the beginning of a minute, which is to stay."""
    is_asked: bool = False
    """Whether only slurmctld's word, by its Perl API, tells that the job could never start."""


HALF: Final = 'only "NumNodes NumTasks TasksPerNode CPUsPerTask NumCPUs" "$@"'
ON_THE_MINUTE: Final = "$(( ($(date +%s) / 60 + 1) * 60 ))"
MEMORY_AND_GPUS: Final = 'only "MinMemoryNode TresPerNode TresPerJob TresPerTask" "$@"'

AT_ONCE: Final = (
    Fault("nothing goes wrong", {}, ("begun",)),
    Fault("the update is refused", {"update1": "refuse"}, ("left",)),
    Fault("refused after nodes, tasks and CPUs", {"update1": f"{HALF}; refuse"}, ("restored",)),
    Fault("applied but for CPUsPerTask", {"update1": 'without CPUsPerTask "$@"'}, ("restored",)),
    Fault("applied but for MinCPUsNode", {"update1": 'without MinCPUsNode "$@"'}, ("restored",)),
    Fault("applied but for TresPerNode", {"update1": 'without TresPerNode "$@"; refuse'}, ("restored",)),
    Fault("applied but for Nice", {"update1": 'without Nice "$@"'}, ("begun",), nice=0),
    Fault("refused after Nice", {"update1": 'only Nice "$@"; refuse'}, ("restored",)),
    Fault(
        "its user sets another nice after the update", {"update1": 'real "$@"; as_user Nice=1'}, ("begun",), nice=1
    ),
    Fault("only memory and GPUs are applied", {"update1": f"{MEMORY_AND_GPUS}; refuse"}, ("restored",)),
    Fault(
        "half applied, and slurmctld says that no node can hold it",
        {"update1": f"{HALF}; become MinCPUsNode=100; refuse"},
        ("restored",),
        is_asked=True,
    ),
    Fault(
        "half applied, and it waits with BadConstraints and priority 0",
        {"update1": f"{HALF}; become MinMemoryNode=5120000 StartTime=now; wait_for Reason=BadConstraints"},
        ("restored",),
        is_asked=True,
    ),
    Fault(
        "half applied, the restoration refused once",
        {"update1": f"{HALF}; refuse", "update2": "refuse"},
        ("restored",),
    ),
    Fault(
        "half applied, the restoration half applied once",
        {"update1": f"{HALF}; refuse", "update2": f"{MEMORY_AND_GPUS}; refuse"},
        ("restored",),
    ),
    Fault(
        "half applied, the restoration refused five times",
        {"update1": f"{HALF}; refuse"} | {f"update{number}": "refuse" for number in range(2, 7)},
        ("restored",),
    ),
    Fault("it starts before the update", {"update1": 'started; real "$@"'}, ("left",)),
    Fault("it starts after the update", {"update1": 'real "$@"; started'}, ("begun",)),
    Fault("cancelled before the update", {"update1": 'scancel "$JOB"; real "$@"'}, ("gone",), starts=False),
    Fault("cancelled after the update", {"update1": 'real "$@"; scancel "$JOB"'}, ("gone",), starts=False),
    Fault("cancelled before the release", {"begin1": 'scancel "$JOB"; real "$@"'}, ("gone",), starts=False),
    Fault("the release is refused once", {"begin1": "refuse"}, ("begun",)),
    Fault(
        "its user lowers the time limit before the update, which sets a longer one",
        {"update1": 'as_user TimeLimit=7; real "$@"'},
        ("left",),
        minutes=7,
    ),
    Fault(
        "its user lowers the time limit before the update, which leaves it alone",
        {"update1": 'as_user TimeLimit=7; real "$@"'},
        ("left",),
        job=FEWER_CPUS,
        minutes=7,
    ),
    Fault(
        "its user lowers the time limit after the update",
        {"update1": 'real "$@"; as_user TimeLimit=7'},
        ("restored",),
        minutes=7,
    ),
    Fault(
        "its user moves it to another QOS before the update",
        {"update1": 'as_user QOS=second; real "$@"'},
        ("left",),
    ),
    Fault(
        "before the update, its user sets the time limit that it already has",
        {"update1": 'as_user TimeLimit=10; real "$@"'},
        ("left",),
    ),
    Fault(
        "its user sets NumCPUs before the update",
        {"update1": 'as_user NumCPUs=40 CPUsPerTask=40; real "$@"'},
        ("left",),
        of_others={"CPUs": 40, "CPUs per task": 40},
    ),
    Fault(
        "its user sets MinMemoryNode before the update",
        {"update1": 'as_user MinMemoryNode=4096; real "$@"'},
        ("left",),
        of_others={"GiB": 4, "GiB per node": 4},
    ),
    Fault(
        "its user sets MinMemoryNode before the restoration",
        {"update1": f"{HALF}; refuse", "update2": 'as_user MinMemoryNode=4096; real "$@"'},
        ("restored",),
        of_others={"GiB": 4, "GiB per node": 4},
    ),
    Fault(
        "its user sets NumNodes after the update and is refused",
        {"update1": 'real "$@"; ! as_user NumNodes=2'},
        ("begun",),
    ),
    Fault(
        "its user sets StartTime before the release",
        {"begin1": f'as_user StartTime=uts{ON_THE_MINUTE}; real "$@"'},
        ("begun",),
        on_the_minute=True,
    ),
    Fault(
        "its user moves it to another QOS after the update and is refused",
        {"update1": 'real "$@"; ! as_user QOS=second'},
        ("begun",),
    ),
    Fault(
        "an admin moves it to another QOS after the update",
        {"update1": 'real "$@"; become QOS=second'},
        ("restored",),
    ),
    Fault(
        "its user sets StartTime=now after the update", {"update1": 'real "$@"; as_user StartTime=now'}, ("begun",)
    ),
    Fault(
        "an admin changes its CPUs after the update",
        {"update1": 'real "$@"; become NumCPUs=20 MinCPUsNode=20'},
        ("restored",),
    ),
    Fault(
        "its user sets MinCPUsNode after the update and is refused",
        {"update1": 'real "$@"; ! as_user MinCPUsNode=1'},
        ("begun",),
    ),
    Fault(
        "an admin sets MinCPUsNode after the update",
        {"update1": 'real "$@"; become MinCPUsNode=1'},
        ("restored",),
        of_others={"least CPUs per node": 1},
    ),
    Fault(
        "an admin sets a MinCPUsNode after the update for which slurmctld finds no node",
        {"update1": 'real "$@"; become MinCPUsNode=40'},
        ("restored",),
        is_asked=True,
    ),
    Fault(
        "refused after nodes, tasks and CPUs, and its user sets MinMemoryNode",
        {"update1": f"{HALF}; as_user MinMemoryNode=4096; refuse"},
        ("restored",),
        of_others={"GiB": 4, "GiB per node": 4},
    ),
    Fault(
        "an admin holds and releases it before the update",
        {"update1": 'real hold "$JOB"; real release "$JOB"; real "$@"'},
        ("begun",),
    ),
    Fault(
        "an admin holds and releases it after the update",
        {"update1": 'real "$@"; real hold "$JOB"; real release "$JOB"'},
        ("begun",),
    ),
    Fault("the site's job_submit.lua vetoes the update", {}, ("left",), options=("--job-name=vetoed",)),
    Fault("the site's job_submit.lua rewrites the update", {}, ("restored",), options=("--job-name=rewritten",)),
)

REQUEUED: Final = (  # it has had its wait, so the added nice is taken back
    Fault(
        "it starts and is requeued before the update",
        {"update1": 'requeued; real "$@"'},
        ("left",),
        UNTIL_REQUEUED,
    ),
    Fault(
        "it starts and is requeued after the update",
        {"update1": 'real "$@"; requeued'},
        ("begun",),
        UNTIL_REQUEUED,
        nice=0,
    ),
)

NO_ANSWER: Final = (
    Fault("the update is not answered, but applied", {"update1": 'real "$@"; no_answer'}, ("begun",)),
    Fault("the update is not answered and not applied", {"update1": "no_answer"}, ("left",)),
    Fault("the release is not answered, but done", {"begin1": 'real "$@"; no_answer'}, ("begun",)),
    Fault("the release is not answered and not done", {"begin1": "no_answer"}, ("begun",)),
)

KILLED_WHEN: Final[tuple[tuple[str, Mapping[str, str], ApplicationState], ...]] = (
    ("after the journal", {"update1": "kill_daemon"}, "left"),
    ("after the update", {"update1": 'real "$@"; kill_daemon'}, "begun"),
    ("after the reading", {"begin1": "kill_daemon"}, "begun"),
    ("after the release", {"begin1": 'real "$@"; kill_daemon'}, "begun"),
    ("before a restoration", {"update1": f"{HALF}; refuse", "update2": "kill_daemon"}, "restored"),
    ("after a restoration", {"update1": f"{HALF}; refuse", "update2": 'real "$@"; kill_daemon'}, "restored"),
)
KILLED: Final = tuple(
    Fault(f"rlallocd is killed -9 {when}", scripts, (end,), afterwards="start rlallocd")
    for when, scripts, end in KILLED_WHEN
)

# Where slurmctld is started again soon, scontrol finds it at one of its own attempts; else the update was never sent.
# One that was unreachable drops what it was sent by a caller that has given up since (seen on 22.05).
SLURMCTLD: Final = (
    Fault(
        "slurmctld is ended before the update",
        {"update1": 'slurmctld_ends TERM; really "$@"'},
        ("left", "begun"),
        afterwards="start slurmctld",
    ),
    Fault(
        "slurmctld is ended after the update",
        {"update1": 'real "$@"; slurmctld_ends TERM'},
        ("begun",),
        afterwards="start slurmctld",
    ),
    Fault(
        "slurmctld is killed -9 before the update",
        {"update1": 'slurmctld_ends KILL; really "$@"'},
        ("left", "begun"),
        kept=True,
        afterwards="start slurmctld",
    ),
    Fault(
        "slurmctld is killed -9 after the update",
        {"update1": 'real "$@"; slurmctld_ends KILL'},
        ("left", "begun"),
        kept=True,
        afterwards="start slurmctld",
    ),
    Fault(
        "slurmctld is unreachable for a minute",
        {"update1": 'slurmctld STOP; really "$@"'},
        ("left", "begun"),
        afterwards="continue slurmctld",
    ),
)

FAULTS: Final = (*AT_ONCE, *REQUEUED, *NO_ANSWER, *KILLED, *SLURMCTLD)
