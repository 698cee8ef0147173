"""What slurm.conf and the accounting database say about a site, for checks by people; read in three calls."""

import re

import msgspec

from rlallocd.slurm.partition_text import read_partitions
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that rlalloc depends on. ``accounts`` is None where slurmdbd does not answer.

    ``task_prolog`` and ``slurm_user`` are empty where slurm.conf has none. ``booted_s`` is when slurmctld started,
    ``clock_s`` what its clock showed when it answered; 0 where it did not say.
    """

    slurm_version: str
    cluster: str
    slurm_user: str
    task_prolog: str
    job_submit_plugins: frozenset[str]
    accounting_tres: frozenset[str]
    accounting_storage: str
    gathers: str
    slurm_conf: str
    booted_s: float
    clock_s: float
    partitions: frozenset[str]
    accounts: frozenset[str] | None


def read_site_settings(commands: Commands) -> SiteSettings:
    """Ask slurmctld and slurmdbd. Raises SlurmError if slurmctld does not answer."""
    text = commands.run("scontrol", "show", "config")
    partitions = read_partitions(commands.run("scontrol", "show", "partition", "--oneliner", "--all"))
    try:
        accounts = frozenset(
            commands.run("sacctmgr", "show", "account", "--parsable2", "--noheader", "format=account").split()
        )
    except SlurmError:
        accounts = None
    return settings_of(text, frozenset(partitions), accounts)


def settings_of(text: str, partitions: frozenset[str], accounts: frozenset[str] | None) -> SiteSettings:
    """The settings in what ``scontrol show config`` printed with SLURM_TIME_FORMAT=%s."""
    values = {
        name: "" if value == "(null)" else value
        for name, value in re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.MULTILINE)
    }
    clock = re.match(r"Configuration data as of ([0-9]+)$", text, re.MULTILINE)
    boot = values.get("BOOT_TIME", "")
    return SiteSettings(
        slurm_conf=values.get("SLURM_CONF", ""),
        slurm_version=values.get("SLURM_VERSION", ""),
        cluster=values.get("ClusterName", ""),
        slurm_user=values.get("SlurmUser", "").partition("(")[0],
        task_prolog=values.get("TaskProlog", ""),
        job_submit_plugins=_names(values.get("JobSubmitPlugins", "")),
        accounting_tres=_names(values.get("AccountingStorageTRES", "")),
        accounting_storage=values.get("AccountingStorageType", ""),
        gathers=values.get("JobAcctGatherType", ""),
        booted_s=float(boot) if boot.isdigit() else 0.0,
        clock_s=float(clock[1]) if clock is not None else 0.0,
        partitions=partitions,
        accounts=accounts,
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name)
