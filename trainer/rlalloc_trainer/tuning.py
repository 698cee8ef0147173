"""The constants of price-EF, tuned by the cross-entropy method (Rubinstein 1999) on simulated streams.

A Gaussian over the constants' logarithms is drawn from, and the best fifth refits it, on new streams each round. The
result is printed and becomes ``rlalloc.heuristics.TUNED_PRICE`` by hand: observations contain the heuristic, so a
policy is good only for the constants that it was trained with.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import DEFAULT_PRICE, PriceConstants, as_requested, price_ef
from rlalloc_trainer.evaluation import Map, processes
from rlalloc_trainer.intervals import Interval, ratio_of
from rlalloc_trainer.progress import Report
from rlalloc_trainer.simulator import by_policy, simulate
from rlalloc_trainer.workload import generate, varied

TUNING_SEEDS: Final = 700_000
TEST_SEEDS: Final = 800_000
ELITE: Final = 0.25
CONFIDENCE: Final = 0.9
_NAMES: Final = PriceConstants.__struct_fields__


class TuningSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``rounds`` of ``candidates`` constants on ``streams`` streams each; ``test_streams`` to report on."""

    seed: int = 0
    rounds: int = 8
    candidates: int = 20
    streams: int = 24
    test_streams: int = 80


class Tuned(msgspec.Struct, frozen=True):
    """Constants, and mean JCT over that as requested with them and with DEFAULT_PRICE, on streams not tuned on."""

    constants: PriceConstants
    ratio: Interval
    default_ratio: Interval


def tune(settings: TuningSettings, report: Report) -> Tuned:
    """Return tuned constants. Deterministic for a seed."""
    generator = np.random.default_rng(settings.seed)
    middle = np.log([getattr(DEFAULT_PRICE, name) for name in _NAMES])
    deviation = np.full(len(_NAMES), 1.0)
    with processes(2) as spread:
        for number in range(settings.rounds):
            drawn = generator.normal(middle, deviation, size=(settings.candidates, len(_NAMES)))
            seeds = range(TUNING_SEEDS + number * settings.streams, TUNING_SEEDS + (number + 1) * settings.streams)
            scores = _log_ratios([_constants(row) for row in drawn], seeds, spread).mean(axis=1)
            elite = drawn[np.argsort(scores)[: max(2, round(ELITE * settings.candidates))]]
            middle = elite.mean(axis=0)
            deviation = 0.7 * elite.std(axis=0) + 0.3 * deviation  # not to narrow before much is seen
            report(f"round {number + 1}", 0.9 * (number + 1) / settings.rounds)
        constants = _constants(middle)
        seeds = range(TEST_SEEDS, TEST_SEEDS + settings.test_streams)
        tuned, default = _log_ratios([constants, DEFAULT_PRICE], seeds, spread)
    return Tuned(constants, _interval(tuned), _interval(default))


def mean_jct_s(task: tuple[PriceConstants | None, int]) -> float:
    """Run the stream of that number with price-EF under these constants, or as requested with None."""
    constants, seed = task
    workload = varied(seed)
    policy = as_requested if constants is None else partial(price_ef, constants=constants)
    records = simulate(workload.cluster, generate(workload, seed), by_policy(policy))
    return float(np.mean([record.jct_s for record in records]))


def _log_ratios(candidates: Iterable[PriceConstants], seeds: range, spread: Map) -> NDArray[np.float64]:
    """Logarithms of mean JCT over that as requested, shape (candidates, streams)."""
    contenders = (None, *candidates)
    tasks = [(constants, seed) for constants in contenders for seed in seeds]
    means = np.log(list(spread(mean_jct_s, tasks))).reshape(len(contenders), len(seeds))
    ratios: NDArray[np.float64] = means[1:] - means[0]
    return ratios


def _constants(logarithms: NDArray[np.float64]) -> PriceConstants:
    return PriceConstants(**dict(zip(_NAMES, np.exp(logarithms).tolist(), strict=True)))


def _interval(log_ratios: NDArray[np.float64]) -> Interval:
    return ratio_of([log_ratios], CONFIDENCE)
