"""Checks of rlalloc's own parts on this machine: daemon, plugin, agent, policy, training."""

import re
import stat
import time
from pathlib import Path
from typing import Final

from rlalloc import __version__
from rlalloc.config import Config
from rlalloc.errors import PolicyError
from rlalloc.local_times import duration, local_time
from rlalloc.messages import AgentState
from rlalloc.policy.last_training import LastTraining, read_last_training
from rlalloc.policy.policies import SHIPPED_NAME, PolicyStore, verify
from rlallocd.checks.file_access import ids_of, may_write
from rlallocd.checks.finding import Finding, failure, good, unchecked, warning
from rlallocd.checks.units import UnitState
from rlallocd.process.daemon_state import DaemonState
from rlallocd.slurm.controllers import IN_CONTROL
from rlallocd.submissions.intercept import WAKE_FILE, expires_s, stamp_in_force

_LUA_VERSION: Final = re.compile(r'^local VERSION = "([^"]+)"', re.MULTILINE)
_NO_CYCLE_FOR_S: Final = 60.0
_OLD_TRAINING_S: Final = 3 * 86_400.0
_WITHDRAWN_S: Final = 86_400.0
"""A daemon that stops leaves an intercept file that expired in 1970."""
_STARTING_S: Final = 30.0
"""So long after its start, a program may not have done its first work yet."""
_NOTED_WITHIN_S: Final = 60.0
"""A training notes its end this long at most before its unit ends."""
_LATER: Final = "run this again in half a minute"
_START: Final = "systemctl enable --now rlalloc-agent rlallocd"
_TRAIN: Final = "systemctl start --no-block rlalloc-train"
_LOG: Final = "journalctl -u rlallocd"


def daemon_findings(config: Config, state: DaemonState | None, unit: UnitState | None) -> list[Finding]:
    """Whether rlallocd runs, cycles, and is in the mode that its file says."""
    now_s = time.time()
    if (started_s := just_started_s(state, unit)) is not None:
        return [warning("rlallocd", f"started {started_s:.0f} s ago, no cycle yet", _LATER)]
    if state is None:
        if unit is not None and unit.runs:
            return [failure("rlallocd", "it runs, but has not reported yet", f"wait half a minute; {_LOG} has more")]
        return [failure("rlallocd", "it has never run here", _START)]
    if (idle := _idle(config, state, unit, now_s)) is not None:
        return [idle]
    if state.standby:
        return [_standby(state.standby)]
    found = [good("rlallocd", f"version {state.version}, up for {duration(now_s - state.started_s)}")]
    if state.version != __version__:
        found.append(warning("version", f"rlallocd is {state.version}, this is {__version__}", "restart rlallocd"))
    failing = state.cycle_s is None or now_s - state.cycle_s > max(_NO_CYCLE_FOR_S, 3 * config.daemon.poll_s)
    if failing:
        since = local_time(state.cycle_s) if state.cycle_s else "its start"
        why = f": {state.problem}" if state.has_open_problem else ""
        found.append(failure("cycles", f"no successful cycle since {since}{why}", _LOG))
    if state.mode != state.wanted and not state.switched_off:
        found.append(failure("mode", state.mode_reason, "docs/admin/enforce.md"))
    if state.wanted != config.mode:
        found.append(
            warning(
                "mode",
                f"rlallocd has read mode {state.wanted}, the file now says {config.mode}",
                "systemctl reload rlallocd",
            )
        )
    return found


def _standby(why: str) -> Finding:
    """As it should be where the slurmctld of another machine is in control."""
    if why.endswith(IN_CONTROL):
        return good("rlallocd", f"STANDBY: {why}")
    return warning("rlallocd", f"STANDBY: {why}", "docs/admin/two-controllers.md")


def _idle(config: Config, state: DaemonState, unit: UnitState | None, now_s: float) -> Finding | None:
    """Why rlallocd does not cycle; None where it should."""
    if state.stopped or (unit is not None and not unit.runs):
        why = f": {state.problem}" if state.has_open_problem else ""
        return failure("rlallocd", f"stopped since {local_time(state.written_s)}{why}", _START)
    if now_s - state.written_s > max(_NO_CYCLE_FOR_S, 3 * config.daemon.poll_s):
        return failure("rlallocd", f"no sign of life since {local_time(state.written_s)}", _LOG)
    if state.waiting:
        return failure("rlallocd", f"waiting: {state.waiting}", f"remove the cause; {_LOG} says more")
    return None


def just_started_s(state: DaemonState | None, unit: UnitState | None) -> float | None:
    """How long ago rlallocd started, where that is so short that it need not have cycled; else None."""
    runs = unit.runs if unit is not None else state is not None and not state.stopped
    if not runs or (state is not None and (state.waiting or state.standby)):
        return None
    before = state is None or state.stopped or state.cycle_s is None
    since_s = time.time() - state.started_s if state is not None and not state.stopped else None
    up_s = unit.up_s if unit is not None and unit.up_s is not None else since_s
    return up_s if before and up_s is not None and up_s < _STARTING_S else None


def heartbeat_findings(config: Config, *, starting: bool = False, standby: bool = False) -> list[Finding]:
    """Whether the plugin has a valid intercept file, and reads scripts with the table of words of now.

    ``starting``: rlallocd has just started, so there may be none yet. ``standby``: there is to be none.
    """
    if standby:
        return [good("heartbeat", "withdrawn: the plugin of another machine is in use")]
    until_s, now_s = expires_s(config), time.time()
    if starting and (until_s is None or until_s <= now_s):
        return [
            warning("heartbeat", "no intercept file yet: jobs pass as submitted until rlallocd's first cycle", _LATER)
        ]
    if until_s is None or until_s <= now_s:
        stopped = until_s is not None and until_s < _WITHDRAWN_S
        since = f"not valid since {local_time(until_s)}" if until_s and not stopped else "missing or withdrawn"
        return [failure("heartbeat", f"the intercept file is {since}: jobs pass as submitted", _LOG)]
    if stamp_in_force(config) != config.word_table.stamp:
        said = "the plugin reads scripts with another table of words than the configuration file has"
        return [warning("words", said, "systemctl reload rlallocd")]
    return [good("heartbeat", "the intercept file is valid")]


def plugin_findings(booted_s: float, module: Path, caller: Path) -> list[Finding]:
    """Whether slurmctld has read the installed plugin, and whether that is this version's.

    ``module`` is rlalloc.lua, ``caller`` job_submit.lua beside slurm.conf; slurmctld reads both at its start
    (``booted_s``) and when ``caller`` changes.
    """
    try:
        read_s = max(booted_s, caller.stat().st_mtime)  # by which slurmctld sees that it has changed
        calling = caller.read_text(errors="replace")
        text, put_s = module.read_text(errors="replace"), module.stat().st_ctime  # a package sets mtime to its making
    except PermissionError as err:
        return [unchecked("plugin", f"not checked: {err.filename}: {err.strerror}", "run rlalloc doctor as root")]
    except OSError as err:
        return [failure("plugin", f"{err.filename}: {err.strerror}", "scripts/install-site.sh")]
    if "rlalloc" not in calling:
        return [failure("plugin", f"{caller} does not call rlalloc.lua", "add the lines of slurm_plugin/README.md")]
    version = _LUA_VERSION.search(text)
    if put_s > read_s:
        said, remedy = f"slurmctld has not read {module} since it changed", f"touch {caller}"
    elif version is None or version[1] != __version__:
        said = f"{module} is of {version[1] if version else 'another version'}, this is {__version__}"
        remedy = f"install this version's rlalloc.lua, then touch {caller}"
    elif ".job_modify(" not in calling:
        said = f"slurm_job_modify in {caller} does not call rlalloc.lua: users can move resized jobs past limits"
        remedy = "add the lines of slurm_plugin/README.md"
    else:
        return [good("plugin", f"{caller} calls rlalloc.lua {__version__}")]
    return [warning("plugin", said, remedy)]


def wake_findings(config: Config, slurm_user: str) -> list[Finding]:
    """Whether slurmctld, which runs as ``slurm_user``, can tell the daemon of a new job."""
    path, again = config.runtime_directory / WAKE_FILE, "systemctl restart rlallocd, whose unit gives it to SlurmUser"
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)
        uid, groups = ids_of(slurm_user)
        writable = regular and may_write(path, uid, groups)
    except KeyError:
        return [unchecked("wake file", f"not checked: there is no user {slurm_user} here", again)]
    except PermissionError as err:
        return [unchecked("wake file", f"not checked: {path}: {err.strerror}", "run rlalloc doctor as root")]
    except OSError as err:
        return [failure("wake file", f"{path}: {err.strerror}", again)]
    if not regular:
        return [failure("wake file", f"{path} is not a file", f"rm {path}, then {again}")]
    if not writable:
        said = f"{slurm_user}, as whom slurmctld runs, cannot write {path}: jobs wait for rlallocd's next cycle"
        return [failure("wake file", said, again)]
    return [good("wake file", f"slurmctld can write {path}")]


def agent_findings(answer: AgentState | str, unit: UnitState | None) -> list[Finding]:
    """Whether the agent answers, with which policy; ``answer`` is an error where it does not."""
    if isinstance(answer, str):
        if unit is not None and unit.runs and unit.up_s is not None and unit.up_s < _STARTING_S:
            return [warning("rlalloc-agent", f"started {unit.up_s:.0f} s ago, does not answer yet", _LATER)]
        since = f" (not running since {unit.since})" if unit is not None and not unit.runs and unit.since else ""
        said = answer.partition("; see systemctl")[0]
        return [failure("rlalloc-agent", f"{said}{since}", "systemctl status rlalloc-agent")]
    served = f"serves {answer.policy_version} for {duration(time.time() - answer.started_s)}"
    if answer.version != __version__:
        said = f"it is {answer.version or 'of another version'}, this is {__version__}"
        return [warning("rlalloc-agent", f"{served}; {said}", "systemctl restart rlalloc-agent")]
    if answer.problem:
        return [warning("rlalloc-agent", f"{served}; {answer.problem}", "rlalloc policy list")]
    return [good("rlalloc-agent", served)]


def policy_findings(config: Config) -> list[Finding]:
    """Whether the version in use is there, whole, and can be served."""
    policies = PolicyStore(config.policy.directory)
    current = policies.current()
    if current is None:
        return [good("policy", f"{SHIPPED_NAME} is in use")]
    try:
        manifest = verify(policies.path(current))
    except PolicyError as err:
        return [failure("policy", str(err), "rlalloc policy rollback, or rlalloc policy promote shipped")]
    return [good("policy", f"{current} is in use, made {local_time(manifest.created_s)}")]


def training_findings(config: Config, timer: UnitState | None, service: UnitState | None) -> list[Finding]:
    """Whether trainings are started, and whether one has ever succeeded."""
    found = []
    if timer is not None and not timer.runs:
        found.append(
            warning("timer", "rlalloc-train.timer does not run", "systemctl enable --now rlalloc-train.timer")
        )
    last, look = read_last_training(config.policy.directory), "journalctl -u rlalloc-train"
    if last is None:
        return [*found, _first_training(timer, service, look)]
    when = local_time(last.ended_s)
    success = f"the last success was {local_time(last.succeeded_s)}" if last.succeeded_s else "none has succeeded yet"
    if (unnoted := _unnoted_failure(last, service)) is not None:
        found.append(failure("training", unnoted, look))
    elif last.failed:
        found.append(failure("training", f"failed at {when}: {last.verdict}; {success}", look))
    elif last.stopped_s is not None:
        stopped = f"stopped at {local_time(last.stopped_s)} before it ended; {success}"
        found.append(warning("training", stopped, f"{_TRAIN}, or wait for the next night"))
    elif time.time() - last.ended_s > _OLD_TRAINING_S:
        found.append(warning("training", f"the last one was at {when}", "systemctl list-timers rlalloc-train"))
    else:
        found.append(good("training", f"{when}: {last.verdict}"))
    return found


def _unnoted_failure(last: LastTraining, service: UnitState | None) -> str | None:
    """That the unit has failed since a training last noted its end: it did not come so far."""
    if service is None or service.working or service.result == "success" or service.ended_s is None:
        return None
    if last.failed or service.ended_s <= last.noted_s + _NOTED_WITHIN_S:
        return None
    last_success = local_time(last.succeeded_s)
    return f"failed at {local_time(service.ended_s)} ({service.result}); the last success was {last_success}"


def _first_training(timer: UnitState | None, service: UnitState | None, look: str) -> Finding:
    """Where no training has ended yet: that is right until the timer has started one."""
    if service is not None and service.working:
        return good("training", f"the first one has been running since {service.since}")
    if service is not None and service.result != "success":
        return failure("training", "the last one failed", look)
    if timer is not None and timer.runs and timer.next_run and service is not None and not service.has_run:
        return good("training", f"none yet; first training at {timer.next_run}")
    return warning("training", "none has ended yet", look)
