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
from rlalloc.heuristics import BASELINE_NAME
from rlalloc.objective import TERM_NAMES, Weights, costs_of
from rlalloc.objective.consequences import FloatArray
from rlalloc.policy_inputs import PolicyInputs
from rlalloc_agent.actor import HIDDEN, Actor
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.objective_costs import KnownBefore, consequences_of, setting_of
from rlalloc_simulator.paired_statistics import Interval, ratio_of
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.progress import ProgressCallback
from rlalloc_simulator.training_workloads import TRAINING, VALIDATION, training_workload
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings, counterfactual_advantages
from rlalloc_trainer.advantages.weight_relabelling import Draw, always, draw_weights, relabelled_replay
from rlalloc_trainer.evaluation.policy_runs import ActorWeights, Contender, policy_of
from rlalloc_trainer.sac.conditioned_critics import weight_conditioned_sac
from rlalloc_trainer.sac.soft_actor_critic import Losses, SacSettings, learn

CONFIDENCE: Final = 0.9
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
    contenders: list[Contender] = [BASELINE_NAME]
    contenders += [msgspec.structs.replace(actors[0], objective=site) for site in sites]
    contenders += [
        msgspec.structs.replace(actor, objective=site) for actor, site in zip(actors[1:], sites, strict=True)
    ]
    costs = _measured(contenders, settings, parallel_map, report)
    points = [
        ParetoPoint(
            weight,
            _ratio(costs[row, :, TERM_NAMES.index("jct")], costs[0, :, TERM_NAMES.index("jct")]),
            _ratio(costs[row, :, TERM_NAMES.index(settings.term)], costs[0, :, TERM_NAMES.index(settings.term)]),
        )
        for row, weight in enumerate((*settings.weights, *settings.weights), start=1)
    ]
    return {CONDITIONED: points[: len(sites)], SINGLE: points[len(sites) :]}


def site_weights(term: str, weight: float) -> Weights:
    """The default objective of a site, with another weight for one term."""
    return msgspec.structs.replace(Weights(), **{term: weight})


def advantages_of_workload(task: tuple[int, int, AdvantageSettings]) -> Advantages:
    """Return counterfactual advantages in the workload of that number and so many jobs."""
    number, jobs, settings = task
    return counterfactual_advantages(
        training_workload(number, jobs), policy_of(BASELINE_NAME), settings, np.random.default_rng((number, 3))
    )


def costs_of_workload(task: tuple[Contender, int, int]) -> FloatArray:
    """Run a policy on the workload of that number and of so many jobs; return their mean costs by term, (terms,)."""
    contender, number, jobs = task
    workload = training_workload(number, jobs)
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    drive(simulator, workload.jobs, policy_of(contender))
    became = consequences_of(simulator, KnownBefore.of(workload.jobs))
    return np.asarray(costs_of(became, setting_of(workload.site)).mean(axis=0))


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


def _learned(settings: ParetoFrontSettings, advantages: Sequence[Advantages], draw: Draw) -> ActorWeights:
    torch.manual_seed(settings.seed)
    sac = weight_conditioned_sac(Actor(hidden=HIDDEN), settings.sac, settings.seed)
    learn(
        sac,
        relabelled_replay(advantages, PolicyInputs(), draw),
        settings.steps,
        np.random.default_rng(settings.seed),
        _ignore,
    )
    return ActorWeights.of(sac.actor)


def _ignore(_: Losses) -> None:
    """Losses are of no interest here."""


def _measured(
    contenders: Sequence[Contender],
    settings: ParetoFrontSettings,
    parallel_map: ParallelMap,
    report: ProgressCallback,
) -> FloatArray:
    """Mean costs (contenders, workloads, terms)."""
    workloads = range(VALIDATION, VALIDATION + settings.validation_workloads)
    tasks = [(contender, number, settings.jobs) for contender in contenders for number in workloads]
    found = []
    for costs in parallel_map(costs_of_workload, tasks):
        found.append(costs)
        report("judging", LEARNED + (1 - LEARNED) * len(found) / len(tasks))
    return np.array(found).reshape(len(contenders), len(workloads), len(TERM_NAMES))


def _ratio(costs: FloatArray, base: FloatArray) -> Interval:
    """Geometric mean over workloads (workloads,) with its interval, without those where neither costs anything."""
    some = (costs > 0) & (base > 0)
    if not some.any():
        raise PolicyError("no workload costs anything by this term: choose another one, or more workloads")
    return ratio_of([np.log(costs[some] / base[some])], CONFIDENCE)


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
