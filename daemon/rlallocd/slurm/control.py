"""Changing jobs, through scontrol. The one place that does: pyslurm cannot set nodes, tasks a node or MinCPUsNode."""

import re
import time
from collections.abc import Sequence

from rlallocd.slurm.admin_level import own_admin_level
from rlallocd.slurm.controllers import ControllerPing, controllers_in, read_pings
from rlallocd.slurm.pace import JobsPerCommand
from rlallocd.slurm.partition_text import gpu_defaults, read_partitions
from rlallocd.slurm.scheduling_rules import scheduling_rules
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer
from rlallocd.slurm.slurm_records import ControllerConfig, PartitionRecord, UpdatePlan
from rlallocd.slurm.update_session import UpdateSession


class Control:
    """Updates and begins jobs, and reads what only scontrol shows."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._updates = UpdateSession(commands)
        self.together = self._updates.together
        self._jobs_per_command = JobsPerCommand()

    @property
    def most_jobs(self) -> int:
        """How many jobs to name in the next call of ``set_nice`` or ``begin``, so that it ends in its time limit."""
        return self._jobs_per_command.most

    def config(self) -> ControllerConfig:
        """What slurmctld runs with. Raises SlurmError."""
        text = self._commands.run("scontrol", "show", "config")
        values = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.MULTILINE))
        try:
            version, cluster = values["SLURM_VERSION"], values["ClusterName"]
        except KeyError as err:
            raise UnexpectedAnswer(f"scontrol show config does not print {err}") from err
        enforce = values.get("AccountingStorageEnforce", "").split(",")
        slurm_user = values.get("SlurmUser", "").partition("(")[0]
        return ControllerConfig(
            slurm_version=version,
            cluster=cluster,
            limits_enforced=not {"limits", "safe"}.isdisjoint(enforce),
            gpus_accounted="gres/gpu" in values.get("AccountingStorageTRES", ""),
            has_task_prolog=values.get("TaskProlog", "(null)") != "(null)",
            admin_level=own_admin_level(self._commands, slurm_user),
            slurm_user=slurm_user,
            controllers=controllers_in(text),
            max_mem_mib_per_node=_number(values.get("MaxMemPerNode", "")),
            max_mem_mib_per_cpu=_number(values.get("MaxMemPerCPU", "")),
            scheduling=scheduling_rules(values),
            gpu_defaults=gpu_defaults(values.get("JobDefaults", "")),
            select_type=values.get("SelectType", ""),
            has_slurmdbd=values.get("AccountingStorageType", "").endswith("/slurmdbd"),
        )

    def ping(self) -> tuple[ControllerPing, ...]:
        """Which slurmctld answer. Raises SlurmUnavailable.

        It may take twice as long as other commands: one that hangs is waited for.
        """
        return read_pings(self._commands.within(2 * self._commands.timeout_s).printed("scontrol", "ping"))

    def partitions(self) -> dict[str, PartitionRecord]:
        """All partitions by name. Raises SlurmError."""
        return read_partitions(self._commands.run("scontrol", "show", "partition", "--oneliner", "--all"))

    def update(self, plan: UpdatePlan) -> None:
        """Send one update (rlallocd.transactions.update_plans makes them).

        Raises UpdateRefused (parts may have been applied: read the job back) or SlurmUnavailable (it may have
        been applied in full, too).
        """
        self._updates.update(f"JobId={plan.target}", *(f"{name}={value}" for name, value in plan.fields))

    def set_nice(self, job_ids: Sequence[int], nice: int) -> None:
        """Set the nice of jobs, all in one call. Raises SlurmError; UpdateRefused: of some of them only, perhaps."""
        self._update_all(job_ids, f"Nice={nice}")

    def begin(self, job_ids: Sequence[int], begin_s: float) -> None:
        """Let pending jobs start from ``begin_s`` on (0: now). Raises SlurmError.

        ResetAccrueTime, since Slurm keeps the old begin time as the moment from which a job's age counts.
        """
        when = f"uts{int(begin_s)}" if begin_s else "now"
        self._update_all(job_ids, f"StartTime={when}", "ResetAccrueTime")

    def release(self, target: str) -> None:
        """End the hold of a job, or of tasks (``UpdatePlan.target``). Raises SlurmError."""
        self._commands.run("scontrol", "release", target)

    def _update_all(self, job_ids: Sequence[int], *words: str) -> None:
        """The same update of several jobs, for each of which scontrol sends a message."""
        jobs = ",".join(str(job_id) for job_id in job_ids)
        called_s = time.monotonic()
        try:
            self._commands.run("scontrol", "update", f"JobId={jobs}", *words)
        finally:
            seconds = time.monotonic() - called_s
            self._jobs_per_command.took(len(job_ids), seconds, self._commands.timeout_s)


def _number(text: str) -> int | None:
    """None for UNLIMITED."""
    return int(text) if text.isdigit() else None
