"""Enforcing is taken up only where jobs can be resized, and run then. Pure functions."""

from typing import Final

import msgspec

from rlalloc.config import Config
from rlallocd.slurm import WITHOUT_GPU_UPDATES, ControllerConfig

NO_TASK_PROLOG: Final = (
    "slurm.conf names no TaskProlog, so srun would fail in resized jobs: shadow mode is in force instead of enforce; "
    "see docs/admin/enforce.md"
)
NO_ADMIN_LEVEL: Final = (
    "slurmctld does not let this user change jobs: shadow mode is in force instead of enforce; run "
    "sacctmgr -i add user rlallocd account=root adminlevel=Admin, see docs/admin/install.md"
)
NO_GPU_UPDATES: Final = (
    "slurm.conf: with SelectType={}, slurmctld does not change the GPUs of a job: shadow mode is in force instead of "
    "enforce; rlalloc needs select/cons_tres, see docs/admin/install.md"
)


def why_not_enforce(config: Config, slurm: ControllerConfig) -> str:
    """Why the site cannot enforce although its configuration says so; empty if it can, or does not want to."""
    if config.mode != "enforce":
        return ""
    if slurm.select_type in WITHOUT_GPU_UPDATES:
        return NO_GPU_UPDATES.format(slurm.select_type)
    if slurm.admin_level not in ("slurm", "admin"):
        return NO_ADMIN_LEVEL
    return "" if slurm.has_task_prolog else NO_TASK_PROLOG


def config_in_force(config: Config, slurm: ControllerConfig, *, switched_off: bool = False) -> Config:
    """The configuration, in shadow mode where the site cannot enforce, in mode off where rlalloc is switched off."""
    if switched_off:
        return msgspec.structs.replace(config, mode="off")
    return msgspec.structs.replace(config, mode="shadow") if why_not_enforce(config, slurm) else config
