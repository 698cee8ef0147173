"""A policy drives a simulated site: each job that asks gets the shares that the policy answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlalloc.heuristics import Heuristic
from rlalloc_trainer.simulator.engine import Simulator, SubmittedJob
from rlalloc_trainer.simulator.engine.records import Records
from rlalloc_trainer.simulator.engine.side_by_side import decide
from rlalloc_trainer.simulator.engine.views import cluster_view, job_view


@dataclass(frozen=True, eq=False)
class Driven:
    """A stream that has been run to its end.

    outcomes   what became of each job (``records.JOB``), in the stream's order
    decided    decisions that were applied
    left       questions whose answer no node could hold: those jobs went on as they were
    """

    outcomes: Records
    decided: int
    left: int


def drive(
    simulator: Simulator,
    jobs: Sequence[SubmittedJob],
    policy: Heuristic | None,
    report: Callable[[float], None] | None = None,
) -> Driven:
    """Run ``simulator``, whose stream is ``jobs``, to its end and return what became of it. Deterministic.

    A job's shares become a size and, where the site lets urgency count, a nice, through the same functions as in the
    daemon. None stands for no rlalloc at all: jobs go on as submitted. ``report`` is told
    after each batch of questions what part of the jobs has ended, 0 to 1.
    """
    decided = left = 0
    while not simulator.finished:
        asked = simulator.run()
        if policy is None:
            simulator.leave(asked)
        else:
            for number in asked.tolist():
                if _decide(simulator, number, jobs[number], policy):
                    decided += 1
                else:
                    left += 1
        if report is not None and jobs:
            report(float(simulator.world.clock[0]["ended"]) / len(jobs))
    return Driven(simulator.outcomes(), decided, left)


def _decide(simulator: Simulator, number: int, submitted: SubmittedJob, policy: Heuristic) -> bool:
    """Ask the policy and apply its answer; False where no nodes could hold it, and the job is left as it is."""
    job, view = job_view(simulator, number, submitted), cluster_view(simulator, number)
    try:
        decide(simulator, number, submitted, view, policy(job, view))
    except ValueError:
        simulator.leave([number])
        return False
    return True
