"""A simulator that records what happens, for pictures; the engine keeps one record per job, without places."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.engine_records import RUNNING, STATE_NAMES, Flags, Numbers
from rlalloc_simulator.report.history import History, JobEnd, Run, Wait


class _Holding(NamedTuple):
    """What a running job holds, since when, on which nodes."""

    start_s: float
    nodes: tuple[int, ...]
    gpus_per_node: int
    cpus_per_node: int
    mem_mib_per_node: int


class RecordedSimulator(Simulator):
    """A Simulator that stops at each event and looks at the queue and the nodes.

    Its outcomes are those of a plain Simulator, to the byte. A run that ends at the moment of its start is not seen.
    That costs some 50 microseconds an event. A clone does not record.
    """

    def __init__(
        self,
        site: SimulatedSite,
        jobs: Sequence[SubmittedJob],
        node_names: Sequence[str] = (),
        report: Callable[[float], None] | None = None,
    ) -> None:
        """Raises ValueError as Simulator and table_of do.

        Without names nodes are numbered. ``report`` gets the part of the jobs that has ended, 0 to 1, about
        every hundredth.
        """
        super().__init__(site, table_of(jobs, site))
        self._submitted = jobs
        self._node_names = tuple(node_names) or tuple(f"node{number}" for number in range(site.node_count))
        self._report = report
        self._reported = 0.0
        self._runs: list[Run] = []
        self._waits: list[Wait] = []
        self._holdings: dict[int, _Holding] = {}
        self._queued_since_s: dict[int, float] = {}
        self._queued: Flags = np.zeros(len(jobs), dtype=np.bool_)

    def run(self, until_s: float = math.inf) -> Numbers:
        """Like Simulator.run."""
        while not self.finished:
            event_s = self.next_s
            if event_s > until_s or math.isinf(event_s):
                return super().run(until_s)
            asked = super().run(event_s)
            self._look()
            self._tell()
            if len(asked) or self.freed:
                return asked
        return np.empty(0, dtype=np.int64)

    def history(self) -> History:
        """What has happened until now, without what is still going on."""
        world = self.world
        users = [user.name for user in self.site.users]
        return History(
            nodes=tuple(
                msgspec.structs.replace(kind.shape, gpus=kind.whole_gpus)
                for kind in self.site.nodes
                for _ in range(kind.count)
            ),
            node_names=self._node_names,
            partitions=tuple(tuple(np.flatnonzero(row).tolist()) for row in world.in_partition),
            jobs=tuple(
                JobEnd(
                    user=users[job.user],
                    submit_s=job.submit_s,
                    alone_s=alone_s(job),
                    first_start_s=_time(record["first_start_s"]),
                    end_s=_time(record["finished_s"]),
                    state=STATE_NAMES[record["state"]],
                )
                for job, record in zip(self._submitted, world.jobs, strict=True)
            ),
            runs=tuple(self._runs),
            waits=tuple(self._waits),
        )

    def _look(self) -> None:
        self._look_at_nodes()
        self._look_at_queue()

    def _tell(self) -> None:
        if self._report is None:
            return
        ended = float(self.world.clock[0]["ended"]) / max(1, len(self._submitted))
        if ended >= self._reported + 0.01:
            self._reported = ended
            self._report(ended)

    def _look_at_nodes(self) -> None:
        world = self.world
        used = np.arange(world.slots.shape[1]) < world.nodes["running"][:, None]
        nodes, places = used.nonzero()
        numbers = world.slots["job"][nodes, places]
        present = set(numbers.tolist())
        for number in [*self._holdings]:
            if number not in present or self._holdings[number].start_s != world.jobs[number]["start_s"]:
                self._end_run(number, self._holdings.pop(number))
        for number in sorted(present - self._holdings.keys()):
            size = world.sizes[number]
            self._holdings[number] = _Holding(
                start_s=float(world.jobs[number]["start_s"]),
                nodes=tuple(nodes[numbers == number].tolist()),
                gpus_per_node=int(size["gpus_per_node"]) if world.jobs[number]["whole_gpus"] else 0,
                cpus_per_node=int(size["cpus_per_node"]),
                mem_mib_per_node=int(size["mem_mib_per_node"]),
            )

    def _end_run(self, number: int, holding: _Holding) -> None:
        job, now_s = self.world.jobs[number], self.now_s
        state = "REQUEUED"
        if job["finished_s"] == now_s:
            state = STATE_NAMES[job["state"]]
        elif job["first_end_s"] == now_s and job["first_state"] > RUNNING:  # killed, and submitted again as requested
            state = STATE_NAMES[job["first_state"]]
        self._runs.append(
            Run(
                job=number,
                start_s=holding.start_s,
                end_s=now_s,
                nodes=holding.nodes,
                gpus_per_node=holding.gpus_per_node,
                cpus_per_node=holding.cpus_per_node,
                mem_mib_per_node=holding.mem_mib_per_node,
                state=state,
            )
        )

    def _look_at_queue(self) -> None:
        world, now_s = self.world, self.now_s
        queued = np.zeros_like(self._queued)
        queued[world.queue[: world.clock[0]["queued"]]] = True
        for number in np.flatnonzero(queued != self._queued).tolist():
            if queued[number]:
                self._queued_since_s[number] = now_s
                continue
            size = world.sizes[number]
            nodes = int(size["nodes"])
            self._waits.append(
                Wait(
                    job=number,
                    begin_s=self._queued_since_s.pop(number),
                    end_s=now_s,
                    partition=int(size["partition"]),
                    gpus=nodes * int(size["gpus_per_node"]) if world.jobs[number]["whole_gpus"] else 0,
                    cpus=nodes * int(size["cpus_per_node"]),
                    mem_mib=nodes * int(size["mem_mib_per_node"]),
                )
            )
        self._queued = queued


def alone_s(job: SubmittedJob) -> float:
    """How long a job runs as requested if nothing but its own end, its limit or its user ends it."""
    speed = job.curve.at_size(job.request)
    return min(job.stops_at * job.work_s / speed, float(job.request.time_limit_s), job.cancel_after_s)


def _time(seconds: float) -> float | None:
    return None if math.isnan(seconds) else float(seconds)
