"""Typed rows of the store. None means: not known, or never came to be."""

import re
from typing import Literal

import msgspec

from rlalloc.job import Allocation, Bounds, JobClass, Mode, Shares
from rlalloc.llm.parallel_layouts import ParallelPlan
from rlalloc.objective import Resources
from rlalloc.run_time import RunTimeEstimate
from rlalloc.speed.longer_limits import ExpectedSlowdown

ApplicationState = Literal["intended", "applied", "restoring", "begun", "left", "restored", "gone", "lost"]
"""Open: intended: journalled, Slurm perhaps touched · applied: read back as intended · restoring: being taken back.
Ends: begun: as decided, free to start · left: as submitted, never changed · restored: as submitted again ·
gone: left the queue before it started · lost: started as neither, and too late to change
(docs/explanation/transactions.md)."""

OPEN_STATES: tuple[ApplicationState, ...] = ("intended", "applied", "restoring")


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What the terms of the objective need of the moment of a decision.

    The partition in all, the GPUs of its largest node, and those that the job's user held. ``plan`` is how the job's
    GPUs were to be divided into parallel ranks; None where too little was known for a plan.
    """

    cluster: Resources
    node_gpus: int
    user_running_gpus: int
    plan: ParallelPlan | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for one job.

    ``reason`` is empty where a policy decided, else why the job was left as submitted. ``observation`` holds the
    features, float32, little endian, whose names the store keeps under ``observation_schema``; ``alternatives`` what
    each heuristic answered, by name. ``queued``, the dominant shares, ``reference_s`` and
    ``circumstances`` are what the reward needs of that moment. ``predicted_gain`` is None in a job's first decision;
    in one taken while it waited, the part of the expected cost that the new size was to save. ``nice`` is what was to
    be added to the job's own for its urgency, and ``patience_s`` the wait in which that falls to nothing; None where
    urgency did not count. ``run_time`` is how long the job was expected to run in the size that it asked for; None
    where only its time limit was known. ``slowdown`` is what its new size was expected to cost; None where no policy
    was asked or its answer was not allowed.
    """

    id: str
    job_id: int
    submitted_s: float
    decided_s: float
    user: str
    account: str
    partition: str
    job_name: str
    job_class: JobClass
    rule: str
    mode: Mode
    reason: str
    request: Allocation
    bounds: Bounds | None = None
    observation_schema: int | None = None
    observation: bytes | None = None
    alternatives: dict[str, Shares] | None = None
    queued: int | None = None
    dominant_share_requested: float | None = None
    dominant_share_allocated: float | None = None
    reference_s: float | None = None
    shares: Shares | None = None
    log_probability: float | None = None
    policy_version: str | None = None
    allocation: Allocation | None = None
    predicted_gain: float | None = None
    circumstances: Circumstances | None = None
    nice: int | None = None
    patience_s: float | None = None
    run_time: RunTimeEstimate | None = None
    slowdown: ExpectedSlowdown | None = None

    @property
    def skip_code(self) -> str:
        """The stable name that a reason begins with (docs/reference/messages.md); empty where a policy decided."""
        name, colon, _ = self.reason.partition(": ")
        return name if colon and re.fullmatch("[a-z0-9-]+", name) else "other" if self.reason else ""

    def was_in_vain(self, nodes: int, cpus: int, gpus: int, mem_mib: float) -> bool:
        """Whether a job that was given these ran as it was submitted, and not in the decided size.

        Memory counts where nothing else was to change: a job with --mem=0 gets all of a node's, whatever its request.
        """
        request, size = self.request, self.allocation or self.request
        asked, decided = ((each.nodes, each.cpus, each.gpus) for each in (request, size))
        return (nodes, cpus, gpus) == asked and (asked != decided or mem_mib == request.mem_mib != size.mem_mib)


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to make a job what was decided: the journal's entry.

    ``original`` is the size before the update, and ``record`` Slurm's whole record of then (rlallocd's JSON), since a
    size alone does not say in which fields it was asked for. ``begins`` says whether the job waits for us to let it
    go, from ``begin_s`` on (the user's own begin time, 0 for at once), or only changes where it stands in the queue.
    ``own_nice`` is the job's nice before, ``added_nice`` what is added to it; None: it is left as it is.
    """

    id: int
    decision_id: str
    job_id: int
    state: ApplicationState
    original: Allocation
    intended: Allocation
    begin_s: float
    detail: str
    changed_s: float
    begins: bool = True
    record: str | None = None
    own_nice: int | None = None
    added_nice: int | None = None


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All that was decided for one job and what was done about it, each oldest first; at least one decision."""

    decisions: tuple[Decision, ...]
    applications: tuple[Application, ...]

    @property
    def request(self) -> Allocation:
        """What its user submitted."""
        return self.decisions[0].request

    @property
    def in_force(self) -> Decision:
        """The decision that made the job what it is now: the last one applied, or the first if none was."""
        if (application := self._last_begun) is None:
            return self.decisions[0]
        return next(decision for decision in self.decisions if decision.id == application.decision_id)

    @property
    def applied(self) -> bool:
        """Whether a decision made the job what it is now; else it is as submitted."""
        return self._last_begun is not None

    @property
    def size(self) -> Allocation:
        """What the job asks for by now, as far as it is our doing."""
        return self.request if self._last_begun is None else self._last_begun.intended

    @property
    def sizes_had(self) -> tuple[Allocation, ...]:
        """The sizes that it waited in, or that were tried."""
        first = self.decisions[0].id
        unchanged = not any(each.decision_id == first and each.state == "begun" for each in self.applications)
        return (*((self.request,) if unchanged else ()), *(each.intended for each in self.applications))

    @property
    def further_updates(self) -> int:
        """Updates after its first decision, tried or done."""
        return sum(each.decision_id != self.decisions[0].id for each in self.applications)

    @property
    def is_open(self) -> bool:
        """Whether an update has not come to its end."""
        return any(each.state in OPEN_STATES for each in self.applications)

    @property
    def _last_begun(self) -> Application | None:
        return next((each for each in reversed(self.applications) if each.state == "begun"), None)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a decided job, from sacct. Times are epoch seconds; memory is of all nodes, MiB.

    ``cpu_s_used`` and ``mem_mib_used`` (the sum of its tasks' peaks) are None where Slurm did not gather them.
    ``costs`` are those of the objective's terms by name, over the job's scale (rlalloc.reward), so that a reward for
    any weights can be made of them; None where one is not known. ``executed_shares`` are those in effect: the
    policy's where it was applied, else those of the request. ``our_doing`` names what ended a job that rlalloc had
    made smaller and that may have gone on as submitted; None for all other ends.
    """

    decision_id: str
    state: str
    exit_code: str
    eligible_s: float | None
    started_s: float | None
    ended_s: float
    nodes: int
    gpus: int
    cpus: int
    mem_mib: float
    max_rss_mib: float | None
    consumed_energy_j: float | None
    executed_shares: Shares | None
    reward: float | None
    cpu_s_used: float | None = None
    mem_mib_used: float | None = None
    costs: dict[str, float | None] | None = None
    our_doing: str | None = None


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A version that the trainer made, and what the gate said (plain JSON)."""

    version: str
    parent: str | None
    created_s: float
    promoted: bool
    verdict: dict[str, object]


class Experience(msgspec.Struct, frozen=True, kw_only=True):
    """A decision and its outcome, as the trainer reads them."""

    decision: Decision
    outcome: Outcome
