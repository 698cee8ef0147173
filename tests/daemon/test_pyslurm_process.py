"""The process with pyslurm is waited for no longer than a command, and started again.

A pyslurm of a few lines stands in for the real one, which is not to be had here.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rlallocd.slurm import SlurmUnavailable, UnexpectedAnswer
from rlallocd.slurm.generations import generations
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.pyslurm_reader import PyslurmReader
from rlallocd.slurm.slurm_commands import Commands

PYSLURM = '''
"""slurmctld is what the file beside this one says."""
import pathlib, time

STATE = pathlib.Path(__file__).with_name("slurmctld")

class RPCError(Exception):
    errno = 1001

class Node:
    name, partitions, state, total_cpus = "n1", ["gpu"], "IDLE", 64
    configured_gres, allocated_gres, allocated_tres, active_features = {"gpu:a100": 8}, {}, {}, []
    def __getattr__(self, name):
        return 0

class Nodes:
    @staticmethod
    def load():
        print("libslurm may print what it likes")
        state = STATE.read_text()
        if state == "down":
            time.sleep(600)
        if state == "refuses":
            raise RPCError("Unable to contact slurm controller")
        if state == "crashes libslurm":
            import os
            os.abort()
        return {} if state == "odd" and [][0] else {"n1": Node()}
'''


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PyslurmReader]:
    (tmp_path / "pyslurm.py").write_text(PYSLURM)
    (tmp_path / "slurmctld").write_text("up")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    commands = Commands(60)
    with closing(PyslurmReader(commands, JsonReader(commands, generations()[0]))) as reader:
        yield reader


@pytest.mark.parametrize(
    ("state", "error", "says"),
    [
        ("refuses", SlurmUnavailable, "Unable to contact slurm controller; is Slurm up"),
        ("crashes libslurm", SlurmUnavailable, "its process has ended"),
        ("odd", UnexpectedAnswer, "set slurm.backend to cli"),
    ],
)
def test_it_answers_again_after_each_failure(
    reader: PyslurmReader, tmp_path: Path, state: str, error: type[Exception], says: str
) -> None:
    (node,) = reader.nodes()
    assert (node.name, node.cpus, node.gpus) == ("n1", 64, 8)
    (tmp_path / "slurmctld").write_text(state)
    with pytest.raises(error, match=says):
        reader.nodes()
    (tmp_path / "slurmctld").write_text("up")
    assert reader.nodes() == (node,)


def test_a_call_that_does_not_return_is_given_up(tmp_path: Path, reader: PyslurmReader) -> None:
    """Pyslurm keeps the interpreter during a call: in the daemon itself, no signal would be seen meanwhile."""
    (tmp_path / "slurmctld").write_text("down")
    reader._process._commands.timeout_s = 2.0
    with pytest.raises(SlurmUnavailable, match="no answer in 2 s"):
        reader.nodes()
    reader._process._commands.timeout_s = 60.0
    (tmp_path / "slurmctld").write_text("up")
    assert [node.name for node in reader.nodes()] == ["n1"]
