"""What ``measure`` found on an H100 and an H200, and what rlalloc computes.

It computes from each setup's batch script and config.json.
"""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from rlalloc.llm.facts import Facts
from rlalloc.llm.model_needs import memory_on
from rlalloc.llm.named_files import facts_of_script

FIRST_SETUPS: Final = Path(__file__).with_name("h100.jsonl")
OTHER_FAMILIES: Final = Path(__file__).with_name("h200.jsonl")
SECOND_DRAW: Final = Path(__file__).with_name("h200_second_draw.jsonl")
_GIB: Final = 1024.0**3
_RESERVES: Final = ("CUDA", "fragmentation")


class MeasuredCase(msgspec.Struct, frozen=True):
    """One setup. Bytes at the peak: ``allocated`` by PyTorch, ``used`` of the GPU with CUDA's context.

    Both are 0 where the GPU, of ``memory`` bytes (0: not noted), was too small. ``estimate`` is what rlalloc computes
    for the first, ``needed`` what it asks of a GPU. ``parameters_off`` is by how much it counts too many.
    """

    what: str
    held_out: bool
    allocated: float
    used: float
    memory: float
    estimate: float
    needed: float
    parameters_off: int

    @property
    def ran(self) -> bool:
        """Whether it fitted the GPU."""
        return self.allocated > 0

    @property
    def error(self) -> float:
        """The estimate over what was allocated, less 1; of a setup that ran."""
        return self.estimate / self.allocated - 1

    @property
    def fit_is_right(self) -> bool:
        """Whether ``needed`` tells if it fits; where ``memory`` is known."""
        return (self.needed <= self.memory) == self.ran


class _Row(msgspec.Struct, frozen=True):
    """A line of a file; it has more keys than these."""

    what: str
    held_out: bool
    script: str
    model: str
    config: dict[str, Any]
    parameters: int = 0
    trained: int = 0
    allocated: int = 0
    used: int = 0
    total: int = 0


def measured_cases(path: Path) -> tuple[MeasuredCase, ...]:
    """All setups that were measured."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return tuple(_case(msgspec.json.decode(line, type=_Row)) for line in lines)


def facts_of(script: str, model: str, config: dict[str, Any]) -> Facts:
    """What rlalloc reads in a script whose model's folder has ``config``."""
    files = {f"models/{model}/config.json": json.dumps(config)}
    return facts_of_script(script, files.get)


def _case(row: _Row) -> MeasuredCase:
    gpus = 2 if "--nproc-per-node=2" in row.script else 1
    facts = facts_of(row.script, row.model, row.config)
    memory = memory_on(facts, gpus, 8)
    if memory is None or facts.architecture is None:
        raise ValueError(f"{row.what}: rlalloc does not read its script")
    estimate = sum(part.gib for part in memory.parts if part.name not in _RESERVES)
    return MeasuredCase(
        what=row.what,
        held_out=row.held_out,
        allocated=row.allocated,
        used=row.used,
        memory=row.total,
        estimate=estimate * _GIB,
        needed=memory.needed_gib * _GIB,
        # The first file counts adapters too, and has no ``trained``.
        parameters_off=facts.architecture.parameters - row.parameters if row.trained else 0,
    )
