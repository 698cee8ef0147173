"""Prints what ``rlalloc.llm`` computes beside what was published and measured, and checks it on runs that fit."""

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from rlalloc.errors import RlallocError
from rlalloc.llm.architecture import Architecture, architecture_of_config
from rlalloc.llm.facts import Facts
from rlalloc.llm.model_needs import memory_on
from rlalloc_research.gpu_memory.measured_cases import (
    FIRST_SETUPS,
    OTHER_FAMILIES,
    SECOND_DRAW,
    MeasuredCase,
    measured_cases,
)
from rlalloc_research.llm_memory_cases import GB, GIB, SOURCES, Case, cases

WITHIN: Final = 0.15
_UNITS: Final = {"GB": GB, "GiB": GIB, "KiB": 1024.0, "B": 1e9, "": 1.0}
MPT_SHAPES: Final = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
"""Layers, hidden size and heads of llm-foundry's MPT (scripts/train/yamls/pretrain)."""
_STAGES: Final = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0}


class FitCheck(msgspec.Struct, frozen=True):
    """Of ``runs`` that a table lists as run, how many fit by our estimate; ``fullest`` is the largest part needed."""

    runs: int
    fit: int
    fullest: float


def print_cases(ran: Path | None) -> None:
    """Print all cases with errors and sources; with ``ran``, llm-foundry's table of runs, that check too."""
    listed = cases()
    table = Table(title="Published and computed")
    for column in ("source", "case", "published", "computed", "error", ""):
        table.add_column(column, justify="right" if column in ("published", "computed", "error") else "left")
    for case in listed:
        unit = _UNITS[case.unit]
        figures = (f"{value / unit:,.2f} {case.unit}".strip() for value in (case.published, case.estimate))
        mark = "" if abs(case.error) <= WITHIN else f"beyond {WITHIN:.0%}"
        table.add_row(case.source, case.what, *figures, f"{case.error:+.1%}", mark)
    console = Console()
    console = console if console.is_terminal else Console(width=130)
    console.print(table, highlight=False)
    for name, title in SOURCES.items():
        console.print(f"{name}: {title}", highlight=False, markup=False)
    for assumed in dict.fromkeys(case.assumed for case in listed if case.assumed):
        names = ", ".join(dict.fromkeys(case.source for case in listed if case.assumed == assumed))
        console.print(f"assumed for {names}: {assumed}", highlight=False, markup=False)
    console.print(f"\n{summary('all cases', listed)}", highlight=False)
    console.print(summary("measured in runs", [case for case in listed if case.measured]), highlight=False)
    first = measured_cases(FIRST_SETUPS)
    _print_measured(console, "Measured on an H100", first)
    console.print(summary("held out", [case for case in first if case.held_out]), highlight=False)
    for title, path in (("Other families", OTHER_FAMILIES), ("A second draw of other families", SECOND_DRAW)):
        others = measured_cases(path)
        _print_measured(console, f"{title}, measured on an H200", others)
        right = sum(case.fit_is_right for case in others)
        console.print(f"whether it fits the H200 is right for {right} of {len(others)} setups", highlight=False)
    if ran is not None:
        check = check_runs(ran)
        console.print(
            f"{check.fit} of {check.runs} runs of {ran.name} fit their GPUs by our estimate; the fullest needs "
            f"{check.fullest:.0%}",
            highlight=False,
        )


def _print_measured(console: Console, title: str, listed: Sequence[MeasuredCase]) -> None:
    """The setups that we measured: what PyTorch gave out, what the GPU had in use, and our figures."""
    table = Table(title=f"{title} (27 November 2026) and computed [GiB]")
    for column in ("case", "allocated", "computed", "error", "used", "needed", ""):
        table.add_column(column, justify="left" if column in ("case", "") else "right")
    for case in listed:
        allocated, computed, used, needed = (
            f"{value / GIB:,.2f}" if value else "-"
            for value in (case.allocated, case.estimate, case.used, case.needed)
        )
        error = f"{case.error:+.1%}" if case.ran else "out of memory"
        beyond = case.ran and abs(case.error) > WITHIN
        marks = ["held out"] * case.held_out + [f"beyond {WITHIN:.0%}"] * beyond
        marks += [f"{case.parameters_off:+,} parameters"] * (case.parameters_off != 0)
        table.add_row(case.what, allocated, computed, error, used, needed, ", ".join(marks))
    console.print(table, highlight=False)
    ran = [case for case in listed if case.ran]
    below = sum(case.needed < case.used for case in ran)
    console.print(summary("measured by us", ran), highlight=False)
    console.print(f"the GPU had more than `needed` in use in {below} of {len(ran)} setups", highlight=False)


def summary(name: str, listed: Sequence[Case] | Sequence[MeasuredCase]) -> str:
    """One line: how many are within 15%, and the median of the errors' sizes."""
    errors = [abs(case.error) for case in listed]
    within = sum(error <= WITHIN for error in errors)
    return f"{name}: {within} of {len(errors)} within {WITHIN:.0%}, median error {statistics.median(errors):.1%}"


def check_runs(path: Path) -> FitCheck:
    """Count the runs of llm-foundry's throughput table that fit by our estimate: all of them ran.

    Raises RlallocError if the file is not that table.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            needed = [_needed_part(row) for row in csv.DictReader(file) if row["model"] in MPT_SHAPES]
    except (OSError, KeyError, ValueError, UnicodeDecodeError) as err:
        raise RlallocError(f"{path}: not a table of llm-foundry's throughput: {err}") from err
    if not needed:
        raise RlallocError(f"{path}: no run of a model that is known here")
    return FitCheck(len(needed), sum(part <= 1 for part in needed), max(needed))


def _needed_part(row: dict[str, str]) -> float:
    """The estimated part of the GPU's memory."""
    memory = memory_on(facts_of_mpt_run(row), int(row["gpus"]), 8)
    if memory is None:
        raise ValueError(f"a run of {row['gpus']} GPUs makes no sense")
    return memory.needed_gib / (40 if "40" in row["gpu"] else 80)


def facts_of_mpt_run(row: dict[str, str]) -> Facts:
    """A row of the table. llm-foundry's MPT has flash attention and a fused loss by default.

    Raises KeyError, ValueError.
    """
    return Facts(
        purpose="train",
        zero_stage=_STAGES.get(row["sharding_strategy"], 0),
        micro_batch=int(float(row["microbatchsize"])),
        sequence=int(row["seqlen_t"]),
        precision="16-bit",
        checkpointing="full" if row["activation_checkpointing"] == "True" else "none",
        flash_attention=True,
        fused_loss=True,
        architecture=_mpt(row["model"]),
    )


def _mpt(name: str) -> Architecture | None:
    layers, hidden, heads = MPT_SHAPES[name]
    return architecture_of_config(
        {"model_type": "mpt", "n_layers": layers, "d_model": hidden, "n_heads": heads, "vocab_size": 50368}
    )
