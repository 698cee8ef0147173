"""Enforcing is taken up only where a resized job can run: where its nodes have a TaskProlog. Pure functions."""

from typing import Final

import msgspec

from rlalloc.config import Config
from rlallocd.slurm import ControllerConfig

NO_TASK_PROLOG: Final = (
    "slurm.conf names no TaskProlog, so srun would fail in resized jobs: shadow mode is in force instead of enforce; "
    "see docs/admin/enforce.md"
)


def why_not_enforce(config: Config, slurm: ControllerConfig) -> str:
    """Why the site cannot enforce although its configuration says so; empty if it can, or does not want to."""
    return NO_TASK_PROLOG if config.mode == "enforce" and not slurm.has_task_prolog else ""


def config_in_force(config: Config, slurm: ControllerConfig) -> Config:
    """The configuration, in shadow mode where the site cannot enforce."""
    return msgspec.structs.replace(config, mode="shadow") if why_not_enforce(config, slurm) else config
