"""The Pareto front: one weight-conditioned policy against policies that were each trained for one weight.

All learn from the same advantages with the same number of gradient steps, and run the same validation workloads. A
point is a policy at one weight of a term beside completion time: mean JCT and mean cost in that term, both relative
to the baseline heuristic on the same workloads.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch

from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASELINE, BASELINE_NAME
from rlalloc.objective import TERM_NAMES, Weights
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc.progress import ProgressCallback, part_of
from rlalloc_agent.actor import HIDDEN, Actor
from rlalloc_simulator.comparison.compared_policy import HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE, Interval, paired_ratio
from rlalloc_simulator.comparison.runner import Run, RunSettings, run_all
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.training_workloads import TRAINING, VALIDATION, TrainingWorkload, training_workload
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings, counterfactual_advantages
from rlalloc_trainer.advantages.weight_relabelling import Draw, always, draw_weights, relabelled_replay
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.sac.conditioned_critics import weight_conditioned_sac
from rlalloc_trainer.sac.soft_actor_critic import Losses, SacSettings, learn

CONDITIONED: Final = "one weight-conditioned policy"
SINGLE: Final = "one policy for each weight"
SIMULATED: Final = 0.2
LEARNED: Final = 0.4
"""How much of the time has passed by then; the progress bar's estimate."""


class ParetoFrontSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``weights`` of ``term`` beside a completion time of weight 1, jobs per workload, and amounts of work."""

    term: str = "gpu_held"
    weights: tuple[float, ...] = (0.0, 2.0, 5.0, 100.0)
    seed: int = 0
    jobs: int = 100
    workloads: int = 100
    steps: int = 3000
    validation_workloads: int = 80
    advantages: AdvantageSettings = AdvantageSettings()
    sac: SacSettings = SacSettings()


class ParetoPoint(msgspec.Struct, frozen=True):
    """A policy at one weight, relative to the baseline heuristic: below 1 is better, and cheaper."""

    weight: float
    jct: Interval
    cost: Interval


ParetoFront = dict[str, list[ParetoPoint]]
"""Points in the order of weights, by CONDITIONED and SINGLE."""


def pareto_front(settings: ParetoFrontSettings, parallel_map: ParallelMap, report: ProgressCallback) -> ParetoFront:
    """Train and run all policies. Deterministic for a seed. Raises PolicyError for an unknown term."""
    if settings.term not in TERM_NAMES or settings.term == "jct":
        others = ", ".join(name for name in TERM_NAMES if name != "jct")
        raise PolicyError(f"no term {settings.term!r} to set against jct: write one of {others}")
    sites = [site_weights(settings.term, weight) for weight in settings.weights]
    advantages = _advantages(settings, parallel_map, report)
    draws: list[Draw] = [draw_weights, *(always(site) for site in sites)]
    actors = []
    for number, draw in enumerate(draws):
        report("learning", SIMULATED + (LEARNED - SIMULATED) * number / len(draws))
        actors.append(_learned(settings, advantages, draw))
    measured = RunSettings(costs=True)
    runs: dict[tuple[str, Weights] | None, Run] = {None: Run(HeuristicPolicy(BASELINE_NAME), measured)}
    for single, site in zip(actors[1:], sites, strict=True):
        runs[CONDITIONED, site] = Run(msgspec.structs.replace(actors[0], objective=site), measured)
        runs[SINGLE, site] = Run(msgspec.structs.replace(single, objective=site), measured)
    numbers = range(VALIDATION, VALIDATION + settings.validation_workloads)
    sources = [TrainingWorkload(number, settings.jobs) for number in numbers]
    progress = part_of(lambda _, done: report("judging", done), LEARNED, 1.0)
    results = run_all(runs, sources, parallel_map, progress)
    return {
        name: [
            ParetoPoint(
                weight,
                _ratio(results[name, site], results[None], "jct"),
                _ratio(results[name, site], results[None], settings.term),
            )
            for weight, site in zip(settings.weights, sites, strict=True)
        ]
        for name in (CONDITIONED, SINGLE)
    }


def site_weights(term: str, weight: float) -> Weights:
    """The default objective of a site, with another weight for one term."""
    return msgspec.structs.replace(Weights(), **{term: weight})


def advantages_of_workload(task: tuple[int, int, AdvantageSettings]) -> Advantages:
    """Return counterfactual advantages in the workload of that number and so many jobs."""
    number, jobs, settings = task
    generator = np.random.default_rng((number, 3))
    return counterfactual_advantages(training_workload(number, jobs), BASELINE, settings, generator)


def _advantages(
    settings: ParetoFrontSettings, parallel_map: ParallelMap, report: ProgressCallback
) -> list[Advantages]:
    first = TRAINING + 1000 * settings.seed
    tasks = [(first + number, settings.jobs, settings.advantages) for number in range(settings.workloads)]
    made = []
    for advantages in parallel_map(advantages_of_workload, tasks):
        made.append(advantages)
        report("simulating", SIMULATED * len(made) / len(tasks))
    return made


def _learned(settings: ParetoFrontSettings, advantages: Sequence[Advantages], draw: Draw) -> LearnedPolicy:
    torch.manual_seed(settings.seed)
    sac = weight_conditioned_sac(Actor(hidden=HIDDEN), settings.sac, settings.seed)
    learn(
        sac,
        relabelled_replay(advantages, PolicyInputs(), draw),
        settings.steps,
        np.random.default_rng(settings.seed),
        _ignore,
    )
    return LearnedPolicy.of(sac.actor)


def _ignore(_: Losses) -> None:
    """Losses are of no interest here."""


def _ratio(results: Sequence[WorkloadResult], base: Sequence[WorkloadResult], term: str) -> Interval:
    """Return the ratio of mean costs by a term, without the workloads where one of the two costs nothing."""
    pairs = [(one.costs[term] or 0.0, other.costs[term] or 0.0) for one, other in zip(results, base, strict=True)]
    some = [pair for pair in pairs if min(pair) > 0.0]
    if not some:
        raise PolicyError("no workload costs anything by this term: choose another one, or more workloads")
    return paired_ratio([one for one, _ in some], [other for _, other in some])


def draw_pareto_front(found: ParetoFront, term: str, path: Path) -> None:
    """Draw mean JCT against the term's cost as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for (name, points), marker in zip(found.items(), ("o-", "s--"), strict=True):
        cost, jct = ([getattr(point, each).estimate for point in points] for each in ("cost", "jct"))
        (line,) = axes.plot(cost, jct, marker, label=name)
        for point in points:
            axes.plot((point.cost.low, point.cost.high), [point.jct.estimate] * 2, color=line.get_color(), alpha=0.3)
            axes.plot([point.cost.estimate] * 2, (point.jct.low, point.jct.high), color=line.get_color(), alpha=0.3)
            axes.annotate(
                f"{point.weight:g}",
                (point.cost.estimate, point.jct.estimate),
                textcoords="offset points",
                xytext=(5, 5),
                color=line.get_color(),
            )
    axes.plot(1.0, 1.0, "k*", label=BASELINE_NAME)
    axes.set(xlabel=f"mean {term} over that of {BASELINE_NAME}", ylabel=f"mean JCT over that of {BASELINE_NAME}")
    axes.set_title(f"Weights of {term} beside jct 1, {CONFIDENCE:.0%} intervals over workloads")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
