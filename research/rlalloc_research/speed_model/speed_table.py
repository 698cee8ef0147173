"""Wiring of ``speed-model``: tables in, the prior's figures, held-out errors and a figure out."""

from pathlib import Path
from typing import NamedTuple

from rlalloc.errors import RlallocError
from rlalloc.progress import ProgressCallback
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.training_step import CONSTANTS, StepConstants
from rlalloc.view import slowdown
from rlalloc_research.speed_model.architecture_steps import (
    Predicted,
    fitted_constants,
    held_out_models,
    megatron_layouts,
    mpt_runs,
)
from rlalloc_research.speed_model.fitted_prior import fitted_prior, priors_without
from rlalloc_research.speed_model.held_out_speeds import Allowed, HeldOut, cpu_errors, held_out, limits_held
from rlalloc_research.speed_model.layout_scaling import LayoutError, layout_errors
from rlalloc_research.speed_model.measured_tables import all_families, cpu_sensitivities
from rlalloc_research.speed_model.speed_picture import draw


class SpeedTable(NamedTuple):
    """What came out; ``cpus`` are relative errors at CPU counts between one and all.

    ``without`` are priors that know all tables but one, by its name, as the evaluation uses them.
    ``constants`` and ``efficiency`` are those of training steps, fitted to MPT; ``layouts`` what they say of others,
    ``scaling`` how well they say how one of them scales.
    """

    families: int
    prior: SpeedBelief
    rows: list[HeldOut]
    allowed: list[Allowed]
    cpus: list[float]
    layouts: list[Predicted]
    constants: StepConstants
    efficiency: dict[str, float]
    scaling: list[LayoutError]
    without: dict[str, SpeedBelief]

    @property
    def tables(self) -> list[str]:
        """The tables that points were held out of."""
        return list(dict.fromkeys(name for row in self.rows for name in row.by_table))


def speed_table(data: Path, png: Path | None, report: ProgressCallback) -> SpeedTable:
    """Fit and predict. Raises ConfigError where a table is missing, RlallocError where ``png`` cannot be written."""
    report("reads the tables", 0.0)
    families = all_families(data)
    cpus = cpu_errors(cpu_sensitivities(data))
    report("fits priors", 0.02)
    prior, priors = fitted_prior(families), priors_without(families)
    report("predicts what was held out", 0.7)
    rows = held_out(families, priors)
    report("compares slowdowns", 0.95)
    allowed = limits_held(families, priors, slowdown)
    report("fits training steps", 0.97)
    runs = mpt_runs(data)
    constants, efficiency = fitted_constants(runs) if runs else (CONSTANTS, {})
    if runs:
        after = max(place for place, row in enumerate(rows) if row.row == "other models") + 1
        rows.insert(after, HeldOut("other models", "its architecture, no point", {"mpt": held_out_models(runs)}))
    if png is not None:
        try:
            png.write_bytes(draw(rows))
        except OSError as err:
            raise RlallocError(f"{png}: {err.strerror}; name a file that you may write") from err
    counted = sum(family.tells_scaling for family in families)
    layouts, scaling = megatron_layouts(constants), layout_errors(families, priors, constants)
    without = {
        left_out: fitted_prior(family for family in families if family.table != left_out)
        for left_out in dict.fromkeys(family.table for family in families)
    }
    return SpeedTable(counted, prior, rows, allowed, cpus, layouts, constants, efficiency, scaling, without)
