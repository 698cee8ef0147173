"""Run an external command with a time limit."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from .testbed_errors import CommandFailedError, MissingSoftwareError
from .waiting import stretched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def run_command(
    arguments: Sequence[str | Path],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    standard_input: str = "",
) -> str:
    """Run a command of the testbed's own and return its standard output.

    Raises CommandFailedError (non-zero exit, or no end within `timeout_s`, which is stretched on a busy machine),
    MissingSoftwareError.
    """
    line = [str(argument) for argument in arguments]
    try:
        finished = subprocess.run(
            line,
            env=None if environment is None else dict(environment),
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=stretched(timeout_s),
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingSoftwareError(f"{line[0]} is not installed or not in PATH") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailedError(f"{' '.join(line)}: no end within {error.timeout:.0f} s") from error
    if finished.returncode != 0:
        output = (finished.stderr + finished.stdout).strip()
        raise CommandFailedError(f"{' '.join(line)}: exit status {finished.returncode}\n{output}")
    return finished.stdout
