"""Slurm 26.05; tried: Debian forky's 26.05.5."""

from rlallocd.slurm.generations.capabilities import Capabilities

CAPABILITIES = Capabilities(
    release="26.05",
    holds_from="26.05",
    # Its own schema (v0.0.45) does not tell --exclusive: a job's ``shared`` is always empty, and ``exclusive``, which
    # is to replace it, is missing. The schema of 25.11, which 26.05 prints too, tells it. Seen on 26.05.5.
    json_option="--json=v0.0.44",
    nodes_command=("scontrol", "show", "nodes", "--all"),
    json_tells_cpus_per_task=True,
    exclusive_column="Exclusive",  # OverSubscribe shows NO for every job
    exclusive_word="NODE",
    new_cpus_per_task_take_sockets=False,
    skipped_forms=frozenset({"ntasks-per-gpu"}),
)
