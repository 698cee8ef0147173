"""Slurm 23.02 to 24.05; tried: a build of 23.11.4, which is Ubuntu 24.04's version.

The release notes of 23.02 announce the JSON that 23.11 prints.
"""

from rlallocd.slurm.generations.capabilities import Capabilities

CAPABILITIES = Capabilities(
    release="23.11",
    holds_from="23.02",
    json_option="--json",
    # sinfo prints its own table as JSON now, and scontrol prints nodes:
    # https://github.com/SchedMD/slurm/blob/slurm-23-02-8-1/RELEASE_NOTES#L230
    nodes_command=("scontrol", "show", "nodes", "--all"),
    json_tells_cpus_per_task=True,
    exclusive_column="OverSubscribe",
    exclusive_word="NO",
    new_cpus_per_task_take_sockets=False,
    # _figure_out_num_tasks in slurmctld's job_mgr.c counts the tasks anew, since 23.02: see slurm_24_11.py.
    skipped_forms=frozenset({"ntasks-per-gpu"}),
)
