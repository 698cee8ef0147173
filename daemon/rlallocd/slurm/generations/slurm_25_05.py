"""Slurm 25.05; tried: a build of 25.05.8. Everything that is known to differ is as in 24.11."""

from rlallocd.slurm.generations.capabilities import Capabilities

CAPABILITIES = Capabilities(
    release="25.05",
    holds_from="25.05",
    json_option="--json",
    nodes_command=("scontrol", "show", "nodes", "--all"),
    json_tells_cpus_per_task=True,
    exclusive_column="OverSubscribe",
    exclusive_word="NO",
    new_cpus_per_task_take_sockets=False,
    skipped_forms=frozenset({"ntasks-per-gpu"}),
)
