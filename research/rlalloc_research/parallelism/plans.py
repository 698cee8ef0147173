"""The choices: how many GPUs, and how a training job is spread over them."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["data", "model", "hybrid"]
KINDS: Final[tuple[Kind, ...]] = ("data", "model", "hybrid")
GPU_COUNTS: Final = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Plan:
    """``replicas`` of the model, each split over ``parts`` GPUs."""

    replicas: int
    parts: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.replicas * self.parts

    @property
    def kind(self) -> Kind:
        """One GPU counts as data parallelism."""
        if self.parts == 1:
            return "data"
        return "model" if self.replicas == 1 else "hybrid"

    def __str__(self) -> str:
        return f"{self.gpus} {self.kind}"


def plan_of(gpus: int, kind: Kind) -> Plan:
    """Return the plan of a count and a kind; with fewer than 4 GPUs hybrid has no choice but to split the model.

    Hybrid splits the model over as many GPUs as keep it and the replicas nearest to each other, the latter larger.
    """
    parts = {"data": 1, "model": gpus, "hybrid": gpus if gpus < 4 else 2 ** ((gpus.bit_length() - 1) // 2)}[kind]
    return Plan(gpus // parts, parts)


PLANS: Final = tuple(dict.fromkeys(plan_of(gpus, kind) for gpus in GPU_COUNTS for kind in KINDS))
"""The twelve that differ."""
