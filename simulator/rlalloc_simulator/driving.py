"""A policy drives a simulated site: it answers each question, and the job gets these shares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.type_choice import Offered
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.batched_simulators import decide
from rlalloc_simulator.engine.engine_records import Numbers, Records
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlalloc_simulator.engine.simulator import SIZE_FIELDS
from rlalloc_simulator.known_answers import known_answers, same_whatever_is_free
from rlalloc_simulator.late_driving import LateDecisions
from rlalloc_simulator.simulated_types import TypeChoices


@dataclass(frozen=True, eq=False)
class Driven:
    """A workload that has been run to its end.

    outcomes      what became of each job (``engine_records.JOB``), in the workload's order
    sizes         (jobs, 7) what each was given by its last decision, columns SIZE_FIELDS; else as submitted
    decided       decisions that were applied
    unplaceable   answers that no nodes could hold: those jobs stayed as they were
    updates       changes of a waiting job's size or nice: what a real site would have been asked for
    """

    outcomes: Records
    sizes: Numbers
    decided: int
    unplaceable: int
    updates: int


def drive(
    simulator: Simulator,
    jobs: Sequence[SubmittedJob],
    policy: Heuristic | None,
    report: Callable[[float], None] | None = None,
    before: Callable[[list[int]], None] | None = None,
) -> Driven:
    """Run ``simulator``, whose workload is ``jobs``, to its end and return what became of it. Deterministic.

    A job's shares become a size and, where the site lets urgency count, a nice, by the same functions as in the
    daemon. Without a policy jobs run as submitted. After each batch of questions ``report`` gets the part of the jobs
    that has ended, 0 to 1. Before each decision ``before`` gets the jobs of the batch that still wait for theirs, the
    one to decide first; without it, what is known before is answered in one go (``known_answers``).
    """
    known = None if policy is None or before is not None else known_answers(simulator, jobs, policy)
    if known is not None:
        return _answered_by_engine(simulator, known, report)
    decided = unplaceable = updates = 0
    sizes = sizes_now(simulator)
    late = _late_decisions(simulator, jobs, policy)
    of_types = policy if before is None else None  # who looks at each decision sees one question about each
    types = None if late is None else TypeChoices(simulator, jobs, late, of_types)
    while not simulator.finished:
        asked = simulator.run()
        if simulator.freed:
            resized = [] if types is None else types.look()
            if resized:
                sizes[resized] = sizes_now(simulator, resized)
                updates += len(resized)
        elif policy is None:
            simulator.leave(asked)
        else:
            for place, number in enumerate(asked.tolist()):
                if before is not None:
                    before(asked[place:].tolist())
                if _decide(simulator, number, jobs[number], policy, types):
                    decided += 1
                else:
                    unplaceable += 1
            now = sizes_now(simulator, asked)
            updates += int((now != sizes[asked])[:, :-1].any(axis=1).sum())  # patience is no field of Slurm's
            sizes[asked] = now
        if report is not None and jobs:
            report(float(simulator.world.clock[0]["ended"]) / len(jobs))
    return Driven(simulator.outcomes(), sizes, decided, unplaceable, updates)


def _answered_by_engine(simulator: Simulator, answers: Numbers, report: Callable[[float], None] | None) -> Driven:
    sizes, decisions = sizes_now(simulator), simulator.world.jobs["decisions"].copy()
    simulator.run_answered(answers)
    if report is not None:
        report(1.0)
    decided = np.flatnonzero(simulator.world.jobs["decisions"] > decisions)
    updates = int((answers[decided] != sizes[decided])[:, :-1].any(axis=1).sum())  # patience is no field of Slurm's
    sizes[decided] = answers[decided]
    return Driven(simulator.outcomes(), sizes, len(decided), 0, updates)


def sizes_now(simulator: Simulator, numbers: Numbers | list[int] | slice = slice(None)) -> Numbers:
    """Return what each of these jobs requests or holds now, shape (jobs, 7), columns SIZE_FIELDS."""
    sizes, jobs = simulator.world.sizes, simulator.world.jobs
    patience_s = jobs["patience_s"][numbers]
    patience_s = np.where(np.isfinite(patience_s), patience_s, 0.0)
    columns = [sizes[name][numbers] for name in SIZE_FIELDS[:-2]]
    return np.array([*columns, jobs["added_nice"][numbers], patience_s]).T.astype(np.int64)


def _late_decisions(
    simulator: Simulator, jobs: Sequence[SubmittedJob], policy: Heuristic | None
) -> LateDecisions | None:
    """None where the site decides each job once, or a later decision could change nothing."""
    if policy is None or same_whatever_is_free(policy) or not simulator.site.interception.late:
        return None
    return LateDecisions(simulator, jobs, policy)


def _decide(
    simulator: Simulator, number: int, submitted: SubmittedJob, policy: Heuristic, types: TypeChoices | None
) -> bool:
    """Ask the policy and apply its answer; False where no nodes could hold it: the job stays as it is."""
    job, view = job_view(simulator, number, submitted), cluster_view(simulator, number)
    shares = policy(job, view)
    if types is not None:
        typed = types.choose(number, Offered(job, view), shares)
        view, shares = typed or (view, types.late.first_answer(number, view, shares))
    return decide(simulator, number, submitted, view, shares)
