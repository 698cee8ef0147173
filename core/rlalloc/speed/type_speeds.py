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
h100 → h200  MLPerf Training v4.0 (mlcommons/training_results_v4.0, Apache-2.0): NVIDIA's times to train on 8 GPUs
             with the same global batch. The mean of the two language models (BERT 1.03, Llama 2 70B LoRA 1.15), with
             the spread of all eight benchmarks, one pair each

The ratio of two types that are several steps apart is that of all steps between them.

A site can state speeds of its own, relative to an A100. Each is one measurement of one job. The ratio of that job and
the ratio of the next one each differ from the median, by as much as ratios differ in the measured steps from K80 to
H100: 0.27, the root mean square of 0.24, 0.35 and 0.20. V100 → A100 is not counted: its spread is that of the step
before. So the logarithm of a stated ratio has the spread √2 · 0.27 = 0.38, and the 5% quantile of the ratio is 0.53
times the number. This also holds for the ratio of two stated types: they were measured with the same job.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
    _Step("h200", 0.08, 0.12),
)
MEASURED_TYPES: Final = tuple(step.name for step in _LADDER)
_A100: Final = MEASURED_TYPES.index("a100")
_STATED_SPREAD: Final = 0.27


class SpeedUp(NamedTuple):
    """By how much faster a job runs: the median, and the 5% quantile."""

    median: float
    at_least: float


@dataclass(frozen=True)
class TypeSpeeds:
    """The speeds of types of GPU: those above, and those that a site states.

    ``stated`` has GRES types by their exact names, each with its speed relative to an A100. They override those
    above.
    """

    stated: tuple[tuple[str, float], ...] = ()

    def knows(self, gpu_type: str) -> bool:
        """Whether anything is known of the speed of a GRES type."""
        return self._stated(gpu_type) is not None or _place(gpu_type) is not None

    def speed_up(self, gpu_type: str, instead_of: Mapping[str, float]) -> SpeedUp:
        """How much faster a job runs on a type than on one of others, each as likely as its weight says.

        Raises ValueError for a type whose speed is not known, and if there is no weight.
        """
        total = sum(instead_of.values())
        if total <= 0.0:
            raise ValueError("no type has a weight")
        ratios = [(weight / total, self._ratio(gpu_type, other)) for other, weight in instead_of.items()]
        return SpeedUp(
            sum(part * each.median for part, each in ratios), sum(part * each.at_least for part, each in ratios)
        )

    def over_a100(self, gpu_type: str) -> float:
        """The median speed of a type relative to an A100. Raises ValueError if it is not known."""
        return math.exp(_mean(self._steps_from_a100(gpu_type)))

    def _ratio(self, gpu_type: str, other: str) -> SpeedUp:
        one, two = self._steps_from_a100(gpu_type), self._steps_from_a100(other)
        mean = _mean(one) - _mean(two)
        spread = math.sqrt(math.fsum(step.spread**2 for step in one ^ two))
        return SpeedUp(math.exp(mean), math.exp(mean - _QUANTILE * spread))

    def _steps_from_a100(self, gpu_type: str) -> frozenset[_Step]:
        """The steps between an A100 and a type; those to a slower type have the opposite sign.

        All stated types share one step, so the ratio of two of them is as uncertain as that of one and an A100.
        """
        if (speed := self._stated(gpu_type)) is not None:
            return frozenset((_Step("", 0.0, _STATED_SPREAD), _Step(gpu_type, math.log(speed), _STATED_SPREAD)))
        if (place := _place(gpu_type)) is None:
            raise ValueError(f"no speed is known of {gpu_type}")
        if place > _A100:
            return frozenset(_LADDER[_A100 + 1 : place + 1])
        return frozenset(step._replace(mean=-step.mean) for step in _LADDER[place + 1 : _A100 + 1])

    def _stated(self, gpu_type: str) -> float | None:
        return next((speed for name, speed in self.stated if name == gpu_type), None)


BUILT_IN: Final = TypeSpeeds()


def _mean(steps: frozenset[_Step]) -> float:
    """The mean of all steps together; fsum makes it independent of the set's order."""
    return math.fsum(step.mean for step in steps)


def _place(gpu_type: str) -> int | None:
    known = known_type(gpu_type)
    name = "k80" if "k80" in gpu_type.lower() else (known or "").split("-")[0]
    return next((place for place, step in enumerate(_LADDER) if step.name == name), None)
