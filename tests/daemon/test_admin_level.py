"""What slurmctld lets the daemon's user do and can change, as scontrol prints it, and what follows for the mode."""

import msgspec
import pytest

from rlalloc.config import Config
from rlallocd.process.mode_in_force import config_in_force, why_not_enforce
from rlallocd.slurm import ControllerConfig
from rlallocd.slurm.admin_level import read_admin_level
from rlallocd.slurm.slurm_records import AdminLevel

PRINTED = """\
Current Association Manager state
User Records
UserName=ada(1000) DefAccount=nlp DefWckey=(null) AdminLevel=Not Set
UserName=rlallocd(991) DefAccount=root DefWckey=(null) AdminLevel=Administrator
UserName=opal(992) DefAccount=root DefWckey=(null) AdminLevel=Operator
UserName=nemo(993) DefAccount=root DefWckey=(null) AdminLevel=None
"""
"""As slurmctld 22.05.8 prints it."""


@pytest.mark.parametrize(
    ("user", "level"),
    [("rlallocd", "admin"), ("opal", "operator"), ("nemo", "none"), ("ada", "none"), ("rlalloc", "none")],
)
def test_levels_are_read(user: str, level: AdminLevel) -> None:
    assert read_admin_level(PRINTED, user) == level


@pytest.mark.parametrize(("level", "mode"), [("slurm", "enforce"), ("admin", "enforce"), ("none", "shadow")])
def test_who_may_not_change_jobs_stays_in_shadow_mode(level: AdminLevel, mode: str) -> None:
    slurm = ControllerConfig(slurm_version="22.05.8", cluster="c", limits_enforced=True, gpus_accounted=True)
    slurm = msgspec.structs.replace(slurm, admin_level=level)
    assert config_in_force(Config(mode="enforce"), slurm).mode == mode
    assert ("sacctmgr" in why_not_enforce(Config(mode="enforce"), slurm)) is (mode == "shadow")
    assert why_not_enforce(Config(), slurm) == ""


@pytest.mark.parametrize(("select", "mode"), [("cons_tres", "enforce"), ("cons_res", "shadow"), ("linear", "shadow")])
def test_where_slurmctld_does_not_change_gpus_shadow_mode_stays(select: str, mode: str) -> None:
    """With select/linear and select/cons_res, 22.05 refuses TresPerJob and CpusPerTres, even empty."""
    slurm = ControllerConfig(slurm_version="22.05.8", cluster="c", limits_enforced=True, gpus_accounted=True)
    slurm = msgspec.structs.replace(slurm, select_type=f"select/{select}")
    assert config_in_force(Config(mode="enforce"), slurm).mode == mode
    assert (f"SelectType=select/{select}" in why_not_enforce(Config(mode="enforce"), slurm)) is (mode == "shadow")
