"""What a cycle of rlallocd costs by the size of the site: 1,000 to 10,000 waiting jobs, up to 2,000 nodes.

    python bench/daemon_scale.py [--steady 10] [--mixed] [--resized] [--ending 3]

A controller runs against a replayed slurmctld, which prints a generated queue as squeue does: reading, knowledge,
decisions, the store and verification are real. The time of Slurm's own programs, of slurmctld and of printing is left
out (docs/results/slurm-load.md has it). Every waiting job is ours. An agent in the same process answers the baseline
heuristic, which lets one job in a hundred grow at most. The nodes are full but for one in fifty. With ``--mixed``,
nodes have GPUs of three types in overlapping partitions, and jobs name types or partitions. With ``--resized``, all
nodes are full, the agent answers the smallest size, and each job asks for more than that and is decided once: all
jobs wait in smaller sizes. docs/results/scale.md has figures.
"""

import argparse
import json
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Final, cast

import msgspec
import numpy as np

from daemon_decisions import BaselineAgent, node, tag_text
from rlalloc.config import parse_config
from rlalloc.devices import Device, NodeDevices
from rlalloc.job import Shares
from rlalloc.messages import Decided, PolicyAnswer
from rlalloc.observation import EncodedQuestion
from rlalloc.store import Store
from rlallocd.controller import Controller
from rlallocd.cycle_schedule import CycleReport, CycleSchedule
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.process.garbage_collection import collect_rarely
from rlallocd.slurm import (
    AccountingRecord,
    ControllerConfig,
    EndedJobs,
    Holder,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    SiteLimits,
    Slurm,
    UpdatePlan,
)
from rlallocd.slurm.generations import generations
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.squeue_reader import SqueueReader

SIZES: Final = ((1_000, 200, 200), (3_000, 600, 600), (10_000, 2_000, 2_000))
"""Waiting jobs, running jobs, nodes of eight GPUs."""
BURST: Final = 1_000
TYPES: Final = ("a100", "v100", "h100")
POLL_S: Final = 5.0
"""``daemon.poll_s``: while nothing is submitted, a cycle starts this often."""
ENDING_S: Final = 120.0
"""So long jobs end and start."""
OLDEST: Final = generations()[0]
_EMPTY: Final = "N/A"
_SET_BY_UPDATE: Final = {
    "NumTasks": "NumTasks",
    "TasksPerNode": "NTPerNode",
    "CPUsPerTask": "cpus-per-task",
    "NumCPUs": "NumCPUs",
    "MinCPUsNode": "MinCpus",
    "TresPerNode": "tres-per-node",
    "Nice": "Nice",
    "AdminComment": "admin_comment",
}
"""Field of an update: the column of squeue that then shows its value unchanged."""
_PADDING: Final = " ".join(f"Unread{number}=(null)" for number in range(40))


class ReplayedCommands(Commands):
    """Prints a queue as squeue and scontrol do."""

    def __init__(self, running: int, *, mixed: bool, resized: bool) -> None:
        super().__init__(timeout_s=1.0)
        self.mixed = mixed
        self.resized = resized
        self.running = running
        self.jobs: dict[int, dict[str, str]] = {}
        self.printing_s = 0.0

    def submit(self, number: int, now_s: int) -> None:
        """Add jobs until there are ``number``, each deferred for rlalloc; the first ones run."""
        for job_id in range(len(self.jobs) + 1, number + 1):
            gpus = (2 if self.resized else 1, 2, 4, 8)[job_id % 4]
            self.jobs[job_id] = columns_of(job_id, now_s, gpus, runs=job_id <= self.running, mixed=self.mixed)

    def start(self, job_id: int) -> None:
        """Let a waiting job start, with what it asks for."""
        row = self.jobs[job_id]
        row |= {
            "State": "RUNNING",
            "Reason": "None",
            "StartTime": str(int(time.time())),
            "NodeList": f"n{job_id % 2000}",
        }

    def run(self, *words: str) -> str:
        """Answer squeue, in the columns that are asked for, or ``scontrol show job`` of the whole queue."""
        if words[0] == "scontrol":
            return self.converse(*words, lines=[f"show job {job_id}" for job_id in self.jobs])
        began_s = time.process_time()
        text = self._printed(words)
        self.printing_s += time.process_time() - began_s
        return text

    def _printed(self, words: Sequence[str]) -> str:
        columns = [column.rpartition(":")[::2] for column in words[-1].removeprefix("--Format=").split(",")]
        wanted = [word.removeprefix("--jobs=").split(",") for word in words if word.startswith("--jobs=")]
        ids = [int(job_id) for job_id in wanted[0]] if wanted else self.jobs
        return "".join(
            "".join(self.jobs[job_id].get(name, _EMPTY) + mark for name, mark in columns) + "\n" for job_id in ids
        )

    def converse(self, *words: str, lines: Sequence[str]) -> str:
        """Answer ``scontrol show job``, a line each, in which what is not read is padding."""
        del words
        began_s = time.process_time()
        text = "".join(
            f"JobId={job_id} JobName={self.jobs[job_id]['Name']} UserId=u(1) {_PADDING} NumNodes=1 NumCPUs=8 "
            f"MinMemoryNode=64000M {_PADDING}\n"
            for job_id in (int(line.split()[-1]) for line in lines)
        )
        self.printing_s += time.process_time() - began_s
        return text


class SmallestAgent(BaselineAgent):
    """Answers each question with the smallest size."""

    def decide(self, questions: Sequence[EncodedQuestion], *, sample: bool) -> Decided:
        """Answer all of them; ``sample`` makes no difference."""
        decided = super().decide(questions, sample=sample)
        smallest = PolicyAnswer(shares=Shares(0.0, 0.0, 0.0), log_probability=0.0)
        return msgspec.structs.replace(decided, answers=(smallest,) * len(questions))


class ReplayedSlurm:
    """The parts of ``rlallocd.slurm.Slurm`` that a cycle calls; no job ever starts or ends."""

    def __init__(self, commands: ReplayedCommands, nodes: Sequence[NodeRecord]) -> None:
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.capabilities = OLDEST
        self.most_jobs = 100
        self.config = ControllerConfig(
            slurm_version=OLDEST.release, cluster="bench", limits_enforced=False, gpus_accounted=True
        )
        self._commands = commands
        self._reader = SqueueReader(commands, JsonReader(commands, self.capabilities))
        self._nodes = tuple(nodes)

    def time_calls(self, took: Callable[[str, float], None]) -> None:
        """Their times say nothing here."""

    def jobs(self) -> tuple[JobRecord, ...]:
        """Read them as of a real site."""
        return self._reader.jobs()

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """Read them as of a real site."""
        return self._reader.read_back(job_ids)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """The nodes, as they are."""
        return self._nodes

    def partitions(self) -> dict[str, PartitionRecord]:
        """One of all nodes, and one of each type."""
        return {name: PartitionRecord(name=name, max_time_s=None, max_nodes=None) for name in ("gpu", *TYPES)}

    def limits(self, holders: Set[Holder], *, licenses: bool = False) -> SiteLimits:
        """There are none."""
        del holders, licenses
        return SiteLimits(enforced=False)

    def update(self, plan: UpdatePlan) -> None:
        """Carry out an update of a job on one node."""
        self.calls["scontrol update"] += 1
        fields = dict(plan.fields)
        row = self._commands.jobs[plan.job_id]
        row |= {column: fields[field] for field, column in _SET_BY_UPDATE.items() if field in fields}
        if "TimeLimit" in fields:
            row["TimeLimit"] = f"{fields['TimeLimit']}:00"
        if "NumCPUs" not in fields:
            return
        cpus, mem_mib, gpus = fields["NumCPUs"], fields["MinMemoryNode"], fields["TresPerNode"].rpartition(":")[2]
        row |= {
            "MinMemory": f"{mem_mib}M",
            "tres-alloc": f"cpu={cpus},mem={mem_mib}M,node=1,billing=1,gres/gpu={gpus}",
        }

    def never_runs(self, jobs: Sequence[JobRecord]) -> dict[int, str]:
        """Any size may run."""
        del jobs
        return {}

    def together(self) -> AbstractContextManager[None]:
        """Updates take no process here."""
        return nullcontext()

    def begin(self, job_ids: Sequence[int], begin_s: float) -> None:
        """Let jobs wait for resources."""
        del begin_s
        for job_id in job_ids:
            self._commands.jobs[job_id] |= {"EligibleTime": "1000", "Reason": "Priority"}

    def accounting(self, job_ids: Sequence[int], since_s: float) -> tuple[AccountingRecord, ...]:
        """Nothing has ended."""
        del job_ids, since_s
        return ()

    def ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        """Nothing has ended."""
        del since_s
        return EndedJobs((), until_s, 0)

    earlier_ended_jobs = ended_jobs


def main() -> None:
    """Print a table, each size in a process of its own, and what the largest costs over the smallest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steady", type=int, default=10, help="cycles of each kind to take the median of")
    parser.add_argument("--mixed", action="store_true", help="nodes of several types, in partitions that overlap")
    parser.add_argument("--resized", action="store_true", help="all jobs wait in smaller sizes than they asked for")
    parser.add_argument(
        "--ending", type=int, help=f"only the largest site: so many jobs end and start every {POLL_S:g} s"
    )
    given = parser.parse_args()
    if given.ending:
        if given.ending * ENDING_S / POLL_S >= SIZES[-1][0]:
            parser.error(f"--ending: {given.ending} are too many for {SIZES[-1][0]:,} waiting jobs")
        with ProcessPoolExecutor(1) as pool:
            kinds = {"mixed": given.mixed, "resized": given.resized}
            share, cycles, cycle_s = pool.submit(measure_ending, *SIZES[-1], given.ending, **kinds).result()
        print(
            f"{given.ending} jobs end and start every {POLL_S:g} s: {share:.1%} of a core in {ENDING_S:g} s, ", end=""
        )
        print(f"{cycles} cycles of {cycle_s:.2f} s (median)")
        return
    print(f"{'waiting':>8} {'running':>8} {'nodes':>6} {'cycle':>8} {'of a core':>10} ", end="")
    print(f"{'all rows new':>13} {'late pass':>10} {f'{BURST:,} new jobs':>15} {'memory':>8}")
    rows = []
    for waiting, running, nodes in SIZES:
        with ProcessPoolExecutor(1) as pool:
            rows.append(
                pool.submit(
                    measure, waiting, running, nodes, given.steady, mixed=given.mixed, resized=given.resized
                ).result()
            )
        cycle_s, changed_s, pass_s, burst_s, memory_mib = rows[-1]
        print(f"{waiting:>8,} {running:>8,} {nodes:>6,} {cycle_s:>6.3f} s {cycle_s / POLL_S:>10.1%} ", end="")
        print(f"{changed_s:>11.2f} s {pass_s:>8.2f} s {burst_s:>13.2f} s {memory_mib:>4.0f} MiB", flush=True)
    ratios = (last / first for first, last in zip(rows[0], rows[-1], strict=True))
    text = "largest over smallest: cycle {:.1f}, all rows new {:.1f}, late pass {:.1f}, burst {:.1f}, memory {:.1f}"
    print(text.format(*ratios))


class DecidedSite:
    """A controller that has decided all waiting jobs of a site. The last ``BURST`` of them took ``burst_s``."""

    def __init__(self, folder: str, waiting: int, running: int, nodes: int, *, mixed: bool, resized: bool) -> None:
        """The configuration and the store are in ``folder``. Raises SystemExit if the jobs were decided otherwise."""
        collect_rarely()
        random = np.random.default_rng(0)
        self.commands = ReplayedCommands(running, mixed=mixed, resized=resized)
        site = [_node(number, random, mixed=mixed, full=resized) for number in range(nodes)]
        self.config = parse_config(
            json.dumps(
                {
                    "mode": "enforce",
                    "rules": [{"name": "llm", "mode": "enforce"}],
                    "nodes": {"task_prolog": "trusted"},
                    "runtime_directory": folder,
                    "store": {"url": f"sqlite:///{folder}/store.sqlite"},
                    "policy": {"directory": folder},
                    "redecision": {"max_updates": 0 if resized else 3},
                }
            ),
            "bench",
        )
        self.store = Store(self.config.store.url)
        slurm = ReplayedSlurm(self.commands, site)
        agent = SmallestAgent() if resized else BaselineAgent()
        self._controller = Controller(self.config, cast(Slurm, slurm), self.store, cast(AgentClient, agent))
        while len(self.commands.jobs) < running + waiting - BURST:
            self.commands.submit(min(len(self.commands.jobs) + 2_000, running + waiting - BURST), int(time.time()))
            self.cycle()
        self.commands.submit(running + waiting, int(time.time()))
        self.burst_s = self.cycle().processor_s
        decided = self._controller.counters["decided_enforce"]
        updated = self._controller.counters["applications_begun"]
        expected = range(waiting, waiting + 1) if resized else range(waiting // 100 + 1)
        if decided != waiting or updated not in expected:
            text = f"{decided} of {waiting} jobs were decided, {updated} resized"
            raise SystemExit(f"{text}: {dict(self._controller.counters)}")
        self.cycle()

    def cycle(self) -> CycleReport:
        """Run one cycle; its processor time [s] is without that of printing the queue."""
        printing_s = self.commands.printing_s
        report = self._controller.cycle()
        own_s = report.processor_s - (self.commands.printing_s - printing_s)
        return msgspec.structs.replace(report, processor_s=own_s)


def measure(waiting: int, running: int, nodes: int, steady: int, *, mixed: bool, resized: bool) -> tuple[float, ...]:
    """Processor time [s] of a steady cycle, of others, and memory [MiB].

    The others: after all priorities have changed, after a job has ended, and with a burst of new jobs.
    """
    with tempfile.TemporaryDirectory() as folder:
        site = DecidedSite(folder, waiting, running, nodes, mixed=mixed, resized=resized)
        cycle_s = float(np.median([site.cycle().processor_s for _ in range(steady)]))
        changed = []
        for turn in range(steady):
            for job_id, row in site.commands.jobs.items():
                row["PriorityLong"] = str(2_000_000 - job_id + turn)
            changed.append(site.cycle().processor_s)
        passes = []
        for turn in range(steady):
            del site.commands.jobs[turn + 1]
            passes.append(site.cycle().processor_s)
        site.store.close()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return cycle_s, float(np.median(changed)), float(np.median(passes)), site.burst_s, peak_mib


def measure_ending(
    waiting: int, running: int, nodes: int, ending: int, *, mixed: bool, resized: bool
) -> tuple[float, int, float]:
    """Share of a core, cycles, and their median processor time [s], if jobs end and others start all the time.

    The cycles come when rlallocd's own schedule says so. What is in use of the nodes does not change.
    """
    with tempfile.TemporaryDirectory() as folder:
        site = DecidedSite(folder, waiting, running, nodes, mixed=mixed, resized=resized)
        began_s = time.monotonic()
        schedule, took, ended = CycleSchedule(site.config, began_s), list[float](), 0
        while (passed_s := time.monotonic() - began_s) < ENDING_S:
            while ended < passed_s / POLL_S * ending:
                ended += 1
                del site.commands.jobs[ended]
                site.commands.start(running + ended)
            report = site.cycle()
            took.append(report.processor_s)
            schedule.cycled(report, site.config, time.monotonic())
            time.sleep(schedule.wait_s(time.monotonic()))
        share = sum(took) / (time.monotonic() - began_s)
        site.store.close()
    return share, len(took), float(np.median(took))


def _node(number: int, random: np.random.Generator, *, mixed: bool, full: bool) -> NodeRecord:
    """One node of eight GPUs. All are in use, except on one node in fifty if not ``full``."""
    gpu_type = TYPES[number % len(TYPES)] if mixed else TYPES[0]
    return msgspec.structs.replace(
        node(number, random, 1),
        partitions=("gpu", gpu_type) if mixed else ("gpu",),
        devices=(NodeDevices(Device("gpu", gpu_type), 8, 8 if full or number % 50 else 4),),
    )


def columns_of(job_id: int, now_s: int, gpus: int, *, runs: bool, mixed: bool) -> dict[str, str]:
    """What squeue prints of a job of one node: one that runs, or one that the plugin has just deferred.

    On a mixed site a third of the jobs names a type, another third a partition.
    """
    gpu_type = TYPES[job_id % 7 % len(TYPES)]
    gres = f"gres:gpu:{gpu_type}:{gpus}" if mixed and job_id % 3 == 0 else f"gres:gpu:{gpus}"
    deferred_s = now_s + 3600
    return {
        "JobID": str(job_id),
        "Name": f"train-{job_id % 37}",
        "UserName": f"u{job_id % 200}",
        "Account": "llm",
        "Partition": gpu_type if mixed and job_id % 3 == 1 else "gpu",
        "State": "RUNNING" if runs else "PENDING",
        "Reason": "None" if runs else "BeginTime",
        "SubmitTime": str(now_s - 10),
        "EligibleTime": str(now_s - 10 if runs else deferred_s),
        "StartTime": str(now_s - 5) if runs else _EMPTY,
        "TimeLimit": f"{1 + job_id % 40}:00:00",
        "PriorityLong": str(1_000_000 - job_id),
        "Nice": "0",
        "admin_comment": "(null)" if runs else tag_text(deferred_s),
        "NumNodes": "1",
        "MaxNodes": "1",
        "NumTasks": "1",
        "NumCPUs": str(8 * gpus),
        "QOS": "normal",
        "MinCpus": "1",
        "MinMemory": f"{64_000 * gpus}M",
        "tres-alloc": f"cpu={8 * gpus},mem={64_000 * gpus}M,node=1,billing=1,gres/gpu={gpus}",
        "NodeList": f"n{job_id % 2000}" if runs else "",
        "tres-per-node": gres,
        "BatchFlag": "1",
        "ArrayJobID": str(job_id),
        "OverSubscribe": "OK",
    }


if __name__ == "__main__":
    main()
