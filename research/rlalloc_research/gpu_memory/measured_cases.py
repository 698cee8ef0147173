"""What ``measure`` found on an H100, and what rlalloc computes from each setup's batch script and config.json."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from rlalloc.llm.facts import Facts
from rlalloc.llm.model_needs import memory_on
from rlalloc.llm.named_files import facts_of_script

MEASURED: Final = Path(__file__).with_name("h100.jsonl")
_GIB: Final = 1024.0**3
_RESERVES: Final = ("CUDA", "fragmentation")


class MeasuredCase(msgspec.Struct, frozen=True):
    """One setup. Bytes at the peak: ``allocated`` by PyTorch, ``used`` of the GPU with CUDA's context.

    ``estimate`` is what rlalloc computes for the first, ``needed`` what it asks of a GPU.
    """

    what: str
    held_out: bool
    allocated: float
    used: float
    estimate: float
    needed: float

    @property
    def error(self) -> float:
        """The estimate over what was allocated, less 1."""
        return self.estimate / self.allocated - 1


class _Row(msgspec.Struct, frozen=True):
    """A line of ``h100.jsonl``; it has more keys than these."""

    what: str
    held_out: bool
    script: str
    model: str
    config: dict[str, Any]
    allocated: int
    used: int


def measured_cases(path: Path = MEASURED) -> tuple[MeasuredCase, ...]:
    """All setups that were measured."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return tuple(_case(msgspec.json.decode(line, type=_Row)) for line in lines)


def facts_of(script: str, model: str, config: dict[str, Any]) -> Facts:
    """What rlalloc reads in a script whose model's folder has ``config``."""
    files = {f"models/{model}/config.json": json.dumps(config)}
    return facts_of_script(script, files.get)


def _case(row: _Row) -> MeasuredCase:
    gpus = 2 if "--nproc-per-node=2" in row.script else 1
    memory = memory_on(facts_of(row.script, row.model, row.config), gpus, 8)
    if memory is None:
        raise ValueError(f"{row.what}: rlalloc does not read its script")
    estimate = sum(part.gib for part in memory.parts if part.name not in _RESERVES)
    return MeasuredCase(row.what, row.held_out, row.allocated, row.used, estimate * _GIB, memory.needed_gib * _GIB)
