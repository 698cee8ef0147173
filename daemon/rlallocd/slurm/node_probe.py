"""Whether Slurm calls the TaskProlog on a compute node: asked by a job of a second there, and marked in the node."""

import re

import msgspec

from rlallocd.slurm.node_mark import TASK_PROLOG_VERSION, with_mark
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer
from rlallocd.slurm.slurm_records import NodeRecord

_TASK = 'printf "%s " "$RLALLOC_PROBE"; if [ -x "$0" ]; then sha256sum "$0"; else echo rlalloc-missing; fi'
_ANSWER = re.compile(r"^(?:(seen)(?:-([0-9]{1,4}))?|1) (?:([0-9a-f]{64})  /.*|rlalloc-missing)$")


class NodeAnswer(msgspec.Struct, frozen=True):
    """What a task saw: whether Slurm ``called`` rlalloc's TaskProlog for it, and the SHA-256 of the file at a path.

    ``digest`` is None where there is no executable file. ``version`` is what the TaskProlog that was called says of
    itself; 0 where it does not say.
    """

    called: bool
    digest: str | None
    version: int = TASK_PROLOG_VERSION

    @property
    def fits(self) -> bool:
        """Whether resized jobs may start there."""
        return self.called and self.version == TASK_PROLOG_VERSION


class NodeProbe:
    """Asks nodes by srun, and marks them by scontrol."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def ask(self, node: NodeRecord, path: str) -> NodeAnswer:
        """Ask a node, in whichever of its partitions, about the TaskProlog, whose usual place is ``path``.

        It asks for one task, a CPU and 16 MiB at once. A TaskProlog that is named and missing fails that task. Raises
        UpdateRefused with Slurm's words where the task does not run, and SlurmUnavailable.
        """
        answer = self._commands.run(
            *("srun", f"--partition={','.join(node.partitions)}", f"--nodelist={node.name}", "--nodes=1"),
            *("--ntasks=1", "--cpus-per-task=1", "--mem=16M", "--time=1", "--immediate=10"),
            *("--job-name=rlalloc-doctor", "--chdir=/", "--input=none", "--quiet"),
            *("--export=ALL,RLALLOC_PROBE=1", "sh", "-c", _TASK, path),
        )
        if (found := _ANSWER.match(answer.strip())) is None:
            raise UnexpectedAnswer(f"srun on {node.name} printed {answer[:80]!r}")
        return NodeAnswer(found[1] is not None, found[3], int(found[2] or 0))

    def mark(self, node: NodeRecord, seen_s: float | None) -> None:
        """Mark a node as checked at that time, or take its mark away (None). Raises SlurmError."""
        if (extra := with_mark(node.extra, seen_s)) != node.extra:
            self._commands.run("scontrol", "update", f"NodeName={node.name}", f"Extra={extra}")
