"""What the users of the site under test submit, day by day, and how each job has to end whatever rlalloc does."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from rlalloc.tres import parse_tres
from slurm_testbed.waiting import stretched

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.systemd.systemd_container import Container

USERS: Final = ("ada", "bob", "carol")
LAUNCHER: Final = "/usr/local/bin/torchrun"
# It ends as a program would that finds other GPUs than it was started for, or whose srun fails.
LAUNCHER_TEXT: Final = r"""#!/bin/bash
processes=
for word; do case $word in --nproc-per-node=*) processes=${word#*=} ;; esac; done
IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
[ "${processes:-${#devices[@]}}" = "${#devices[@]}" ] || exit 91
[ "$SLURM_GPUS_ON_NODE" = "${#devices[@]}" ] || exit 92
steps=$(srun --ntasks=1 sh -c 'echo $SLURM_JOB_ID') || exit 93
[ "$steps" = "$SLURM_JOB_ID" ] || exit 94
printf '{"gpus": %d, "cpus": %d}\n' "${#devices[@]}" "$SLURM_CPUS_PER_TASK" >>"$HOME/seen-$SLURM_JOB_ID"
sleep "${WORK_S:-1}"
exit "${ENDS_WITH:-0}"
"""


class Kind(NamedTuple):
    """A kind of job. `covered` by rlalloc's rule; `gpus` is the range that its user allows, the request at first."""

    name: str
    user: str
    request: int
    body: str
    options: tuple[str, ...] = ()
    covered: bool = True
    gpus: tuple[int, ...] = ()
    tasks: int = 1
    begin_s: int = 0
    after: str = ""
    cancelled: bool = False


FOLLOWS: Final = "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py\n"
KINDS: Final = (
    Kind("range", "ada", 4, f"#RLALLOC gpus=1-4\n{FOLLOWS}", gpus=(1, 2, 4)),
    Kind("follows", "ada", 2, FOLLOWS, gpus=(1, 2, 4)),
    Kind("counted", "bob", 2, "torchrun --nproc-per-node=2 train.py\n"),
    Kind("fails", "bob", 2, f"#RLALLOC gpus=1-2\nexport ENDS_WITH=3\n{FOLLOWS}", gpus=(1, 2)),
    Kind("no-gpus", "bob", 0, "sleep 1\n", covered=False),
    Kind("no-llm", "carol", 1, "sleep 1\n", covered=False),
    Kind("wrong-line", "carol", 2, f"#RLALLOC gpus=4-1\n{FOLLOWS}"),
    Kind("off", "carol", 2, f"#RLALLOC off\n{FOLLOWS}", covered=False),
    Kind("array", "carol", 2, f"#RLALLOC gpus=1-2\n{FOLLOWS}", ("--array=1-3",), gpus=(1, 2), tasks=3),
    Kind("depends", "bob", 1, "torchrun --nproc-per-node=1 train.py\n", after="range"),
    Kind("later", "ada", 2, FOLLOWS, begin_s=10, gpus=(1, 2, 4)),
    Kind("cancelled", "ada", 4, FOLLOWS, ("--hold",), cancelled=True),
)
OVERDUE: Final = Kind(
    "overdue", "carol", 1, "export WORK_S=600\ntorchrun --nproc-per-node=1 train.py\n", ("--time=1",)
)
"""A job that is killed at its time limit, which takes Slurm a minute and more."""


class Ended(NamedTuple):
    """What sacct says of one job or task."""

    kind: Kind
    job_id: str
    state: str
    exit_code: str
    tres: dict[str, float]
    waited_s: float

    @property
    def end(self) -> tuple[str, str, str]:
        """What has to be the same with and without rlalloc."""
        return self.kind.name, self.state, self.exit_code


def prepare_users(container: Container) -> None:
    """Make the users with their accounts, and the program that all of them start."""
    for user in USERS:
        if container.run("id", user, check=False).returncode:
            container.run("useradd", "--create-home", user)
            container.run("sacctmgr", "-i", "add", "user", user, "account=research")
    container.run("tee", LAUNCHER, text=LAUNCHER_TEXT)
    container.run("chmod", "755", LAUNCHER)


def submit(container: Container, kinds: Iterable[Kind]) -> dict[int, Kind]:
    """Submit a job of each kind as its user; return the kinds by job id."""
    jobs: dict[int, Kind] = {}
    for kind in kinds:
        gpus = ("--gpus-per-node", str(kind.request)) if kind.request else ()
        after = [str(job) for job, other in jobs.items() if other.name == kind.after]
        done = container.run(
            *("sbatch", "--parsable", "--job-name", kind.name, "--chdir", f"/home/{kind.user}", "--time=10"),
            *("--cpus-per-task", str(max(1, 2 * kind.request)), "--mem", f"{max(1, 4 * kind.request)}G"),
            *gpus,
            *kind.options,
            *((f"--begin=now+{kind.begin_s}",) if kind.begin_s else ()),
            *(("--dependency", f"afterok:{after[0]}") if after else ()),
            user=kind.user,
            text=f"#!/bin/bash\n{kind.body}",
        )
        jobs[int(done.stdout.strip().split(";")[0])] = kind
    for job, kind in jobs.items():
        if kind.cancelled:
            container.run("scancel", str(job), user=kind.user)
    return jobs


def wait_for_ends(container: Container, jobs: dict[int, Kind], limit_s: float = 300) -> list[Ended]:
    """Wait until sacct has the end of every job; return the ends."""
    began = time.monotonic()
    while True:
        ended = ends(container, jobs)
        if len(ended) == sum(kind.tasks for kind in jobs.values()):
            return ended
        if time.monotonic() - began > stretched(limit_s):
            queue = container.run("squeue", "-o", "%i %j %u %T %r %b", check=False).stdout
            raise TimeoutError(f"not all jobs have ended: {queue}\n{container.journal('rlallocd', 'slurmctld')}")
        time.sleep(0.5)


def ends(container: Container, jobs: dict[int, Kind]) -> list[Ended]:
    """What sacct knows of those that have ended."""
    fields = "JobID,JobIDRaw,State,ExitCode,AllocTRES,Submit,Eligible,Start,End"
    query = ("sacct", "-n", "-X", "-P", "-o", fields, "-j", ",".join(map(str, jobs)))
    found = []
    for line in container.run("env", "SLURM_TIME_FORMAT=%s", *query).stdout.splitlines():
        shown, raw, state, exit_code, tres, submitted, _, started, ended = line.split("|")
        if not ended.isdigit() or state in ("RUNNING", "PENDING"):
            continue
        kind = jobs[int(shown.split("_")[0])]
        waited_s = float(started) - float(submitted) if started.isdigit() else 0.0
        state = state.split()[0]  # CANCELLED by 1001
        found.append(Ended(kind, raw, state, exit_code, dict(parse_tres(tres)), waited_s))
    return found


def harmed(container: Container, ended: Sequence[Ended], before: Sequence[Ended], *, resizing: bool) -> list[str]:
    """Say what is not as it would be without rlalloc: ends, sizes outside the user's bounds, a wrong environment."""
    usual = {each.end for each in before}
    problems = [f"job {each.job_id}: {each.end}" for each in ended if each.end not in usual]
    for each in ended:
        if each.state == "CANCELLED":
            continue
        if each.waited_s < each.kind.begin_s - 1:  # sbatch and slurmctld read the clock one after the other
            problems.append(f"job {each.job_id} ({each.kind.name}) began {each.waited_s:.0f} s after its submission")
        gpus = int(each.tres.get("gres/gpu", 0))
        allowed = {each.kind.request, *(each.kind.gpus if resizing else ())}
        if gpus not in allowed:
            problems.append(f"job {each.job_id} ({each.kind.name}) ran with {gpus} GPUs, allowed are {allowed}")
        if "torchrun" in each.kind.body and each.kind.name != OVERDUE.name:
            path = f"/home/{each.kind.user}/seen-{each.job_id}"
            seen = [json.loads(line) for line in container.run("cat", path, check=False).stdout.splitlines()]
            if seen != [{"gpus": gpus, "cpus": int(each.tres["cpu"])}]:
                problems.append(f"job {each.job_id} ({each.kind.name}) saw {seen}, and sacct says {each.tres}")
    return problems
