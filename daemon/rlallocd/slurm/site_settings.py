"""What slurm.conf and the accounting database say about a site, for checks by people; read in four calls."""

import re

import msgspec

from rlallocd.slurm.admin_level import admin_level_of
from rlallocd.slurm.controllers import controllers_in
from rlallocd.slurm.partition_text import read_partitions
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError
from rlallocd.slurm.slurm_records import AdminLevel


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that rlalloc depends on. ``accounts`` is None where slurmdbd does not answer.

    ``task_prolog``, ``task_epilog`` and ``slurm_user`` are empty where slurm.conf has none. ``accounting_flags`` and
    ``select_parameters`` are in lower case. ``booted_s`` is when slurmctld started, ``clock_s`` what its clock showed
    when it answered; 0 where it did not say. ``controllers`` are the hosts of slurmctld, the primary's first.
    ``admin_level`` is that of ``daemon_user``, as which rlallocd's unit runs.
    """

    slurm_version: str
    cluster: str
    slurm_user: str
    task_prolog: str
    task_epilog: str = ""
    job_submit_plugins: frozenset[str]
    accounting_tres: frozenset[str]
    accounting_storage: str
    accounting_flags: frozenset[str] = frozenset()
    gathers: str
    select_type: str = ""
    select_parameters: frozenset[str] = frozenset()
    slurm_conf: str
    booted_s: float
    clock_s: float
    controllers: tuple[str, ...] = ()
    partitions: frozenset[str]
    accounts: frozenset[str] | None
    daemon_user: str
    admin_level: AdminLevel


def read_site_settings(commands: Commands, daemon_user: str) -> SiteSettings:
    """Ask slurmctld and slurmdbd. Raises SlurmError if slurmctld does not answer."""
    text = commands.run("scontrol", "show", "config")
    partitions = read_partitions(commands.run("scontrol", "show", "partition", "--oneliner", "--all"))
    try:
        accounts = frozenset(
            commands.run("sacctmgr", "show", "account", "--parsable2", "--noheader", "format=account").splitlines()
        )
    except SlurmError:
        accounts = None
    found = settings_of(text, frozenset(partitions), accounts)
    level = admin_level_of(commands, daemon_user, found.slurm_user)
    return msgspec.structs.replace(found, daemon_user=daemon_user, admin_level=level)


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
        task_epilog=values.get("TaskEpilog", ""),
        job_submit_plugins=_names(values.get("JobSubmitPlugins", "")),
        accounting_tres=_names(values.get("AccountingStorageTRES", "")),
        accounting_storage=values.get("AccountingStorageType", ""),
        accounting_flags=_names(values.get("AccountingStoreFlags", "").lower()),
        gathers=values.get("JobAcctGatherType", ""),
        select_type=values.get("SelectType", ""),
        select_parameters=_names(values.get("SelectTypeParameters", "").lower()),
        booted_s=float(boot) if boot.isdigit() else 0.0,
        clock_s=float(clock[1]) if clock is not None else 0.0,
        controllers=controllers_in(text),
        partitions=partitions,
        accounts=accounts,
        daemon_user="",
        admin_level="none",
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name)
