"""What a site's Slurm has to be like for a configuration of rlalloc. Pure functions of both."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rlalloc.config import Config
from rlalloc.devices import is_slice
from rlallocd.checks.finding import Finding, failure, good, unchecked, warning
from rlallocd.cluster.node_demands import host_list
from rlallocd.cluster.unchecked_nodes import CHECK, unchecked_nodes
from rlallocd.slurm import WITHOUT_GPU_UPDATES, NodeRecord
from rlallocd.slurm.generations import capabilities_of
from rlallocd.slurm.site_settings import SiteSettings

OUR_TASK_PROLOG: Final = "/usr/lib/rlalloc/task_prolog"
OUR_TASK_EPILOG: Final = "/usr/lib/rlalloc/task_epilog"
_CLOCK_DIFFERS_S: Final = 5.0
_SLURMDBD: Final = "accounting_storage/slurmdbd"
_BY_SOCKET: Final = frozenset({"cr_socket", "cr_socket_memory"})
_ONE_TASK_PER_CORE: Final = "cr_one_task_per_core"


class TaskScripts(NamedTuple):
    """The text of slurm.conf's TaskProlog and TaskEpilog on this machine; None of one that cannot be read.

    ``called``: checks on the nodes have seen that Slurm calls rlalloc's TaskProlog there.
    """

    prolog: str | None
    epilog: str | None
    called: bool = False


def slurm_findings(config: Config, site: SiteSettings, scripts: TaskScripts, now_s: float) -> list[Finding]:
    """All checks."""
    return [
        good("slurmctld", f"cluster {site.cluster}, Slurm {site.slurm_version}"),
        _plugin(config, site),
        *_select_type(config, site),
        _accounting(site),
        _admin_level(config, site),
        _tres(site),
        _gathering(site),
        _task_prolog(config, site, scripts),
        _task_epilog(config, site, scripts.epilog),
        _clock(site, now_s),
        *_modes(config),
        _partitions(config, site),
        _accounts(config, site),
    ]


def enforces(config: Config) -> bool:
    """Whether any rule changes jobs."""
    return any(config.mode_of(rule) == "enforce" for rule in config.rules)


def chooses_types(config: Config) -> bool:
    """Whether rlalloc may choose a type of GPU for any job."""
    return any(rule.choose_gpu_types for rule in config.rules)


def gpu_types_finding(nodes: Sequence[NodeRecord], config: Config) -> Finding:
    """Whether the site has the types that rlalloc may choose, and of which others it cannot tell the speed."""
    what, there = "types to choose", frozenset().union(*(node.gpu_types for node in nodes))
    if unknown := _unknown([name for rule in config.rules for name in rule.choose_gpu_types], there):
        return failure(
            what, f"the site has no GPUs of type {', '.join(unknown)}", f"it has {', '.join(sorted(there))}"
        )
    if unknown := _unknown(list(config.gpu_speed), there):
        said = f"gpu_speed has types that the site lacks: {', '.join(unknown)}"
        return warning(what, said, f"write the names of Slurm's GRES: {', '.join(sorted(there))}")
    speeds = config.type_speeds
    if unmeasured := sorted(name for name in there if not is_slice(name) and not speeds.knows(name)):
        said = f"rlalloc does not know the speed of {', '.join(unmeasured)}"
        return warning(
            what,
            said,
            "it chooses no type for jobs that may start there; set it in gpu_speed (docs/admin/rules.md)",
        )
    return good(what, "all exist")


def checked_finding(nodes: Sequence[NodeRecord], config: Config) -> Finding:
    """Whether all nodes that take jobs have been checked, so that rlallocd may resize jobs there."""
    what, found = "checked nodes", unchecked_nodes(nodes, config)
    if found:
        return warning(
            what, f"jobs that may start on {host_list(found)} stay as submitted", CHECK.format(nodes=host_list(found))
        )
    if config.nodes.task_prolog == "trusted":
        return good(what, "nodes.task_prolog: trusted")
    return good(what, "Slurm calls the TaskProlog on all nodes with GPUs")


def _plugin(config: Config, site: SiteSettings) -> Finding:
    if "lua" in site.job_submit_plugins:
        return good("submit plugin", "slurm.conf: JobSubmitPlugins has lua")
    return Finding(
        "OK" if config.mode == "off" else "FAIL",
        "submit plugin",
        "slurm.conf: JobSubmitPlugins lacks lua, so rlalloc sees no job",
        "add JobSubmitPlugins=lua to slurm.conf, then systemctl restart slurmctld",
    )


def _select_type(config: Config, site: SiteSettings) -> list[Finding]:
    if site.select_type in WITHOUT_GPU_UPDATES:
        return [
            Finding(
                "FAIL" if enforces(config) else "WARN",
                "SelectType",
                f"slurm.conf: with SelectType={site.select_type}, slurmctld does not change the GPUs of a job: "
                "rlallocd stays in shadow mode",
                "set SelectType=select/cons_tres, then restart slurmctld and slurmd on all nodes",
            )
        ]
    by_socket = not site.select_parameters.isdisjoint(_BY_SOCKET)
    if by_socket and capabilities_of(site.slurm_version).new_cpus_per_task_take_sockets:
        return [
            warning(
                "SelectType",
                "slurm.conf: SelectTypeParameters has CR_Socket: this version of Slurm gives a job all sockets of "
                "its nodes once its CPUs per task have been changed",
                "set CR_Core or CR_Core_Memory, upgrade Slurm, or keep shadow mode",
            )
        ]
    if _ONE_TASK_PER_CORE in site.select_parameters:
        return [
            warning(
                "SelectType",
                "slurm.conf: SelectTypeParameters has CR_ONE_TASK_PER_CORE: Slurm then records --ntasks-per-core=1 "
                "for each job, so all jobs run as submitted (tasks-per-socket)",
                "remove it; jobs that need it can ask for --ntasks-per-core=1 or --hint=nomultithread",
            )
        ]
    if by_socket:
        return [
            warning(
                "SelectType",
                "slurm.conf: SelectTypeParameters has CR_Socket: jobs with memory per CPU run as submitted "
                "(memory-per-cpu)",
                "set CR_Core or CR_Core_Memory, or have jobs ask for --mem or --mem-per-gpu",
            )
        ]
    return []


def _accounting(site: SiteSettings) -> Finding:
    if site.accounting_storage != _SLURMDBD:
        return failure(
            "accounting",
            f"slurm.conf: AccountingStorageType is {site.accounting_storage or 'not set'}: no outcomes, no training",
            f"set up slurmdbd, then set AccountingStorageType={_SLURMDBD}",
        )
    if site.accounts is None:
        return warning(
            "accounting",
            "slurmdbd does not answer: there are no outcomes and no history until it does",
            "systemctl status slurmdbd",
        )
    return good("accounting", f"slurmdbd answers, {len(site.accounts)} accounts")


def _admin_level(config: Config, site: SiteSettings) -> Finding:
    what, user = "AdminLevel", site.daemon_user
    if site.admin_level == "admin":
        return good(what, f"{user} is an administrator of slurmdbd, and may change jobs")
    if site.admin_level == "slurm":
        if site.accounts is None:
            return good(what, f"rlallocd runs as {user}: without slurmdbd nobody else may change jobs")
        said = f"rlallocd runs as {user}, who has all rights in Slurm; with slurmdbd an AdminLevel is enough"
        return warning(what, said, "docs/admin/security.md")
    return Finding(
        "FAIL" if enforces(config) else "WARN",
        what,
        f"slurmctld does not let {user} change jobs",
        f"sacctmgr -i add user {user} account=root adminlevel=Admin (if the user exists: "
        f"sacctmgr -i modify user {user} set adminlevel=Admin); if that does not help, slurmctld missed it: "
        "systemctl restart slurmctld; without slurmdbd: docs/admin/install.md",
    )


def _tres(site: SiteSettings) -> Finding:
    if any(name == "gres/gpu" or name.startswith("gres/gpu:") for name in site.accounting_tres):
        return good("GPU counts", "slurm.conf: AccountingStorageTRES has gres/gpu")
    return failure(
        "GPU counts",
        "slurm.conf: AccountingStorageTRES lacks gres/gpu, so Slurm reports no GPU counts",
        "add AccountingStorageTRES=gres/gpu, then systemctl restart slurmctld"
        if site.accounting_storage == _SLURMDBD
        else "set up slurmdbd first: without it, slurmctld does not start with AccountingStorageTRES=gres/gpu",
    )


def _gathering(site: SiteSettings) -> Finding:
    if site.gathers and not site.gathers.endswith("/none"):
        return good("memory use", f"slurm.conf: JobAcctGatherType is {site.gathers}")
    return warning(
        "memory use",
        "slurm.conf: JobAcctGatherType is none: rlalloc cannot learn what CPUs and memory jobs use",
        "set JobAcctGatherType=jobacct_gather/cgroup or jobacct_gather/linux",
    )


def _task_prolog(config: Config, site: SiteSettings, scripts: TaskScripts) -> Finding:
    what, named, text = "TaskProlog", site.task_prolog, scripts.prolog
    remedy = f"install {OUR_TASK_PROLOG} on all nodes, then set TaskProlog={OUR_TASK_PROLOG} (docs/admin/enforce.md)"
    if not named and not enforces(config):
        return good(what, "slurm.conf names none; shadow mode needs none")
    if not named:
        return failure(what, "slurm.conf names none: rlallocd stays in shadow mode", remedy)
    if text is None and scripts.called:
        return good(what, f"{named}, which calls rlalloc's on all nodes with GPUs")
    if text is None:
        return unchecked(
            what,
            f"{named} cannot be read here; a compute node without it fails every job",
            "rlalloc doctor --nodes all",
        )
    if "rlalloc" not in text.lower():
        return Finding(
            "FAIL" if enforces(config) else "OK",
            what,
            f"{named} does not call rlalloc's",
            f"end it with: exec {OUR_TASK_PROLOG}",
        )
    return good(what, f"{named}; a compute node without it fails every job")


def _task_epilog(config: Config, site: SiteSettings, text: str | None) -> Finding:
    """Without it rlalloc does not learn that a job with fewer GPUs ran out of their memory. No job fails for it."""
    what, named = "TaskEpilog", site.task_epilog
    if not enforces(config):
        return good(what, f"{named or 'slurm.conf names none'}; shadow mode needs none")
    unseen = "rlalloc does not see that a job ran out of a GPU's memory"
    if not named:
        remedy = f"install {OUR_TASK_EPILOG} on all nodes, then set TaskEpilog={OUR_TASK_EPILOG}"
        return warning(what, f"slurm.conf names none: {unseen}", f"{remedy} (docs/admin/enforce.md)")
    if text is None:
        return unchecked(
            what,
            f"{named} cannot be read here: on a compute node without it, {unseen}",
            f"check that all nodes have it: ls -l {named}",
        )
    if "rlalloc" not in text.lower():
        return warning(what, f"{named} does not call rlalloc's: {unseen}", f"end it with: exec {OUR_TASK_EPILOG}")
    if "job_comment" not in site.accounting_flags:
        return warning(
            what,
            f"slurm.conf: AccountingStoreFlags lacks job_comment: {unseen}",
            "add AccountingStoreFlags=job_comment to slurm.conf, then systemctl restart slurmctld",
        )
    return good(what, f"{named}; slurm.conf: AccountingStoreFlags has job_comment")


def _clock(site: SiteSettings, now_s: float) -> Finding:
    if site.clock_s and abs(site.clock_s - now_s) > _CLOCK_DIFFERS_S:
        return failure(
            "clock",
            f"slurmctld's clock differs from this machine's by {abs(site.clock_s - now_s):.0f} s",
            "synchronise both clocks by NTP: grace times depend on them",
        )
    return good("clock", "the same as slurmctld's")


def _modes(config: Config) -> list[Finding]:
    """A mode that is written above the file's is not in force, which is easily overlooked."""
    return [
        warning(
            f"rule {rule.name}",
            f"its mode is {rule.mode}, the file's is {config.mode}: {config.mode_of(rule)} is in force",
            f"set the file's mode to {rule.mode}, or remove the rule's",
        )
        for rule in config.rules
        if rule.mode is not None and config.mode_of(rule) != rule.mode
    ]


def _partitions(config: Config, site: SiteSettings) -> Finding:
    unknown = _unknown([name for rule in config.rules for name in rule.partitions], site.partitions)
    if unknown:
        return failure(
            "partitions of rules",
            f"the site has no {', '.join(unknown)}",
            f"it has {', '.join(sorted(site.partitions))}",
        )
    return good("partitions of rules", "all exist")


def _accounts(config: Config, site: SiteSettings) -> Finding:
    what, named = "accounts of rules", [name for rule in config.rules for name in rule.accounts]
    if site.accounts is None:
        if site.accounting_storage != _SLURMDBD:
            return good(what, "not checked: there is no slurmdbd")
        return warning(what, "not checked: slurmdbd does not answer", "systemctl status slurmdbd")
    unknown = _unknown([name.lower() for name in named], site.accounts)
    if unknown:
        return failure(what, f"the site has no {', '.join(unknown)}", "sacctmgr show account lists those that exist")
    return good(what, "all exist")


def _unknown(named: list[str], known: frozenset[str]) -> list[str]:
    return sorted({name for name in named if name != "*"} - known)
