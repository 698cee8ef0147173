"""Run commands in a site's environment, submit jobs and follow their states."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .site_users import unix_identity
from .testbed_errors import CommandFailedError, WaitTimedOutError
from .waiting import stretched, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Completed:
    """How a command ended."""

    arguments: tuple[str, ...]
    status: int
    output: str
    error_output: str


def run_as(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    directory: Path,
    user: str | None,
    standard_input: str,
    timeout_s: float,
) -> Completed:
    """Run a command, as an unprivileged user if one is named; a non-zero exit is not an error here.

    Raises CommandFailedError (past its time limit, or it cannot be executed), InvalidSpecError (no such user).
    """
    line = tuple(str(argument) for argument in arguments)
    identity = None if user is None else unix_identity(user)
    try:
        finished = subprocess.run(
            line,
            env=dict(environment),
            cwd=directory,
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=stretched(timeout_s),
            check=False,
            user=None if identity is None else identity.pw_uid,
            group=None if identity is None else identity.pw_gid,
            extra_groups=None if identity is None else [],
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailedError(f"{' '.join(line)}: no end within {error.timeout:.0f} s") from error
    except OSError as error:
        raise CommandFailedError(f"{' '.join(line)}: cannot be executed: {error}") from error
    return Completed(line, finished.returncode, finished.stdout, finished.stderr)


def require_success(completed: Completed) -> Completed:
    """Return what is given; raises CommandFailedError, with the output, on a non-zero exit."""
    if completed.status != 0:
        said = (completed.error_output + completed.output).strip()
        raise CommandFailedError(f"{' '.join(completed.arguments)}: exit status {completed.status}\n{said}")
    return completed


def parse_job_id(output: str) -> int:
    """Read the job id from ``sbatch --parsable`` output ("12" or "12;cluster"); raises CommandFailedError."""
    last = output.strip().splitlines()[-1] if output.strip() else ""
    text = last.partition(";")[0]
    if not text.isdigit():
        raise CommandFailedError(f"sbatch printed no job id: {output!r}")
    return int(text)


def parse_states(output: str, job_ids: Collection[int]) -> dict[str, str]:
    """Read "id|STATE" lines of these jobs: their array tasks ("7_1") and components ("7+0") too.

    A state such as "CANCELLED by 1000" loses its explanation.
    """
    states = {}
    for line in output.splitlines():
        name, _, state = line.strip().partition("|")
        if state and base_id(name) in job_ids:
            states[name] = state.split()[0]
    return states


def base_id(name: str) -> int:
    """Return the number that sbatch printed for a job, from its or a task's name: 7 of "7_[1-3]"."""
    digits = re.match(r"\d+", name)
    return int(digits[0]) if digits else 0


def wait_for_states(
    read_states: Callable[[Collection[int]], dict[str, str]],
    job_ids: Collection[int],
    states: Iterable[str],
    timeout_s: float,
) -> dict[str, str]:
    """Wait until each job, with all its tasks, is in one of `states`; return the state of each.

    Raises WaitTimedOutError.
    """
    wanted = frozenset(states)
    seen: dict[str, str] = {}

    def arrived() -> bool:
        seen.clear()
        seen.update(read_states(job_ids))
        return set(job_ids) <= {base_id(name) for name in seen} and wanted.issuperset(seen.values())

    try:
        wait_until(arrived, what="jobs", timeout_s=timeout_s, interval_s=0.2)
    except WaitTimedOutError as error:
        found = ", ".join(f"{name} is {state}" for name, state in seen.items()) or "no such job is known"
        raise WaitTimedOutError(
            f"jobs {sorted(job_ids)} not in {'/'.join(sorted(wanted))} after {timeout_s:g} s: {found}"
        ) from error
    return seen
