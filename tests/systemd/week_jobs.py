"""What the users of the site under test submit, day by day, and how each job has to end whatever rlalloc does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_testbed.waiting import stretched, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.systemd.systemd_container import Container

_MEBIBYTES: Final = {"M": 1, "G": 1024}
USERS: Final = ("ada", "bob", "carol")
LAUNCHER: Final = "/usr/local/bin/torchrun"
ASKED: Final = "/usr/local/share/asked"
# It ends as a program would that finds other GPUs than it was started for, or whose srun fails. On half of the GPUs
# that its user asked for, it takes twice as long.
LAUNCHER_TEXT: Final = r"""#!/bin/bash
processes=
for word; do case $word in --nproc-per-node=*) processes=${word#*=} ;; esac; done
IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
[ "${processes:-${#devices[@]}}" = "${#devices[@]}" ] || exit 91
[ "$SLURM_GPUS_ON_NODE" = "${#devices[@]}" ] || exit 92
steps=$(srun --ntasks=1 sh -c 'echo $SLURM_JOB_ID') || exit 93
[ "$steps" = "$SLURM_JOB_ID" ] || exit 94
printf '{"gpus": %d, "cpus": %d}\n' "${#devices[@]}" "$SLURM_CPUS_PER_TASK" >>"$HOME/seen-$SLURM_JOB_ID"
asked=$(sed -n "s/^$SLURM_JOB_NAME //p" /usr/local/share/asked)
ms=$((${WORK_MS:-@WORK_MS@} * asked / ${#devices[@]}))
sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
exit "${ENDS_WITH:-0}"
"""


class Kind(NamedTuple):
    """A kind of job. `covered` by rlalloc's rule; `gpus` is what its user allows; `end` is sacct's state and code.

    It asks for `cpus` and `mem_gib`, by default 2 CPUs and 4 GiB a GPU. `least_cpus_per_gpu` and `least_gib_per_gpu`
    are how few of them its user, or the shipped configuration, allows; 0: not fewer than it asks for.
    """

    name: str
    user: str
    request: int
    body: str
    options: tuple[str, ...] = ()
    covered: bool = True
    gpus: tuple[int, ...] = ()
    cpus: int = 0
    mem_gib: int = 0
    least_cpus_per_gpu: int = 0
    least_gib_per_gpu: int = 0
    tasks: int = 1
    begin_s: int = 0
    after: str = ""
    cancelled: bool = False
    end: tuple[str, str] = ("COMPLETED", "0:0")

    @property
    def asked_cpus(self) -> int:
        """The CPUs that it asks for."""
        return self.cpus or max(1, 2 * self.request)

    @property
    def asked_mib(self) -> int:
        """The memory that it asks for."""
        return 1024 * (self.mem_gib or max(1, 4 * self.request))

    @property
    def launched(self) -> bool:
        """Whether its script starts the program that writes down what it sees."""
        return "torchrun" in self.body


FOLLOWS: Final = (
    "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --model gpt2 --seq-length 1024 "
    "--global-batch-size 64 --micro-batch-size 4\n"
)
"""It takes its size from Slurm, and states what rlalloc has to know before it changes that."""
KINDS: Final = (
    Kind("range", "ada", 4, f"#RLALLOC gpus=1-4\n{FOLLOWS}", gpus=(1, 2, 4)),
    Kind("follows", "ada", 2, FOLLOWS, gpus=(1, 2, 4)),
    Kind("counted", "bob", 2, "torchrun --nproc-per-node=2 train.py\n"),
    Kind("fails", "bob", 2, f"#RLALLOC gpus=1-2\nexport ENDS_WITH=3\n{FOLLOWS}", gpus=(1, 2), end=("FAILED", "3:0")),
    Kind(
        "many-cpus",
        "bob",
        1,
        "#RLALLOC cpus-per-gpu=8-14\ntorchrun --nproc-per-node=1 train.py\n",
        cpus=14,
        least_cpus_per_gpu=8,
    ),
    Kind(
        "roomy",
        "ada",
        2,
        f"#RLALLOC gpus=2 cpus-per-gpu=1-6 mem-per-gpu=2G-20G\n{FOLLOWS}",
        gpus=(2,),
        cpus=12,
        mem_gib=40,
        least_cpus_per_gpu=1,
        least_gib_per_gpu=2,
    ),
    Kind("no-gpus", "bob", 0, "sleep 1\n", covered=False),
    Kind("no-llm", "carol", 1, "sleep 1\n", covered=False),
    Kind("wrong-line", "carol", 2, f"#RLALLOC gpus=4-1\n{FOLLOWS}"),
    Kind("off", "carol", 2, f"#RLALLOC off\n{FOLLOWS}", covered=False),
    Kind("array", "carol", 2, f"#RLALLOC gpus=1-2\n{FOLLOWS}", ("--array=1-3",), gpus=(1, 2), tasks=3),
    Kind("depends", "bob", 1, "torchrun --nproc-per-node=1 train.py\n", after="range"),
    Kind("later", "ada", 2, FOLLOWS, begin_s=10, gpus=(1, 2, 4)),
    Kind("cancelled", "ada", 4, FOLLOWS, ("--hold",), cancelled=True, end=("CANCELLED", "0:0")),
)
OVERDUE: Final = Kind(
    "overdue",
    "carol",
    1,
    "export WORK_MS=600000\ntorchrun --nproc-per-node=1 train.py\n",
    ("--time=1",),
    end=("TIMEOUT", "0:0"),
)
"""A job that is killed at its time limit, which takes Slurm a minute and more."""
TIGHT: Final = Kind(
    "tight", "ada", 2, f"#RLALLOC gpus=1-2\nexport WORK_MS=45000\n{FOLLOWS}", ("--time=1",), gpus=(1, 2)
)
"""A job that ends within its time limit in the size that its user asked for, and not in half of that."""
LASTING: Final = Kind(
    "lasting",
    "carol",
    4,
    "while [ ! -e end ]; do sleep 0.2; done\n",
    ("--time=60",),
    covered=False,
    cpus=1,
    mem_gib=1,
)
"""It holds all GPUs until its user makes a file, so that other jobs wait."""
END: Final = f"/home/{LASTING.user}/end"


class Ended(NamedTuple):
    """What sacct says of one run of a job or task; times are epoch seconds, None where there was none."""

    kind: Kind
    job_id: str
    state: str
    exit_code: str
    tres: dict[str, str]
    limit_min: str
    submitted_s: int
    eligible_s: int | None
    started_s: int | None
    ended_s: int

    @property
    def ran(self) -> bool:
        """Whether it ever held something."""
        return bool(self.tres)

    @property
    def gpus(self) -> int:
        """The GPUs that it held; those that it asked for where it never ran."""
        return int(self.tres.get("gres/gpu", 0)) if self.ran else self.kind.request

    @property
    def cpus(self) -> int:
        """The CPUs that it held."""
        return int(self.tres["cpu"])

    @property
    def mem_mib(self) -> int:
        """The memory that it held, which AllocTRES has as 16G or 16000M."""
        text = self.tres["mem"]
        return int(float(text[:-1]) * _MEBIBYTES[text[-1]])

    @property
    def trimmed(self) -> bool:
        """Whether it held fewer CPUs or less memory for a GPU than its user asked for."""
        kind = self.kind
        if not self.ran or not kind.request:
            return False
        held, asked = self.gpus, kind.request
        return self.cpus * asked < kind.asked_cpus * held or self.mem_mib * asked < kind.asked_mib * held

    @property
    def another_size(self) -> bool:
        """Whether it held something else than its user asked for."""
        wanted = self.kind.request, self.kind.asked_cpus, self.kind.asked_mib
        return self.ran and (self.gpus, self.cpus, self.mem_mib) != wanted

    @property
    def waited_s(self) -> int:
        """From its submission to its start, 0 where it never ran."""
        return self.started_s - self.submitted_s if self.ran and self.started_s is not None else 0


def prepare_users(container: Container, work_ms: int) -> None:
    """Make the users with their accounts, and the program that all of them start, which works so long."""
    for user in USERS:
        if container.run("id", user, check=False).returncode:
            container.run("useradd", "--create-home", user)
            container.run("sacctmgr", "-i", "add", "user", user, "account=research")
    asked = "".join(f"{kind.name} {kind.request}\n" for kind in (*KINDS, OVERDUE, TIGHT))
    container.run("tee", ASKED, text=asked)
    container.run("tee", LAUNCHER, text=LAUNCHER_TEXT.replace("@WORK_MS@", str(work_ms)))
    container.run("chmod", "755", LAUNCHER)


def submit(container: Container, kinds: Iterable[Kind]) -> dict[int, Kind]:
    """Submit a job of each kind as its user; return the kinds by job id."""
    jobs: dict[int, Kind] = {}
    for kind in kinds:
        gpus = ("--gpus-per-node", str(kind.request)) if kind.request else ()
        after = [str(job) for job, other in jobs.items() if other.name == kind.after]
        done = container.run(
            *("sbatch", "--parsable", "--job-name", kind.name, "--chdir", f"/home/{kind.user}", "--time=10"),
            *("--cpus-per-task", str(kind.asked_cpus), "--mem", f"{kind.asked_mib}M"),
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
    """What sacct knows of the runs that have ended, also of those after which a job was requeued."""
    fields = "JobID,JobIDRaw,State,ExitCode,AllocTRES,TimelimitRaw,Submit,Eligible,Start,End"
    query = ("sacct", "-n", "-X", "-P", "--duplicates", "-o", fields, "-j", ",".join(map(str, jobs)))
    found = []
    for line in container.run("env", "SLURM_TIME_FORMAT=%s", *query).stdout.splitlines():
        shown, raw, state, exit_code, tres, limit_min, *times = line.split("|")
        submitted_s, eligible_s, started_s, ended_s = (int(each) if each.isdigit() else None for each in times)
        if ended_s is None or submitted_s is None or state in ("RUNNING", "PENDING"):
            continue
        if tres and not limit_min:
            continue  # slurmdbd has its end before its start, of a short job
        kind = jobs[int(shown.split("_")[0])]
        held = dict(pair.split("=", 1) for pair in tres.split(",") if pair)
        state = state.split()[0]  # CANCELLED by 1001
        times_s = (submitted_s, eligible_s, started_s, ended_s)
        found.append(Ended(kind, raw, state, exit_code, held, limit_min, *times_s))
    return found


def queue_behind_a_running_job(container: Container, kinds: Iterable[Kind]) -> dict[int, Kind]:
    """Submit jobs that wait until `let_go`, because a job holds all GPUs; return the kinds by job id, that one's too.

    `assert_queued` says whether they still wait.
    """
    container.run("rm", "-f", END)
    jobs = submit(container, [LASTING])
    (lasting,) = jobs
    wait_until(lambda: _state(container, lasting) == "RUNNING", what="a job that holds all GPUs")
    return jobs | submit(container, kinds)


def assert_queued(container: Container, jobs: dict[int, Kind]) -> None:
    """All that need GPUs wait; the job that holds them is still in its first run."""
    lasting = next(job for job, kind in jobs.items() if kind is LASTING)
    assert _state(container, lasting) == "RUNNING"
    wanted = {job for job, kind in jobs.items() if kind.request and not kind.cancelled} - {lasting}
    assert wanted <= waiting(container)


def let_go(container: Container) -> None:
    """End the job behind which others wait."""
    container.run("touch", END, user=LASTING.user)


def waiting(container: Container) -> set[int]:
    """The ids of the jobs that wait in the queue; an array's tasks by that of the array."""
    shown = container.run("squeue", "-h", "--states=PENDING", "-o", "%F").stdout.split()
    return set(map(int, shown))


def _state(container: Container, job: int) -> str:
    return container.run("squeue", "-h", "-j", str(job), "-o", "%T", check=False).stdout.strip()
