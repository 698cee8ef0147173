"""``rlalloc needs``: what a batch script's LLM needs, before it is submitted."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from rlalloc.counted import counted
from rlalloc.llm.facts import Facts
from rlalloc.llm.gpu_types import GPU_MEMORY_GIB, memory_gib
from rlalloc.llm.model_needs import counts_that_fit, makes_sense, memory_on, parallel_unit
from rlalloc.llm.named_files import MOST_FILE_CHARACTERS, facts_of_script
from rlalloc.llm.script_options import FOLLOWS_GPUS, PLANNED
from rlalloc.llm.shell_words import MOST_CHARACTERS
from rlalloc_cli.terminal import CONSOLE, fail

_SHOWN_TYPES: Final = (
    "v100-16",
    "v100-32",
    "rtx4090",
    "l40s",
    "a100-40",
    "a100-80",
    "h100",
    "h200",
    "mi250x",
    "mi300x",
)
_SHOWN_COUNTS: Final = 12
_SIZES_OF_ALLOCATION: Final = {FOLLOWS_GPUS: "as many as GPUs", PLANNED: "from rlalloc's plan"}


class NodeFiles:
    """Files as a script names them, relative to the folder that it is submitted from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        """Return the text of a regular file that is small enough to be a script or a configuration, else None."""
        try:
            path = self._folder / Path(name).expanduser()
            if not path.is_file() or path.stat().st_size > MOST_FILE_CHARACTERS:
                return None
            return path.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError, RuntimeError):
            return None


def facts_of_file(script: Path) -> Facts:
    """Read a batch script and the files beside it. Ends the program with a message if it cannot be read."""
    try:
        with script.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_CHARACTERS)
    except OSError as err:
        fail(f"{script}: {err.strerror or err}", code=2)
    return facts_of_script(text, NodeFiles(Path.cwd()).read)


def print_needs(facts: Facts, gpu_types: Mapping[str, float], gpus_per_node: int, most: int) -> None:
    """Print the facts, the memory by GPU count, and the counts that fit each type of GPU."""
    _print_facts(facts)
    model = facts.architecture
    if model is None:
        fail(
            "the script names no model of known size: no known model, no size in its name, no readable config.json",
            code=1,
        )
    source = "counted" if model.exact else "taken from its name"
    experts = f", {model.active_parameters / 1e9:.2f} billion active" if model.experts is not None else ""
    CONSOLE.print(f"\n{model.parameters / 1e9:.2f} billion parameters ({source}{experts})")
    _print_memory(facts, gpus_per_node, most)
    table = Table(title=f"GPU counts that fit, nodes of {counted(gpus_per_node, 'GPU')}", title_justify="left")
    table.add_column("GPU")
    for column in ("GiB", "least"):
        table.add_column(column, justify="right")
    table.add_column("counts")
    for name, gib in gpu_types.items():
        counts = counts_that_fit(facts, gib, gpus_per_node, most)
        shown = ", ".join(map(str, counts[:_SHOWN_COUNTS])) + (", …" if len(counts) > _SHOWN_COUNTS else "")
        table.add_row(name, f"{gib:g}", str(counts[0]) if counts else "-", shown or f"none up to {most}")
    CONSOLE.print(table)


def needs_as_json(facts: Facts, gpu_types: Mapping[str, float], gpus_per_node: int, most: int) -> str:
    """Return the same as JSON: ``facts``, ``parameters`` and the counts that fit by GPU type."""
    model = facts.architecture
    answer = {
        "facts": {name: value for name, value, _ in _told(facts)},
        "parameters": model.parameters if model is not None else None,
        "counts": {
            name: counts_that_fit(facts, gib, gpus_per_node, most) if model is not None else []
            for name, gib in gpu_types.items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def types_to_show(gpu_type: str | None, gib: float | None) -> dict[str, float]:
    """GiB by type: the one asked for, or a selection. Ends the program if the type is not known."""
    if gib is not None:
        return {gpu_type or "gpu": gib}
    if gpu_type is None:
        return {name: GPU_MEMORY_GIB[name] for name in _SHOWN_TYPES}
    found = memory_gib(gpu_type)
    if found is None:
        fail(f"--gpu {gpu_type}: unknown; say its memory with --gpu-memory GIB, or write one of "
             f"{', '.join(GPU_MEMORY_GIB)}", code=2)  # fmt: skip
    return {gpu_type: found}


def _told(facts: Facts) -> Iterator[tuple[str, object, str]]:
    """Each fact that was found, its value and where it comes from."""
    for name, value in msgspec.structs.asdict(facts).items():
        if name in facts.origin and name != "architecture":
            shown = _SIZES_OF_ALLOCATION.get(value, value) if name.endswith("_parallel") else value
            yield name, shown, facts.origin[name]


def _print_facts(facts: Facts) -> None:
    table = Table(title="Facts", title_justify="left")
    for column in ("fact", "value", "from"):
        table.add_column(column)
    for name, value, origin in _told(facts):
        table.add_row(name.replace("_", " "), str(value), origin)
    if "architecture" in facts.origin:
        table.add_row("architecture", "read", facts.origin["architecture"])
    CONSOLE.print(table)


def _print_memory(facts: Facts, gpus_per_node: int, most: int) -> None:
    counts = [1 << power for power in range(11) if 1 << power <= most]
    memories = [each for gpus in counts if (each := memory_on(facts, gpus, gpus_per_node)) is not None][:6]
    if not memories:
        sense = [gpus for gpus in range(1, most + 1) if makes_sense(facts, gpus, gpus_per_node)][:_SHOWN_COUNTS]
        memories = [each for gpus in sense if (each := memory_on(facts, gpus, gpus_per_node)) is not None][:6]
    if not memories:
        unit = parallel_unit(facts)
        CONSOLE.print(f"no count up to {most} is a multiple of its {unit} parallel ranks and fits its global batch")
        return
    table = Table(title="GiB on the fullest GPU", title_justify="left")
    table.add_column("GPUs")
    for memory in memories:
        table.add_column(str(memory.gpus), justify="right")
    for number, part in enumerate(memories[0].parts):
        if any(memory.parts[number].gib for memory in memories):
            table.add_row(part.name, *(f"{memory.parts[number].gib:.1f}" for memory in memories))
    fraction = memories[0].fraction
    last = "needed" if fraction == 1 else f"needed, if {fraction:.0%} of it is used"
    table.add_row(last, *(f"{memory.needed_gib:.1f}" for memory in memories))
    CONSOLE.print(table)
