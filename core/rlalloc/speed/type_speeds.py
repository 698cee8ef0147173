"""How much faster a job runs on one type of GPU than on another, as far as it was measured.

rlalloc sizes jobs of language models, so the ratios are those of such models. Each step from one type to the next
faster one has the mean and the standard deviation of the logarithm of the ratios:

k80 → p100   Gavel's Transformer, five batch sizes on 1 to 8 GPUs, 20 pairs (Narayanan et al., OSDI 2020;
             stanford-futuredata/gavel, MIT)
p100 → v100  likewise
v100 → a100  not measured for us: between the ratios of memory bandwidth (1.7) and of 16-bit arithmetic (2.5) on the
             data sheets, with the spread of Gavel's step before
a100 → h100  37 pairs of MPT runs of the same model, sequence length and number of GPUs (mosaicml/llm-foundry,
             Apache-2.0); their spread, 0.10, is that of one family of models, so it is doubled

The ratio of two types that are several steps apart is that of all steps between them.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from rlalloc.llm.gpu_types import known_type

_QUANTILE: Final = 1.645
"""Standard deviations from the median to the 5% quantile of a normal distribution."""


class _Step(NamedTuple):
    """A type, and the logarithm of its speed over that of the type before: mean and standard deviation."""

    name: str
    mean: float
    spread: float


_LADDER: Final = (
    _Step("k80", 0.0, 0.0),
    _Step("p100", 0.93, 0.24),
    _Step("v100", 0.38, 0.35),
    _Step("a100", 0.73, 0.35),
    _Step("h100", 0.77, 0.20),
)
MEASURED_TYPES: Final = tuple(step.name for step in _LADDER)


class SpeedUp(NamedTuple):
    """By how much faster a job runs: the median, and the 5% quantile."""

    median: float
    at_least: float


def is_measured(gpu_type: str) -> bool:
    """Whether anything is known of the speed of a GRES type."""
    return _place(gpu_type) is not None


def speed_up(gpu_type: str, instead_of: Mapping[str, float]) -> SpeedUp:
    """How much faster a job runs on a type than on one of others, each as likely as its weight says.

    Raises ValueError for a type that was not measured, and if there is no weight.
    """
    total = sum(instead_of.values())
    if total <= 0.0:
        raise ValueError("no type has a weight")
    ratios = [(weight / total, _ratio(gpu_type, other)) for other, weight in instead_of.items()]
    return SpeedUp(
        sum(part * each.median for part, each in ratios), sum(part * each.at_least for part, each in ratios)
    )


def _ratio(gpu_type: str, other: str) -> SpeedUp:
    one, two = _place(gpu_type), _place(other)
    if one is None or two is None:
        raise ValueError(f"no speed is known of {gpu_type if one is None else other}")
    steps = _LADDER[min(one, two) + 1 : max(one, two) + 1]
    mean = math.copysign(sum(step.mean for step in steps), one - two)
    spread = math.sqrt(sum(step.spread**2 for step in steps))
    return SpeedUp(math.exp(mean), math.exp(mean - _QUANTILE * spread))


def _place(gpu_type: str) -> int | None:
    known = known_type(gpu_type)
    name = "k80" if "k80" in gpu_type.lower() else (known or "").split("-")[0]
    return next((place for place, step in enumerate(_LADDER) if step.name == name), None)
