"""The process with pyslurm is waited for no longer than a command, and started again.

A pyslurm of a few lines stands in for the real one, which is not to be had here.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from rlallocd.process.signals import Signals
from rlallocd.slurm import SlurmUnavailable, UnexpectedAnswer
from rlallocd.slurm.generations import generations
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.pyslurm_reader import PyslurmReader, _Process
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.squeue_reader import SqueueReader
from slurm_testbed import wait_until

from .test_squeue_reader import PrintsColumns, columns_of_a_job

PYSLURM = '''
"""slurmctld is what the file beside this one says."""
import ctypes, pathlib

STATE = pathlib.Path(__file__).with_name("slurmctld")

class RPCError(Exception):
    errno = 1001

class Node:
    name, partitions, state, total_cpus = "n1", ["gpu"], "IDLE", 64
    configured_gres, allocated_gres, allocated_tres, active_features = {"gpu:a100": 8}, {}, {}, []
    def __getattr__(self, name):
        return 0

class Job:
    """A pending one with our tag: pyslurm does not have the single fields of its request."""
    id, state, admin_comment, gres_per_node, cpus, is_batch_job = 7, "PENDING", "rlalloc:v=1", {}, 1, True
    def __getattr__(self, name):
        return None

class Jobs:
    @staticmethod
    def load():
        return {7: Job()}

class Nodes:
    @staticmethod
    def load():
        print("libslurm may print what it likes")
        state = STATE.read_text()
        if state == "down":
            STATE.write_text("asked")
            ctypes.PyDLL(None).sleep(600)  # which keeps the interpreter, as pyslurm does
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
    squeue = PrintsColumns(columns_of_a_job())
    with closing(PyslurmReader(Commands(60), SqueueReader(squeue, JsonReader(squeue, generations()[0])))) as reader:
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


def test_jobs_to_decide_are_read_from_columns_and_not_as_json(reader: PyslurmReader) -> None:
    """The JSON of 500 pending jobs took six times as long as all else of a reading."""
    assert [(job.job_id, job.priority) for job in reader.jobs()] == [(7, 12)]
    squeue = reader._squeue_reader._commands
    assert isinstance(squeue, PrintsColumns)
    assert squeue.asked == ["columns"]


def test_a_call_that_does_not_return_is_given_up(tmp_path: Path, reader: PyslurmReader) -> None:
    """Pyslurm keeps the interpreter during a call: in the daemon itself, no signal would be seen meanwhile."""
    (tmp_path / "slurmctld").write_text("down")
    reader._process._commands.timeout_s = 2.0
    with pytest.raises(SlurmUnavailable, match="no answer in 2 s"):
        reader.nodes()
    reader._process._commands.timeout_s = 60.0
    (tmp_path / "slurmctld").write_text("up")
    assert [node.name for node in reader.nodes()] == ["n1"]


def wait_until_asked(tmp_path: Path) -> None:
    """Until the process is in a call that does not return."""
    wait_until(lambda: (tmp_path / "slurmctld").read_text() == "asked", what="pyslurm asks slurmctld")


def test_a_reader_that_is_dropped_ends_its_process(reader: PyslurmReader) -> None:
    reader.nodes()
    assert reader._process._running is not None
    process = reader._process._running.process
    reader._process = _Process(Commands(60))
    assert process.returncode == -signal.SIGKILL


def test_sigterm_ends_the_process_in_a_call_that_does_not_return(tmp_path: Path, reader: PyslurmReader) -> None:
    """As where all processes of a service get it: rlallocd goes on at once."""
    (tmp_path / "slurmctld").write_text("down")
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(reader.nodes)
        wait_until_asked(tmp_path)
        assert reader._process._running is not None
        os.kill(reader._process._running.process.pid, signal.SIGTERM)
        with pytest.raises(SlurmUnavailable, match="its process has ended"):
            asked.result()


def test_sigterm_to_rlallocd_alone_is_heard_when_the_calls_time_is_over(
    tmp_path: Path, reader: PyslurmReader
) -> None:
    """The signal ends no call, of pyslurm or of a command, but the call ends in slurm.command_timeout_s."""
    reader.nodes()  # its process has started
    (tmp_path / "slurmctld").write_text("down")
    reader._process._commands.timeout_s = 2.0

    def send() -> None:
        wait_until_asked(tmp_path)
        os.kill(os.getpid(), signal.SIGTERM)

    with closing(Signals()) as signals:
        sender = Thread(target=send)
        sender.start()
        with pytest.raises(SlurmUnavailable, match="no answer in 2 s"):
            reader.nodes()
        sender.join()
        assert signals.stop
    assert reader._process._running is None
