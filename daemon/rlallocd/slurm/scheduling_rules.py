"""How slurmctld schedules, as far as waits depend on it: the settings in ``scontrol show config``."""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

PreemptsBy = Literal["nothing", "qos", "partition"]
_SECONDS_A_MINUTE: Final = 60.0
_BACKFILL_COUNTS: Final = (
    *("bf_max_job_test", "bf_max_job_part", "bf_max_job_user", "bf_max_job_user_part", "bf_max_job_assoc"),
    "bf_max_job_array_resv",
)


class SchedulingRules(msgspec.Struct, frozen=True, kw_only=True):
    """Slurm's defaults unless a site says otherwise.

    ``bf_max_job_test`` is how many jobs a backfill pass looks at, ``bf_max_job_part`` and the like how many of a
    partition, user or association (0: no limit), ``bf_max_job_array_resv`` how many tasks of an array, and
    ``bf_window_s`` how far ahead it plans.
    ``preempts_by`` says who may requeue or cancel running jobs: jobs of a QOS that names theirs, or of a partition of
    a higher tier. A powered-down node takes jobs within ``resume_timeout_s``. With ``gives_sockets``, a job gets
    all CPUs of its sockets.
    """

    bf_max_job_test: int = 500
    bf_max_job_part: int = 0
    bf_max_job_user: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_assoc: int = 0
    bf_max_job_array_resv: int = 20
    bf_window_s: float = 86_400.0
    preempts_by: PreemptsBy = "nothing"
    resume_timeout_s: float = 60.0
    gives_sockets: bool = False


def scheduling_rules(values: Mapping[str, str]) -> SchedulingRules:
    """Read the lines of ``scontrol show config``; what is not there, or cannot be read, has its default."""
    words = dict(
        word.partition("=")[::2] for word in values.get("SchedulerParameters", "").replace(" ", "").split(",")
    )
    usual = SchedulingRules()
    resume_s = re.match(r"\d+", values.get("ResumeTimeout", ""))
    window_min = words.get("bf_window", "")
    words.setdefault("bf_max_job_test", words.get("max_job_bf", ""))
    counts = {name: int(words[name]) for name in _BACKFILL_COUNTS if words.get(name, "").isdigit()}
    return SchedulingRules(
        **counts,
        bf_window_s=int(window_min) * _SECONDS_A_MINUTE if window_min.isdigit() else usual.bf_window_s,
        preempts_by=_preempts_by(values.get("PreemptType", ""), values.get("PreemptMode", "")),
        resume_timeout_s=float(resume_s[0]) if resume_s is not None else usual.resume_timeout_s,
        gives_sockets=gives_sockets(values.get("SelectTypeParameters", "")),
    )


def gives_sockets(select_type_parameters: str) -> bool:
    """Whether jobs get whole sockets."""
    return not {"CR_SOCKET", "CR_SOCKET_MEMORY"}.isdisjoint(select_type_parameters.upper().split(","))


def _preempts_by(plugin: str, mode: str) -> PreemptsBy:
    """Suspended jobs keep their memory and, as GRES go, their GPUs: only those that are ended make room."""
    if not {"REQUEUE", "CANCEL"} & set(mode.split(",")):
        return "nothing"
    by: dict[str, PreemptsBy] = {"preempt/qos": "qos", "preempt/partition_prio": "partition"}
    return by.get(plugin, "nothing")
