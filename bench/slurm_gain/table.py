"""The table: real beside predicted, by stream and seed, and the spread over the seeds."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from slurm_gain.gains import Measured, Side, spread
from slurm_gain.plan import COMPARED, NAMES, SIZED

SIDES: Final[tuple[Side, ...]] = ("real", "predicted")


def jct_table(measured: Sequence[Measured]) -> Table:
    """Mean JCT in seconds and its ratio to as submitted, by stream, seed and policy."""
    table = Table(title="mean JCT: sacct's beside the simulator's")
    table.add_column("stream, seed", no_wrap=True)
    table.add_column("jobs", justify="right")
    table.add_column("policy", no_wrap=True)
    for name in ("real, s", "ratio", "predicted, s", "ratio", "resized", "other end", "load"):
        table.add_column(name, justify="right")
    for each in measured:
        for mode in COMPARED:
            taken = each.taken[mode]
            first = mode == COMPARED[0]
            table.add_row(
                f"{each.stream} {each.seed}" if first else "",
                str(each.jobs) if first else "",
                NAMES[mode],
                f"{taken.jct_s:.1f}",
                "" if first else f"{each.ratio(mode, 'real'):.3f}",
                f"{taken.on('predicted'):.1f} ({min(taken.predictions_s):.1f} to {max(taken.predictions_s):.1f})",
                "" if first else f"{each.ratio(mode, 'predicted'):.3f}",
                str(taken.resized),
                str(taken.ended_otherwise),
                f"{taken.machine_load:.1f}",
                end_section=mode == COMPARED[-1],
            )
    return table


def gain_table(measured: Sequence[Measured]) -> Table:
    """Ratios of mean JCT over the seeds of each stream: geometric mean (least to largest)."""
    table = Table(title="ratio of mean JCT over the seeds: geometric mean (least to largest)")
    for name in ("stream", "seeds", "of", "to"):
        table.add_column(name, justify="right" if name == "seeds" else "left")
    for side in SIDES:
        table.add_column(side, justify="right")
    base, shipped = SIZED
    for stream in dict.fromkeys(each.stream for each in measured):
        those = [each for each in measured if each.stream == stream]
        for mode, to in ((base, COMPARED[0]), (shipped, COMPARED[0]), (shipped, base)):
            spreads = (str(spread(those, mode, side, to)) for side in SIDES)
            table.add_row(stream, str(len(those)), NAMES[mode], NAMES[to], *spreads)
        table.add_section()
    return table
