"""The whole story of one job, as the store has it: what ``rlalloc explain`` shows."""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from rlalloc.job import Shares
from rlalloc.observation import as_stored
from rlalloc.store.access import Store
from rlalloc.store.rows import Application, Decision, Outcome


class Chapter(msgspec.Struct, frozen=True):
    """One decision for the job, what was done about it and what came of it.

    ``in_force`` is the id of the decision that made the job what it is: this one, or another of the same job, which
    the outcome belongs to then. ``features`` are what the policy was told of the job, and ``alternatives`` what each
    heuristic would have answered, by the names of then; empty where no policy was asked. ``of_tasks`` is what was
    done about single tasks of an array, under their own job ids.
    """

    decision: Decision
    applications: tuple[Application, ...]
    outcome: Outcome | None
    in_force: str
    features: Mapping[str, float]
    alternatives: Mapping[str, Shares]
    of_tasks: tuple[Application, ...] = ()


def story_of(store: Store, job_id: int) -> tuple[Chapter, ...]:
    """All decisions ever taken for this job id, oldest first; empty if there is none.

    Where the store leaves out rows that it cannot read, so are all decisions for a job with such a row.
    """
    decisions = store.decisions_of(job_id)
    histories = store.histories({(job_id, int(decision.submitted_s)) for decision in decisions})
    outcomes = store.outcomes([decision.id for decision in decisions])
    names = store.feature_names()
    of_tasks: defaultdict[str, list[Application]] = defaultdict(list)
    for each in store.applications(*(decision.id for decision in decisions)):
        if each.job_id != job_id:
            of_tasks[each.decision_id].append(each)
    story = []
    for decision in decisions:
        history = histories.get((job_id, int(decision.submitted_s)))
        if history is None:
            continue
        applications = tuple(each for each in history.applications if each.decision_id == decision.id)
        seen = as_stored(
            names.get(decision.observation_schema or 0, ()), decision.observation or b"", decision.alternatives
        )
        outcome = outcomes.get(decision.id)
        in_force = history.in_force.id
        story.append(Chapter(decision, applications, outcome, in_force, *seen, tuple(of_tasks[decision.id])))
    return tuple(story)
