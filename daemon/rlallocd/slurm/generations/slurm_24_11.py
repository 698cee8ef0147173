"""Slurm 24.11; tried: Debian trixie's 24.11.5. Everything that is known to differ is as in 23.11."""

from rlallocd.slurm.generations.capabilities import Capabilities

CAPABILITIES = Capabilities(
    release="24.11",
    holds_from="24.11",
    json_option="--json",
    nodes_command=("scontrol", "show", "nodes", "--all"),
    json_tells_cpus_per_task=True,
    exclusive_column="OverSubscribe",
    exclusive_word="NO",
    new_cpus_per_task_take_sockets=False,
    # Seen on 24.11.5: any update of a pending --ntasks-per-gpu job, even of its begin time, leaves it with one task
    # and one CPU. _figure_out_num_tasks in slurmctld's job_mgr.c counts the tasks anew, since 23.02.
    skipped_forms=frozenset({"ntasks-per-gpu"}),
)
