"""What a compute node has at a path, by a job of a second there: the only way that Slurm itself offers."""

import re

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer

_DIGEST = re.compile(r"^([0-9a-f]{64})  /")
_MISSING = "rlalloc-missing"


def digest_on_node(commands: Commands, node: str, path: str) -> str | None:
    """The SHA-256 of an executable file on a node, None where there is none.

    It asks for one task, a CPU and 16 MiB at once. A TaskProlog that is named and missing fails that task. Raises
    UpdateRefused with Slurm's words where the task does not run, and SlurmUnavailable.
    """
    answer = commands.run(
        *("srun", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=16M", "--time=1"),
        *("--immediate=10", "--job-name=rlalloc-doctor", "--chdir=/", "--input=none", "--quiet"),
        *("sh", "-c", f'if [ -x "$0" ]; then sha256sum "$0"; else echo {_MISSING}; fi', path),
    )
    if answer.strip() == _MISSING:
        return None
    if (found := _DIGEST.match(answer)) is None:
        raise UnexpectedAnswer(f"srun on {node} printed {answer[:80]!r}")
    return found[1]
