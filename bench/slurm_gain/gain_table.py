"""The table: real beside predicted, by workload and seed, and the spread over the seeds."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from slurm_gain.gain_plan import COMPARED, NAMES, SIZED
from slurm_gain.gains import Measured, Side, spread

SIDES: Final[tuple[Side, ...]] = ("real", "predicted")


def jct_table(measured: Sequence[Measured]) -> Table:
    """Mean JCT in seconds and its ratio to as submitted, by workload, seed and policy."""
    table = Table(title="mean JCT: sacct's beside the simulator's")
    table.add_column("workload, seed", no_wrap=True)
    table.add_column("jobs", justify="right")
    table.add_column("policy", no_wrap=True)
    for name in ("real, s", "ratio", "predicted, s", "ratio", "resized", "updates/job", "other end", "load"):
        table.add_column(name, justify="right")
    for each in measured:
        for mode in COMPARED:
            taken = each.taken[mode]
            first = mode == COMPARED[0]
            table.add_row(
                f"{each.workload} {each.seed}" if first else "",
                str(each.jobs) if first else "",
                NAMES[mode],
                f"{taken.jct_s:.1f}",
                "" if first else f"{each.ratio(mode, 'real'):.3f}",
                f"{taken.on('predicted'):.1f} ({min(taken.predictions_s):.1f} to {max(taken.predictions_s):.1f})",
                "" if first else f"{each.ratio(mode, 'predicted'):.3f}",
                str(taken.resized),
                f"{taken.updates / each.jobs:.2f}",
                str(taken.ended_otherwise),
                f"{taken.machine_load:.1f}",
                end_section=mode == COMPARED[-1],
            )
    return table


def gain_table(measured: Sequence[Measured]) -> Table:
    """Ratios of mean JCT over the seeds of each workload: geometric mean (least to largest)."""
    table = Table(title="ratio of mean JCT over the seeds: geometric mean (least to largest)")
    for name in ("workload", "seeds", "of", "to"):
        table.add_column(name, justify="right" if name == "seeds" else "left")
    for side in SIDES:
        table.add_column(side, justify="right")
    for workload in dict.fromkeys(each.workload for each in measured):
        those = [each for each in measured if each.workload == workload]
        pairs = [(mode, COMPARED[0]) for mode in SIZED] + [(mode, SIZED[0]) for mode in SIZED[1:]]
        for mode, to in pairs:
            spreads = (str(spread(those, mode, side, to)) for side in SIDES)
            table.add_row(workload, str(len(those)), NAMES[mode], NAMES[to], *spreads)
        table.add_section()
    return table
