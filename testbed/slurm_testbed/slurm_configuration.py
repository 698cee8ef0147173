"""The text of slurm.conf and of the files beside it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .layout import Layout, Ports
    from .specification import NodeKind, Partition, SiteSpec

# Time in a testbed is compressed: jobs of seconds stand for jobs of hours, so whatever Slurm does
# "every minute" has to come every second or two, or waiting would be all that is measured.
SCHEDULER_PARAMETERS: Mapping[str, str] = {
    "bf_interval": "2",  # backfill pass; 30 s by default
    "bf_resolution": "1",  # seconds; 60 would round all short jobs up to one length
    "bf_window": "1440",  # minutes looked ahead
    "bf_continue": "",
    "bf_max_job_test": "1000",
    "sched_interval": "2",  # full pass of the main scheduler; 60 s by default
    "sched_min_interval": "50000",  # µs: a burst of submissions shares one pass
    "batch_sched_delay": "1",  # s; 3 by default
    "default_queue_depth": "1000",  # jobs tried at each event; 100 by default
}


BACKUP_HOST = "backup"
"""What the machine of a backup slurmctld is called: a name and an address of its own on this machine."""
ADDRESS, BACKUP_ADDRESS = "127.0.0.1", "127.0.0.2"


def slurm_conf(layout: Layout, spec: SiteSpec, ports: Ports, version: tuple[int, int], plugins: Path | None) -> str:
    """Return slurm.conf for a site; `version` is Slurm's, as (22, 5), `plugins` its PluginDir if not the built-in."""
    host = short_host_name()
    names = dict.fromkeys(gres.name for kind in spec.kinds.values() for gres in kind.all_gres)
    has_backup = spec.backup_environment is not None
    values: dict[str, str | None] = {
        "ClusterName": spec.name,
        "PluginDir": str(plugins) if plugins else None,
        # The address in brackets: the machine's name may not resolve.
        "SlurmctldHost": f"{host}({ADDRESS})",
        # Each on its own address: both have the same port.
        "CommunicationParameters": "NoCtldInAddrAny" if has_backup else None,
        "DebugFlags": "NO_CONF_HASH" if has_backup else None,  # the backup's slurm.conf has files of its own
        "SlurmctldPort": str(ports.slurmctld),
        "SlurmctldParameters": "enable_configless" if spec.configless else None,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        **_authentication(layout, spec),
        "CredType": "cred/munge" if spec.authentication == "munge" else "auth/slurm",
        "StateSaveLocation": str(layout.state),
        "SlurmctldPidFile": str(layout.run / "slurmctld.pid"),
        "SlurmctldLogFile": str(layout.log / "slurmctld.log"),
        "SlurmctldDebug": "info",
        "SlurmdSpoolDir": f"{layout.spool}/%n",
        "SlurmdPidFile": f"{layout.run}/slurmd-%n.pid",
        "SlurmdLogFile": f"{layout.log}/slurmd-%n.log",
        "SlurmdDebug": "info",
        # A node may claim more CPUs and memory than this machine has.
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "2",
        "SlurmctldTimeout": "120",
        "SlurmdTimeout": "120",
        # Many daemons share few cores: a slow answer is not a dead peer.
        "MessageTimeout": "30",
        "BatchStartTimeout": "60",
        "TCPTimeout": "10",
        "KillWait": "5",
        # Seconds that a finished job stays visible to squeue and scontrol.
        "MinJobAge": "300",
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "SwitchType": "switch/none" if version < (23, 11) else None,
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # Without it a job that names no memory takes the node's whole memory.
        "DefMemPerCPU": str(max(1, spec.mem_mib_per_node // spec.cpus_per_node)),
        "GresTypes": ",".join(names) or None,
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": f"task={spec.sample_s}",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(ports.slurmdbd),
        # The connection to slurmdbd does not look at AuthInfo; this is its place for the socket.
        "AccountingStoragePass": str(layout.munge_socket) if spec.authentication == "munge" else None,
        "AccountingStorageTRES": "gres/gpu" if spec.gpus_per_node else None,
        "AccountingStorageEnforce": spec.enforce or None,
        "PriorityType": "priority/multifactor",
        "PriorityWeightAge": "1000",
        "PriorityMaxAge": "0-01:00:00",
        "PriorityWeightFairshare": "1000",
        "PriorityWeightJobSize": "100",
        "PriorityDecayHalfLife": "0-06:00:00",
        "PriorityCalcPeriod": "1",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": _words({**SCHEDULER_PARAMETERS, **spec.scheduler_parameters}),
        "JobSubmitPlugins": "lua" if spec.job_submit_lua else None,
        "TaskProlog": str(layout.task_prolog) if spec.task_prolog else None,
        **spec.extra_slurm_conf,
    }
    lines = [f"{key}={value}" for key, value in values.items() if value is not None]
    if has_backup:
        lines.append(f"SlurmctldHost={BACKUP_HOST}({BACKUP_ADDRESS})")
    lines += [*_node_lines(spec, ports, host), *(_partition_line(each) for each in spec.partitions)]
    return "\n".join([*lines, *spec.extra_slurm_lines]) + "\n"


def backup_slurm_conf(text: str) -> str:
    """Return the backup's slurm.conf, from the primary's: files of its own, where both would have the same."""
    return text.replace("/slurmctld.", "/slurmctld-backup.")


def hosts_file() -> str:
    """Return /etc/hosts as two slurmctld see it: each looks its own name up."""
    return f"{ADDRESS} localhost {short_host_name()}\n{BACKUP_ADDRESS} {BACKUP_HOST}\n"


def slurmdbd_conf(layout: Layout, spec: SiteSpec, ports: Ports, password: str, plugins: Path | None) -> str:
    """Return slurmdbd.conf; slurmdbd insists that only its user can read it."""
    values = {
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(ports.slurmdbd),
        "SlurmUser": "root",
        **_authentication(layout, spec),
        "PidFile": str(layout.run / "slurmdbd.pid"),
        "LogFile": str(layout.log / "slurmdbd.log"),
        "DebugLevel": "info",
        "MessageTimeout": "30",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": str(ports.mariadbd),
        "StorageUser": "slurm",
        "StoragePass": password,
        "StorageLoc": "slurm_acct_db",
        **({"PluginDir": str(plugins)} if plugins else {}),
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _authentication(layout: Layout, spec: SiteSpec) -> dict[str, str]:
    if spec.authentication == "munge":
        return {"AuthType": "auth/munge", "AuthInfo": f"socket={layout.munge_socket}"}
    return {"AuthType": f"auth/{spec.authentication}"}


def gres_conf(layout: Layout, spec: SiteSpec) -> str:
    """Return gres.conf: device files, since with `Count=` alone slurmd registers no GPU."""
    return "".join(
        f"NodeName={node} {words}\n"
        for nodes, kind in spec.kinds.items()
        for node in nodes
        for words in _gres_words(layout.devices / node, kind)
    )


def device_files(kind: NodeKind) -> int:
    """How many device files a node of this kind has: one for each whole GPU and each slice of one."""
    return sum(gres.count for gres in kind.all_gres if gres.name == "gpu")


def _gres_words(devices: Path, kind: NodeKind) -> Iterator[str]:
    first = 0
    for gres in kind.all_gres:
        if gres.name == "gpu":
            files = f"nvidia[{first}-{first + gres.count - 1}]" if gres.count > 1 else f"nvidia{first}"
            yield f"Name=gpu Type={gres.type} File={devices / files}"
            first += gres.count
        else:  # shards: slurmd spreads them over the GPUs
            yield f"Name={gres.name} Count={gres.count}"


def cgroup_conf(version: tuple[int, int]) -> str:
    """Return cgroup.conf: no cgroups, so that a chroot or container without them will do.

    slurmd initialises a cgroup plugin even where no other plugin uses it. Before Slurm knew how
    to switch it off, v1 was the one that touches nothing until it is used; autodetection fails
    where /sys/fs/cgroup is not mounted.
    """
    return "CgroupPlugin=disabled\n" if version >= (24, 5) else "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def short_host_name() -> str:
    """Return this machine's name as Slurm compares it, without a domain."""
    return socket.gethostname().partition(".")[0]


def _words(parameters: Mapping[str, str | None]) -> str:
    return ",".join(f"{key}={value}" if value else key for key, value in parameters.items() if value is not None)


def _node_lines(spec: SiteSpec, ports: Ports, host: str) -> Iterator[str]:
    port = ports.slurmd_first
    for names, kind in spec.kinds.items():
        several = kind.nodes > 1
        sockets = 2 if kind.cpus % 2 == 0 else 1
        words = {
            "NodeName": f"n[{names[0][1:]}-{names[-1][1:]}]" if several else names[0],
            "NodeHostname": host,
            "NodeAddr": "127.0.0.1",
            "Port": f"[{port}-{port + kind.nodes - 1}]" if several else port,
            "CPUs": kind.cpus,
            "Sockets": sockets,
            "CoresPerSocket": kind.cpus // sockets,
            "ThreadsPerCore": kind.threads,
            "RealMemory": kind.mem_mib,
        }
        if kind.all_gres:
            words["Gres"] = ",".join(gres.word for gres in kind.all_gres)
        if kind.features:
            words["Features"] = ",".join(kind.features)
        if kind.cloud:
            words["State"] = "CLOUD"
        port += kind.nodes
        yield " ".join(f"{key}={value}" for key, value in words.items())


def _partition_line(partition: Partition) -> str:
    words = {
        "PartitionName": partition.name,
        "Nodes": partition.nodes,
        "Default": "YES" if partition.default else "NO",
        "MaxTime": partition.max_time,
        "DefaultTime": partition.default_time,
        "State": "UP",
        **partition.options,
    }
    return " ".join(f"{key}={value}" for key, value in words.items())
