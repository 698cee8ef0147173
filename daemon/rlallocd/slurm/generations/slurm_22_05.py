"""Slurm 22.05 and 22.08; tried: Debian bookworm's 22.05.8."""

from rlallocd.slurm.generations.capabilities import Capabilities

CAPABILITIES = Capabilities(
    release="22.05",
    holds_from="22.05",
    json_option="--json",
    nodes_command=("sinfo", "--all"),  # scontrol has no --json yet
    json_tells_cpus_per_task=False,  # always null
    exclusive_column="OverSubscribe",
    exclusive_word="NO",
    new_cpus_per_task_take_sockets=True,
    # Seen on 22.05.8 with EnforcePartLimits=NO: if the partition that slurmctld tried last is closed to the user's
    # group, it refuses any update, even of the begin time. 24.11.5 and 26.05.5 accept them.
    skipped_forms=frozenset({"closed-partition"}),
)
