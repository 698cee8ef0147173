"""Constants of reference policies, tuned on the compiled engine by the cross-entropy method (Rubinstein, 1999).

A Gaussian over the constants' logarithms (logits for shares) is drawn from, and the best quarter refits it, on new
workloads each round. What comes out is printed: constants change by hand, since observations contain the base
heuristic, and a learned policy is good only for the constants that it was trained with.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import PolicyError
from rlalloc.heuristics import TUNED_PRICE, Heuristic, Ordered, PriceConstants
from rlalloc.heuristics.efficiency import (
    ADAPTIVE_THRESHOLD,
    JOBS_PER_NODE_FOR_HALF,
    THRESHOLD,
    most_efficient,
    most_efficient_by_queue,
)
from rlalloc.heuristics.offers import OfSizes
from rlalloc.heuristics.order import SMALLEST_AREA_FIRST
from rlalloc.heuristics.price import STEEP_PRICE, SteepConstants, of_least_cost, of_least_steep_cost
from rlalloc.progress import ProgressCallback
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.comparison.compared_policy import REFERENCE, ComparedPolicy, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE, FloatArray, Interval, log_ratios, ratio_of
from rlalloc_simulator.comparison.runner import Run, RunSettings, run_all
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY
from rlalloc_simulator.training_workloads import TUNING, TrainingWorkload

TEST_WORKLOADS: Final = TUNING + 50_000
ELITE: Final = 0.25
DEVIATION: Final = 0.7
"""Of the first round's logarithms: half to twice what is in use."""
Values = dict[str, float]


class Tunable(msgspec.Struct, frozen=True):
    """A policy's constants: those in use, where tuning starts; which are shares in (0, 1); and the policy."""

    in_use: Values
    policy: Callable[[Values], Heuristic]
    shares: frozenset[str] = frozenset()

    def values(self, point: NDArray[np.float64]) -> Values:
        """Return the constants at a point of the space that is drawn from."""
        return {
            name: float(1.0 / (1.0 + np.exp(-coordinate)) if name in self.shares else np.exp(coordinate))
            for name, coordinate in zip(self.in_use, point, strict=True)
        }

    def point(self, values: Mapping[str, float]) -> NDArray[np.float64]:
        """Return where the constants lie in that space."""
        return np.array(
            [
                np.log(value / (1.0 - value)) if name in self.shares else np.log(value)
                for name, value in values.items()
            ]
        )


_PRICE_EF: Final = Tunable(
    in_use={name: value for name, value in msgspec.structs.asdict(TUNED_PRICE).items() if name != "share_power"},
    policy=lambda values: OfSizes(partial(of_least_cost, constants=PriceConstants(**values))),
)
TUNABLE: Final[Mapping[str, Tunable]] = {
    "price-ef": _PRICE_EF,
    "steep-price": Tunable(
        in_use=msgspec.structs.asdict(STEEP_PRICE),
        policy=lambda values: OfSizes(partial(of_least_steep_cost, constants=SteepConstants(**values))),
    ),
    f"price-ef{SMALLEST_AREA_FIRST}": _PRICE_EF,
    "efficiency": Tunable(
        in_use={"threshold": THRESHOLD},
        policy=lambda values: OfSizes(lambda offer: most_efficient(offer, **values)),
        shares=frozenset({"threshold"}),
    ),
    "efficiency-adaptive": Tunable(
        in_use={"threshold": ADAPTIVE_THRESHOLD, "jobs_per_node_for_half": JOBS_PER_NODE_FOR_HALF},
        policy=lambda values: OfSizes(lambda offer: most_efficient_by_queue(offer, **values)),
        shares=frozenset({"threshold"}),
    ),
}
"""With SMALLEST_AREA_FIRST behind its name, on sites where urgency counts; else on sites where it does not."""


class TuningSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``rounds`` of ``candidates`` on ``workloads`` each; the result is judged on ``test_workloads`` others."""

    seed: int = 0
    rounds: int = 8
    candidates: int = 20
    workloads: int = 24
    test_workloads: int = 80
    jobs: int | None = None


class Tuned(msgspec.Struct, frozen=True):
    """Constants; mean JCT over that of REFERENCE with them and with those in use, on workloads not tuned on."""

    values: Values
    ratio: Interval
    in_use: Values
    in_use_ratio: Interval


class CandidatePolicy(msgspec.Struct, frozen=True):
    """A policy with constants of its own, in the order of the queue that its name says."""

    name: str
    values: Values

    @property
    def digest(self) -> str:
        """The name and the constants."""
        return f"{self.name} with {self.values}"

    def policy(self, urgency: UrgencyRules) -> Heuristic:
        """Return the policy with these constants."""
        del urgency
        policy = TUNABLE[self.name].policy(self.values)
        return Ordered(policy) if self.name.endswith(SMALLEST_AREA_FIRST) else policy


def tune(name: str, settings: TuningSettings, parallel_map: ParallelMap, report: ProgressCallback) -> Tuned:
    """Return tuned constants of the policy ``name``. Deterministic for a seed. Raises PolicyError for others."""
    if name not in TUNABLE:
        raise PolicyError(f"policy {name!r} has no constants to tune: write one of {', '.join(TUNABLE)}")
    tunable = TUNABLE[name]
    generator = np.random.default_rng(settings.seed)
    middle = tunable.point(tunable.in_use)
    deviation = np.full(len(middle), DEVIATION)
    for number in range(settings.rounds):
        drawn = generator.normal(middle, deviation, size=(settings.candidates, len(middle)))
        first = TUNING + (settings.seed * settings.rounds + number) * settings.workloads
        seeds = range(first, first + settings.workloads)
        candidates = [tunable.values(row) for row in drawn]
        scores = jct_log_ratios(name, candidates, seeds, settings.jobs, parallel_map).mean(axis=1)
        elite = drawn[np.argsort(scores)[: max(2, round(ELITE * settings.candidates))]]
        middle = elite.mean(axis=0)
        deviation = 0.7 * elite.std(axis=0) + 0.3 * deviation  # not too narrow before much is seen
        report(f"round {number + 1}", 0.9 * (number + 1) / settings.rounds)
    values = tunable.values(middle)
    seeds = range(TEST_WORKLOADS, TEST_WORKLOADS + settings.test_workloads)
    tuned, in_use = jct_log_ratios(name, [values, tunable.in_use], seeds, settings.jobs, parallel_map)
    return Tuned(values, ratio_of([tuned], CONFIDENCE), tunable.in_use, ratio_of([in_use], CONFIDENCE))


def jct_log_ratios(
    name: str, candidates: Sequence[Values], seeds: range, jobs: int | None, parallel_map: ParallelMap
) -> FloatArray:
    """Logarithms of mean JCT over that of REFERENCE in the same order of the queue, shape (candidates, workloads)."""
    rules = RunSettings(urgency=SIMULATED_URGENCY if name.endswith(SMALLEST_AREA_FIRST) else UrgencyRules())
    policies: list[ComparedPolicy] = [
        HeuristicPolicy(REFERENCE, smallest_first=True),
        *(CandidatePolicy(name, values) for values in candidates),
    ]
    runs = dict(enumerate(Run(policy, rules) for policy in policies))
    results = run_all(runs, [TrainingWorkload(seed, jobs) for seed in seeds], parallel_map)
    reference_s, *means_s = ([result.jct_s for result in found] for found in results.values())
    return np.array([log_ratios(each, reference_s) for each in means_s])
