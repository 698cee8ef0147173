"""Reading ``scontrol show partition --oneliner``. Pure functions."""

import re
from typing import Final

from rlallocd.slurm.scheduling_rules import gives_sockets
from rlallocd.slurm.slurm_records import GpuDefaults, PartitionRecord

_NUMBER: Final = re.compile("[0-9]{1,19}")


def read_partitions(text: str) -> dict[str, PartitionRecord]:
    """All partitions by name."""
    records = {}
    for line in text.splitlines():
        values = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in values:
            record = _partition(values)
            records[record.name] = record
    return records


def _partition(values: dict[str, str]) -> PartitionRecord:
    qos, selects = values.get("QoS", "N/A"), values.get("SelectTypeParameters", "NONE")
    return PartitionRecord(
        name=values["PartitionName"],
        max_time_s=duration_s(values.get("MaxTime", "UNLIMITED")),
        max_nodes=_number(values.get("MaxNodes", "")),
        min_nodes=_number(values.get("MinNodes", "")) or 0,
        total_nodes=_number(values.get("TotalNodes", "")),
        total_cpus=_number(values.get("TotalCPUs", "")),
        max_cpus_per_node=_number(values.get("MaxCPUsPerNode", "")),
        max_cpus_per_socket=_number(values.get("MaxCPUsPerSocket", "")),
        max_mem_mib_per_node=_number(values.get("MaxMemPerNode", "")),
        max_mem_mib_per_cpu=_number(values.get("MaxMemPerCPU", "")),
        qos="" if qos == "N/A" else qos,
        allow_accounts=_names(values.get("AllowAccounts", "ALL")),
        deny_accounts=_names(values.get("DenyAccounts", "")) or frozenset(),
        allow_qos=_names(values.get("AllowQos", "ALL")),
        deny_qos=_names(values.get("DenyQos", "")) or frozenset(),
        tier=_number(values.get("PriorityTier", "")) or 0,
        preemptable=values.get("PreemptMode", "OFF") != "OFF",
        gpu_defaults=gpu_defaults(values.get("JobDefaults", "")),
        is_default=values.get("Default", "") == "YES",
        # Slurm 26.05 shows Exclusive=NODE, and OverSubscribe=NO beside it.
        whole_nodes=values.get("OverSubscribe", "") == "EXCLUSIVE" or values.get("Exclusive", "") == "NODE",
        gives_sockets=None if selects == "NONE" else gives_sockets(selects),
    )


def gpu_defaults(text: str) -> GpuDefaults:
    """The defaults in ``DefCpuPerGPU=2,DefMemPerGPU=4000``."""
    found = {word: int(count) for word, count in re.findall(r"Def(Cpu|Mem)PerGPU=(\d+)", text)}
    return GpuDefaults(found.get("Cpu", 0), found.get("Mem", 0))


def duration_s(text: str) -> int | None:
    """``[days-]hours:minutes:seconds``; None for UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _names(text: str) -> frozenset[str] | None:
    """The names in a list; None for ALL."""
    return None if text == "ALL" else frozenset(name for name in text.split(",") if name)
