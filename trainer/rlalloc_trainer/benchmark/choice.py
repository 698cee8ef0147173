"""What a site would serve by its own choice: of a policy and the heuristics that the agent can serve, the best.

A workload in a setting is a site. It chooses as its retraining does (``rlalloc_trainer.answering``), by streams that
nothing is judged on, of all loads: its validation weeks; of a file the pieces that came before.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from rlalloc.heuristics import SERVED_HEURISTICS
from rlalloc.heuristics.order import SMALLEST_AREA_FIRST
from rlalloc_trainer.answering import best_of
from rlalloc_trainer.benchmark.figures import StreamFigures
from rlalloc_trainer.benchmark.runs import Results, Setting, StreamKey
from rlalloc_trainer.benchmark.workloads import FileWeeks
from rlalloc_trainer.evaluation import StreamResult

CHOSEN: Final = "chosen:"
"""What a name begins with where each site chooses between that policy and CHOICES."""
CHOICES: Final = tuple(name.removesuffix(SMALLEST_AREA_FIRST) for name in SERVED_HEURISTICS)
"""The contenders that the agent can serve: where urgency counts, they have that order."""

Streams = Sequence[tuple[StreamKey, Results]]


class Site(NamedTuple):
    """A workload in a setting."""

    workload: str
    setting: Setting


def with_choice(
    streams: Streams, seen: Streams, policy: str
) -> tuple[list[tuple[StreamKey, Results]], dict[Site, tuple[str, ...]]]:
    """Return ``streams`` with results of ``chosen:policy`` too, and who was served on each site.

    Those are the results of ``policy`` or of one of CHOICES, all of which have to be among the results. ``seen`` are
    streams to choose by, with the same contenders. Pieces of a file may be served by more than one.
    """
    best: dict[tuple[Site, int], str] = {}  # by week, which is all the same but for a file's pieces
    with_chosen = []
    for key, results in streams:
        week = key.week if isinstance(key.workload, FileWeeks) else 0
        added: Results = {}
        for setting in dict.fromkeys(setting for _, setting in results):
            site = Site(key.workload.name, setting)
            if (site, week) not in best:
                past = [before for other, before in (*seen, *streams) if _is_before(other, key)]
                best[site, week] = _best(past, policy, setting)
            added[CHOSEN + policy, setting] = results[best[site, week], setting]
        with_chosen.append((key, added | results))
    served: defaultdict[Site, dict[str, None]] = defaultdict(dict)
    for (site, _), name in best.items():
        served[site][name] = None
    return with_chosen, {site: tuple(names) for site, names in served.items()}


def _is_before(other: StreamKey, key: StreamKey) -> bool:
    """Whether what is served on ``key`` may be chosen by ``other``."""
    if other.workload.name != key.workload.name:
        return False
    if isinstance(key.workload, FileWeeks):
        return other.week < key.week
    return other.week not in key.workload.weeks


def _best(past: Sequence[Results], policy: str, setting: Setting) -> str:
    """Return who did best on streams of the past; ``policy`` where there are none."""
    if not past:
        return policy
    results = {name: [_result(figures[name, setting]) for figures in past] for name in CHOICES}
    base = [_result(figures[policy, setting]) for figures in past]
    best = best_of(results, base)[0]
    return policy if best is None else best


def _result(figures: StreamFigures) -> StreamResult:
    return StreamResult(figures.jct_s, figures.wait_s, 3600.0 * figures.gpu_hours, figures.killed)
