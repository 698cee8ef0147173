"""What a site would serve by its own choice: of a policy and the heuristics that the agent can serve, the best.

A scenario in a setting is a site. It chooses as its retraining does (``rlalloc_trainer.promotion.routing_choice``),
by workloads that nothing is judged on, of all loads: its validation weeks; of a file the pieces that came before.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from rlalloc.heuristics import SERVED_HEURISTICS
from rlalloc.heuristics.order import SMALLEST_AREA_FIRST
from rlalloc_trainer.evaluation.scenario_runs import Results, Setting, WorkloadKey
from rlalloc_trainer.evaluation.scenarios import FileWeeks
from rlalloc_trainer.promotion.routing_choice import best_of

CHOSEN: Final = "chosen:"
"""What a name begins with where each site chooses between that policy and CHOICES."""
CHOICES: Final = tuple(name.removesuffix(SMALLEST_AREA_FIRST) for name in SERVED_HEURISTICS)
"""The compared policies that the agent can serve: where urgency counts, they have that order."""

Workloads = Sequence[tuple[WorkloadKey, Results]]


class Site(NamedTuple):
    """A scenario in a setting."""

    scenario: str
    setting: Setting


def with_choice(
    workloads: Workloads, seen: Workloads, policy: str
) -> tuple[list[tuple[WorkloadKey, Results]], dict[Site, tuple[str, ...]]]:
    """Return ``workloads`` with results of ``chosen:policy`` too, and who was served on each site.

    Those are the results of ``policy`` or of one of CHOICES, all of which have to be among the results. ``seen`` are
    workloads to choose by, with the same policies. Pieces of a file may be served by more than one.
    """
    best: dict[tuple[Site, int], str] = {}  # by week, which is all the same but for a file's pieces
    with_chosen = []
    for key, results in workloads:
        week = key.week if isinstance(key.scenario, FileWeeks) else 0
        added: Results = {}
        for setting in dict.fromkeys(setting for _, setting in results):
            site = Site(key.scenario.name, setting)
            if (site, week) not in best:
                past = [before for other, before in (*seen, *workloads) if _is_before(other, key)]
                best[site, week] = _best(past, policy, setting)
            added[CHOSEN + policy, setting] = results[best[site, week], setting]
        with_chosen.append((key, added | results))
    served: defaultdict[Site, dict[str, None]] = defaultdict(dict)
    for (site, _), name in best.items():
        served[site][name] = None
    return with_chosen, {site: tuple(names) for site, names in served.items()}


def _is_before(other: WorkloadKey, key: WorkloadKey) -> bool:
    """Whether what is served on ``key`` may be chosen by ``other``."""
    if other.scenario.name != key.scenario.name:
        return False
    if isinstance(key.scenario, FileWeeks):
        return other.week < key.week
    return other.week not in key.scenario.weeks


def _best(past: Sequence[Results], policy: str, setting: Setting) -> str:
    """Return who did best on workloads of the past; ``policy`` where there are none."""
    if not past:
        return policy
    results = {name: [figures[name, setting] for figures in past] for name in CHOICES}
    base = [figures[policy, setting] for figures in past]
    best = best_of(results, base)[0]
    return policy if best is None else best
